"""From records to a family's model: which of several orders is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from occamid.bands.linear import linearise
from occamid.bands.posterior import fit_posterior, observed_posterior
from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError
from occamid.export.description import describe
from occamid.export.recursion import Numbers, initial_state, step
from occamid.identification import assemble
from occamid.identification.assemble import (
    Workshop,
    free_run_errors,
    free_run_misses,
    runs_away,
)
from occamid.identification.families import every_family, families
from occamid.identification.folds import whole
from occamid.identification.options import BUDGETS, Options
from occamid.training.batch import Batch
from occamid.training.linear import fit_arx
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.state_space import Search, search
from occamid.training.train import train
from tests.support.small import small_record


def test_the_order_that_starts_well_from_few_outputs_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The smallest within five per cent of the best free run; not the best fit."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(300, 1))
    y = 0.1 * rng.normal(size=(300, 1))
    y[2:] += u[1:-1] + 0.5 * u[:-2]
    record = Record(u=u, y=y)
    scaling = fit_scaling([record], "standardize")
    scaled = scaling.apply(record)
    rows = [(scaled.u, scaled.y, np.ones(len(u)))]
    each = [
        observed_posterior(search(rows, Search((order,)))[0], record, scaling)
        for order in (1, 2, 3)
    ]
    wanted = {1: 1.0, 2: 0.52, 3: 0.5}

    def errors(models: Sequence[Model], _: object) -> np.ndarray:
        return np.array([wanted[m.neurons[0]] for m in models])

    monkeypatch.setattr(assemble, "free_run_errors", errors)
    shop = Workshop(whole([record]), BUDGETS["quick"])
    assert shop._of_one_order(each) == [each[1]]
    wanted[2] = 0.6
    assert shop._of_one_order(each) == [each[2]]


@pytest.mark.parametrize(("rows", "several"), [(300, True), (299, False)])
def test_only_short_records_mix_orders(
    monkeypatch: pytest.MonkeyPatch, rows: int, several: bool
) -> None:
    """Up to as many rows as restarts are compared on; of more, one order is used."""
    rng = np.random.default_rng(0)
    record = Record(u=rng.normal(size=(300, 1)), y=rng.normal(size=(300, 1)))
    monkeypatch.setattr(assemble, "search", lambda *_: ["one", "other"])
    monkeypatch.setattr(assemble, "observed_posterior", lambda fit, *_: fit)
    monkeypatch.setattr(Workshop, "_of_one_order", lambda _, found: found[:1])
    found = Workshop(whole([record]), BUDGETS["quick"])._state_space(Search((1, 2), rows=rows))
    assert found == (["one", "other"] if several else ["one"])


def test_a_family_takes_its_part_of_another_ones_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """As trained and refined they have other λ values; one training serves both."""
    trained: list[Settings] = []

    def spy(records: Sequence[Record], settings: Settings, **kwargs: Any) -> Batch:
        trained.append(settings)
        return train(records, settings, **kwargs)

    monkeypatch.setattr(assemble, "train", spy)
    rng = np.random.default_rng(0)
    record = Record(u=rng.normal(size=(80, 1)), y=rng.normal(size=(80, 1)))
    shop = Workshop(whole([record]), BUDGETS["quick"])
    settings = Settings(hidden=(2,), input_lags=1, output_lags=1, restarts=2, epochs=3, cycles=1)
    both = shop.batch(settings.replace(lam=(1e-3, 3e-3)))
    assert shop.batch(settings.replace(lam=(3e-3,))).settings.lam == (3e-3,)
    assert shop.batch(settings.replace(lam=(1e-3, 3e-3))).settings == both.settings
    assert len(trained) == 1
    shop.batch(settings.replace(lam=(1e-2,)))
    assert len(trained) == 2


def test_what_runs_away_in_time_is_used_where_all_else_is_far_worse() -> None:
    """A pole beyond the circle: fine through its record, far off when inputs come again."""
    u = np.sin(np.arange(300) / 7.0)[:, None]
    y = np.zeros((300, 1))
    for t in range(1, 300):
        y[t] = 1.01 * y[t - 1] + u[t - 1]
    record = Record(u=u, y=y)
    unstable = [fit.model for fit in fit_arx([record])[:2]]
    assert free_run_misses(unstable, [record])[1].all()
    assert np.isfinite(free_run_errors(unstable, [record])).all()
    posteriors = [fit_posterior(model, [record]) for model in unstable]
    assert Workshop(whole([record]), BUDGETS["quick"])._usable(posteriors)


def test_of_models_as_good_those_that_stay_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what would run away fits a little better, but not where it fits far better."""
    misses = np.array([1.0, 1.2, 1.6])[:, None, None] * np.ones((3, 5, 1))
    wild = np.array([True, False, False])
    monkeypatch.setattr(assemble, "free_run_misses", lambda *_: ([misses], wild))
    assert free_run_errors([], []).tolist() == pytest.approx([np.inf, 1.2, 1.6])
    misses[1:] *= 2
    assert free_run_errors([], []).tolist() == pytest.approx([1.0, 2.4, 3.2])
    wild[:] = True
    assert free_run_errors([], []).tolist() == pytest.approx([1.0, 2.4, 3.2])


