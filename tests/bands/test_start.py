"""Free runs from inputs alone: after the estimation data, after measured rows, from rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamid import DataError, Ensemble, Record, SettingsError, combine, ensemble_of, load
from occamid.bands.calibration import HORIZONS
from tests.support.linear_model import linear_model, linear_posterior, linear_record
from tests.support.trained import batch_of, data_of

A, B, SIGMA = 0.8, 0.5, 0.1


def linear(spread: tuple[float, float] = (0.0, 0.0), sigma: float = SIGMA) -> Ensemble:
    return combine([linear_posterior(linear_model(A, B), sigma, spread)])


def scaled(ensemble: Ensemble, run: Any, std: Any) -> Any:
    return std / ensemble.first.scaling.y_scale


# --- after measured rows ------------------------------------------------------------------------


def test_inputs_after_a_record_are_its_continuation() -> None:
    ensemble, record = linear(), linear_record(60)
    found = ensemble.simulate(record.u[40:], initial=record[:40])
    whole = ensemble.simulate(record, 40).after(40)
    assert (found.n_init, len(found)) == (0, 20)
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(found.spread, whole.spread, rtol=1e-12)


def test_nothing_but_inputs_and_the_start_is_looked_at() -> None:
    ensemble, record = linear(), linear_record(60)
    other = replace(record[40:], y=record.y[40:] + 7.0)
    a, b = (ensemble.simulate(r, initial=record[:40]) for r in (record[40:], other))
    np.testing.assert_array_equal(a.mean, b.mean)


def test_the_band_of_a_forecast_grows_with_the_steps_ahead() -> None:
    """Its inflation is that of so many steps ahead, row by row."""
    ensemble, record = linear(), linear_record(200)
    wide = replace(ensemble, inflation=np.array([[1.0], [2.0], [4.0]]))
    one, two = (m.simulate(record.u[50:], initial=record[:50]).spread for m in (ensemble, wide))
    ratio = (two / one)[:, 0]
    np.testing.assert_allclose(ratio[np.array(HORIZONS) - 1], [1.0, 2.0, 4.0], rtol=1e-9)
    assert (np.diff(two[:, 0]) > -1e-12).all()


# --- the end of the estimation data -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_last_goes_on_from_the_estimation_data(kind: str, tmp_path: Path) -> None:
    record = data_of(kind)
    ensemble = ensemble_of(batch_of(kind), record, count=2)
    u = np.linspace(-1, 1, 25)
    found = ensemble.simulate(u, initial="last")
    expected = ensemble.simulate(u, initial=record[-100:])
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.std, expected.std)
    assert ensemble.tail is not None
    assert len(ensemble.tail[0]) == 100
    ensemble.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.simulate(u, initial="last").mean, found.mean)
    assert again.candidates == ensemble.candidates


def test_a_model_that_does_not_hold_the_end() -> None:
    with pytest.raises(DataError, match="does not hold the end of its estimation data"):
        linear().simulate(np.zeros(5), initial="last")


# --- from rest ----------------------------------------------------------------------------------


def test_rest_under_the_first_inputs() -> None:
    """``y* = b u / (1 − a)`` in scaled units, and there it stays while the input does."""
    ensemble = linear()
    scaling = ensemble.first.scaling
    u = np.full(30, 2.1)
    found = ensemble.simulate(u, initial="steady")
    expected = scaling.undo_y(B / (1 - A) * scaling.apply_u(u[:, None]))
    np.testing.assert_allclose(found.mean, expected, rtol=1e-9)


@pytest.mark.parametrize("feedback", ["process", "none"])
def test_the_band_says_how_unsure_the_start_is(feedback: Any) -> None:
    """First row: ``a² Var(y*) + σ²`` with the doubt about b and a and, fed back, the noise."""
    s_b, s_a = 0.03, 0.02
    ensemble = linear((s_b, s_a))
    scaling = ensemble.first.scaling
    v = float(scaling.apply_u(np.array([2.1]))[0])
    found = ensemble.simulate(np.full(40, 2.1), initial="steady", feedback=feedback)
    rest = B * v / (1 - A)
    start = (v / (1 - A) * s_b) ** 2 + (rest / (1 - A) * s_a) ** 2
    start += SIGMA**2 / (1 - A**2) if feedback == "process" else 0.0
    own = (v * s_b) ** 2 + (rest * s_a) ** 2  # of the first step's weights
    assert found.epistemic_std is not None
    first = (found.epistemic_std[0, 0] / scaling.y_scale[0]) ** 2
    np.testing.assert_allclose(first, A**2 * start + own, rtol=1e-6)
    known = ensemble.simulate(np.full(40, 2.1), initial=_at_rest(ensemble, v), feedback=feedback)
    assert found.spread[0, 0] > 1.2 * known.spread[0, 0]  # a measured start is not in doubt
    np.testing.assert_allclose(known.spread[0, 0] / scaling.y_scale[0], np.sqrt(own + SIGMA**2))


def _at_rest(ensemble: Ensemble, v: float) -> Record:
    scaling = ensemble.first.scaling
    return Record(
        u=np.full(5, v * scaling.u_scale[0] + scaling.u_offset[0]),
        y=np.full(5, scaling.undo_y(np.array([B * v / (1 - A)]))[0]),
    )


@pytest.mark.parametrize("kind", ["mlp", "lstm", "two-outputs"])
def test_trained_models_rest(kind: str) -> None:
    record = data_of(kind)
    ensemble = ensemble_of(batch_of(kind), record, count=1)
    u = np.repeat(record.u.mean(axis=0)[None], 60, axis=0)
    found = ensemble.simulate(u, initial="steady")
    np.testing.assert_allclose(found.mean, found.mean[:1].repeat(60, axis=0), atol=2e-2)
    assert (found.spread[0] > 0).all()


def test_a_model_that_never_rests() -> None:
    growing = combine([linear_posterior(linear_model(1.2, B), SIGMA)])
    with pytest.raises(DataError, match="comes to no rest under the first inputs"):
        growing.simulate(np.zeros(5), initial="steady")


# --- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"initial": "first"}, "initial 'first' is unknown; choose one of last, steady"),
        ({"initial": "steady", "n_init": 3}, "give `n_init` or `initial`, not both"),
        ({"initial": "steady", "samples": 10}, "leave `samples` out"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        linear().simulate(np.zeros(5), **arguments)


def test_inputs_of_another_number() -> None:
    with pytest.raises(DataError, match="1 input name for 2 input columns"):
        linear().simulate(np.zeros((5, 2)), initial="steady")