@pytest.mark.parametrize("more", [300, 900])
def test_integrators_drift_and_unstable_poles_run_away(more: int) -> None:
    """Steps integrated once and twice, from the beginning or from the end; exponentials."""
    t = np.arange(300.0 + more)
    drifts = [20 * (t / 300), 4 * (t / 300) ** 2]
    late = [np.sin(t) + np.maximum(0, t - 300) ** d for d in (1, 2)]
    inside = [9 * np.sin(t), (t / 300) ** 1.5, 1.003**t / 6]
    grown = [g**t - 20 for g in (1.02, 1.03, 1.1)] + [0.01 * 1.02**t]
    wild = [np.where(t > 400, np.nan, 1.0), np.where(t > 299 + more / 2, np.inf, 1.0)]
    runs = np.stack([*drifts, *late, *inside, *grown, *wild])
    assert runs_away(runs[:, :, None], more).tolist() == [False] * 7 + [True] * 6


def test_equations_that_cannot_be_solved_end_a_family_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def singular(*_: object) -> None:
        raise np.linalg.LinAlgError("34-th leading minor of the array is not positive definite")

    monkeypatch.setattr(assemble, "fit_fading", singular)
    shop = Workshop.of(whole([small_record(200)]), Options(), BUDGETS["quick"])
    family = next(f for f in families(Options(), shop.records) if f.name == "fading-arx")
    with pytest.raises(DataError, match="its equations cannot be solved"):
        shop.model(family)


def test_models_at_rest_at_zero_are_offered_where_that_is_likely() -> None:
    names = ["arx-zero", "fading-arx-zero", "fading-response-zero", "subspace-zero"]
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=(500, 1)), np.zeros((500, 1))
    for t in range(1, 500):
        y[t] = 0.8 * y[t - 1] + u[t - 1] + 0.2 * rng.normal()
    resting, lifted = Record(u=u + 0.3, y=y + 1.5), Record(u=u, y=y + 1.5)
    assert [f.name for f in families(Options(), [resting]) if f.zero] == names
    assert not [f for f in families(Options(), [lifted]) if f.zero]
    assert not [f for f in families(Options(input_lags=3), [resting]) if f.zero]
    shop = Workshop.of(whole([resting[:30], lifted]), Options(), BUDGETS["quick"])
    tried = every_family(Options(), shop.records)  # in a fold that asks for them, they are there
    assert [f.name for f in tried if f.zero] == names
    shop = Workshop.of(whole([resting]), Options(), BUDGETS["quick"])
    for family in (f for f in tried if f.zero):
        still = shop.model(family).simulate(np.zeros((400, 1)), initial="steady")
        np.testing.assert_allclose(still.mean, 0.0, atol=1e-6)
        assert still.epistemic_std is not None
        np.testing.assert_allclose(still.epistemic_std[-1], 0.0, atol=1e-4)  # it has no offset


@pytest.mark.parametrize("name", ["arx", "fading-arx", "fading-response", "subspace"])
@pytest.mark.parametrize("zero", ["", "-zero"])
def test_what_is_exported_begins_at_rest_at_the_mean(name: str, zero: str) -> None:
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=(500, 1)) + 0.9, np.zeros((500, 1))
    for t in range(1, 500):
        y[t] = 0.8 * y[t - 1] + u[t - 1] + 0.02 * rng.normal()
    record = Record(u=u, y=y)[50:]
    shop = Workshop.of(whole([record]), Options(), BUDGETS["quick"])
    tried = every_family(Options(), shop.records)
    model = shop.model(next(f for f in tried if f.name == name + zero))
    mean = record.u.mean(axis=0)
    rest = linearise(model)
    np.testing.assert_allclose(rest.u0, mean)
    np.testing.assert_allclose(rest.y0, 5 * mean, rtol=0.02)
    made = describe(model)
    state, runs = initial_state(made), []
    for _ in range(50):
        state, now = step(made, Numbers(), state, mean)
        runs.append(now)
    np.testing.assert_allclose(runs, np.tile(rest.y0, (50, 1)), rtol=0.05)
