"""Ensembles: members in one network, their combination, weights, and what may be looked at."""

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import pytest
from scipy.stats import norm

from occamid import (
    DataError,
    Index,
    Model,
    Posterior,
    Record,
    SettingsError,
    combine,
    ensemble_of,
    fit_posterior,
    train,
)
from occamid.bands.combine import widen_to_residuals
from occamid.bands.mixture import Feedback, weighted_median
from occamid.bands.monte_carlo import allocate
from occamid.data.scaling import Scaling
from occamid.data.twins import hairdryer
from occamid.data.windows import Terms
from occamid.networks import MLP
from tests.support.banded import Banded, predict, simulate
from tests.support.small import SMALL, small_record
from tests.support.trained import batch_of

FEEDBACKS: tuple[Feedback, ...] = ("process", "none")
SAMPLES = (None, 20)  # of the linearised band, and of a sampled one


def without(model: Model, neuron: int, columns: list[int]) -> Model:
    """The model with a neuron cut off and some regressors not read any more."""
    changed = {}
    for name, value in model.weights.items():
        W = value.copy()
        if name in ("layer0.W", *(f"lstm0.W_i{g}" for g in "ifgo")):
            W[:, columns] = 0.0
        if name in ("layer1.W", "out.W", *(f"lstm0.W_h{g}" for g in "ifgo")):
            W[:, neuron] = 0.0
        changed[name] = W
    return model.with_weights(changed)


@cache
def posteriors_of(network: str) -> tuple[Posterior, ...]:
    """Three members that read different regressors and have different neurons."""
    batch = batch_of(network)
    first, second, third = (batch.model(Index(0, k, 1)) for k in range(3))
    models = (without(first, 1, [0]), without(second, 0, [1, 3, 4]), third)
    found = tuple(fit_posterior(m, small_record(), "full") for m in models)
    assert len({p.model.regressors for p in found}) == 3
    assert len({p.model.network.hidden for p in found}) == 2
    return found


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_one_member_is_its_model(network: str) -> None:
    record = small_record(60, seed=3)
    for posterior in posteriors_of(network)[:2]:
        ensemble, model = combine([posterior]), posterior.model
        run = ensemble.free_run(record.u, record.y[:3])
        np.testing.assert_allclose(run, model.free_run(record.u, record.y[:3]), rtol=1e-9)
        np.testing.assert_allclose(
            ensemble.simulate(record).mean, model.simulate(record).mean, rtol=1e-9
        )
        ahead = ensemble.predict(record, 3).mean
        np.testing.assert_allclose(ahead, model.predict(record, 3).mean, rtol=1e-9)
        assert ensemble.regressors == model.regressors
        assert ensemble.parameters == model.parameters
        assert ensemble.start == model.start == 3


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_members_keep_their_outputs_in_the_common_network(network: str) -> None:
    posteriors, record = posteriors_of(network), small_record(60, seed=3)
    ensemble = combine(posteriors)
    assert ensemble.regressors == ("u[t-3]", "u[t-2]", "u[t-1]", "u[t]", "y[t-2]", "y[t-1]")
    assert ensemble.network.hidden == posteriors[2].model.network.hidden
    counts = sorted(p.model.parameters for p in posteriors)
    assert (ensemble.parameters, ensemble.parameters_in_all) == (counts[1], sum(counts))
    for k, posterior in enumerate(posteriors):
        member, model = ensemble.members.model(k), posterior.model
        assert member.regressors == model.regressors
        for n_init in (3, 10):
            np.testing.assert_allclose(
                member.free_run(record.u, record.y[:n_init]),
                model.free_run(record.u, record.y[:n_init]),
                rtol=1e-9,
            )
        np.testing.assert_allclose(
            member.predict(record, 2).mean, model.predict(record, 2).mean, rtol=1e-9
        )


def test_covariances_are_embedded_where_the_weights_are() -> None:
    """By name: the standard error of a weight lies at the same weight of the common network."""
    posteriors = posteriors_of("mlp")
    ensemble = combine(posteriors)
    columns = {name: k for k, name in enumerate(ensemble.regressors)}
    for k, posterior in enumerate(posteriors):
        variances = np.sum(ensemble.mixture.factor[k] ** 2, axis=1)
        assert np.count_nonzero(variances) == len(posterior.positions)
        found, at = {}, 0
        for name, spec in ensemble.network.specs().items():
            size = int(np.prod(spec.shape))
            found[name] = np.sqrt(variances[at : at + size]).reshape(spec.shape)
            at += size
        errors = posterior.standard_errors["layer0.W"]
        for j, name in enumerate(posterior.model.terms.names):
            np.testing.assert_allclose(
                found["layer0.W"][: len(errors), columns[name]], errors[:, j], rtol=1e-12
            )
        assert ensemble.mixture.noise_std[k] == pytest.approx(np.sqrt(posterior.noise_variance))


def test_members_without_and_with_a_bias_meet() -> None:
    """A sigmoid net without biases gains one where a constant neuron folds into it."""
    settings = SMALL.replace(activation="sigmoid", bias=False, restarts=2)
    batch = train(small_record(), settings.replace(cycles=1))
    first = batch.model(Index(0, 0, 0))
    W0 = first.weights["layer0.W"].copy()
    W0[1] = 0.0
    models = (first.with_weights({"layer0.W": W0}), batch.model(Index(0, 1, 0)))
    posteriors = [fit_posterior(m, small_record()) for m in models]
    assert ["layer1.b" in p.model.weights for p in posteriors] == [True, False]
    record = small_record(50, seed=3)
    for order in ((0, 1), (1, 0)):
        ensemble = combine([posteriors[k] for k in order])
        for place, k in enumerate(order):
            np.testing.assert_allclose(
                ensemble.members.model(place).free_run(record.u, record.y[:3]),
                posteriors[k].model.free_run(record.u, record.y[:3]),
                rtol=1e-9,
            )


def by_hand(values: list[float], weights: np.ndarray) -> float:
    """Where half of the weight is below; halfway to the next that has any if exactly half is."""
    ranked = sorted((v, w) for v, w in zip(values, weights, strict=True) if w > 0)
    total = 0.0
    for k, (value, weight) in enumerate(ranked):
        total += weight
        if abs(total - 0.5) < 1e-12:
            return 0.5 * (value + ranked[k + 1][0])
        if total > 0.5:
            return value
    raise AssertionError


@pytest.mark.parametrize(
    "weights", [(1, 1, 1), (1, 1, 2), (0.2, 0.5, 0.3), (5, 1, 1), (1, 0, 1)], ids=str
)
def test_centre_equals_a_loop(weights: tuple[float, ...]) -> None:
    """Of free runs and predictions, with a band of either kind or without one."""
    posteriors, record = posteriors_of("mlp"), small_record(40, seed=3)
    ensemble = combine(posteriors, np.array(weights, dtype=float))
    share = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(ensemble.weights, share)

    def check(runs: list[np.ndarray], *found: np.ndarray) -> None:
        for t in range(len(record)):
            expected = by_hand([float(run[t, 0]) for run in runs], share)
            for centre in found:
                assert centre[t, 0] == pytest.approx(expected, rel=1e-9)

    check(
        [p.model.free_run(record.u, record.y[:4]) for p in posteriors],
        ensemble.free_run(record.u, record.y[:4]),
        *(ensemble.simulate(record, 4, samples=n).mean for n in SAMPLES),
    )
    check(
        [p.model.predict(record, 2).mean for p in posteriors],
        *(ensemble.predict(record, 2, samples=n).mean for n in SAMPLES),
    )


def test_the_centre_of_some_numbers() -> None:
    """Half the weight on either side; between two that tie; not drawn away by a run that left."""
    values = np.array([5.0, 1.0, 3.0, 2.0])
    for weights, expected in (
        ([0.25, 0.25, 0.25, 0.25], 2.5),
        ([0.4, 0.2, 0.2, 0.2], 3.0),
        ([0.6, 0.2, 0.1, 0.1], 5.0),
        ([0.5, 0.5, 0.0, 0.0], 3.0),
    ):
        assert weighted_median(values[:, None, None], np.array(weights)) == pytest.approx(expected)
    for far in (1e300, np.inf, np.nan):
        runs = np.array([far, 1.0, 3.0])[:, None, None]
        assert weighted_median(runs, np.full(3, 1 / 3)) == 3.0


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_moments_of_the_mixture(network: str) -> None:
    """From those of one-member ensembles: how wide they are in geometric mean, of which noise has
    its mean share, and how far members are from the centre, which is doubt."""
    posteriors, record = posteriors_of(network), small_record(30, seed=3)
    weights = np.array([0.2, 0.5, 0.3])
    ensemble = combine(posteriors, weights)
    parts = [simulate(combine([p]), record, 5) for p in posteriors]
    found = simulate(ensemble, record, 5)
    apart = sum(w * (p.mean - found.mean) ** 2 for w, p in zip(weights, parts, strict=True))
    own, noise = np.zeros_like(found.std), np.zeros_like(found.std)
    for t in range(5, 30):
        own[t] = np.prod([p.std[t] ** (2 * w) for w, p in zip(weights, parts, strict=True)], axis=0)
        noise[t] = own[t] * sum(
            w * (p.aleatoric_std[t] / p.std[t]) ** 2 for w, p in zip(weights, parts, strict=True)
        )
    doubt = own - noise + apart
    np.testing.assert_allclose(found.mean, ensemble.free_run(record.u, record.y[:5]), rtol=1e-9)
    np.testing.assert_allclose(found.epistemic_std, np.sqrt(doubt), rtol=1e-7)
    np.testing.assert_allclose(found.aleatoric_std, np.sqrt(noise), rtol=1e-7)
    np.testing.assert_allclose(found.std, np.sqrt(doubt + noise), rtol=1e-7)
    gauss = norm(found.mean[5:], found.std[5:]).ppf(np.array(found.levels)[:, None, None])
    np.testing.assert_allclose(found.quantiles[:, 5:], gauss, rtol=1e-7)


def test_monte_carlo_of_a_mixture_has_its_moments() -> None:
    """Members that do not doubt their weights: what is left is their distance from the centre."""
    sure = [
        replace(p, factor=0 * p.factor, noise_variance=0 * p.noise_variance)
        for p in posteriors_of("mlp")
    ]
    weights, record = np.array([0.2, 0.5, 0.3]), small_record(30, seed=3)
    ensemble = combine(sure, weights)
    found = simulate(ensemble, record, 5, samples=10)
    runs = np.stack([p.model.free_run(record.u, record.y[:5]) for p in sure])
    spread = np.sqrt(np.tensordot(weights, (runs - found.mean) ** 2, axes=1))
    np.testing.assert_allclose(found.epistemic_std, spread, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.std, spread, rtol=1e-3, atol=1e-4)
    assert spread.max() > 0.01


@pytest.mark.parametrize(
    ("weights", "samples", "counts"),
    [
        ([1.0], 7, [7]),
        ([0.2, 0.5, 0.3], 10, [2, 5, 3]),
        ([1.0, 1.0, 1.0], 10, None),
        ([0.7, 0.2, 0.1], 3, [2, 1, 0]),
        ([3.0, 1.0], 8, [6, 2]),
        ([1e-9, 1.0], 100, [0, 100]),
    ],
)
def test_allocation(weights: list[float], samples: int, counts: list[int] | None) -> None:
    found = np.bincount(allocate(np.array(weights), samples), minlength=len(weights))
    assert found.sum() == samples
    exact = np.array(weights) / np.sum(weights) * samples
    assert np.all(np.abs(found - exact) < 1)
    if counts is not None:
        assert found.tolist() == counts


def test_an_ensemble_is_the_best_models_in_even_shares() -> None:
    """One of each restart, each with its posterior, and bands as wide as free runs ask for."""
    batch, record = batch_of("mlp"), small_record()
    chosen = batch.ranking(3)
    assert len({(i.lam, i.restart) for i in chosen}) == 3
    for method in ("full", "diagonal"):
        ensemble = ensemble_of(batch, record, count=3, method=method)
        np.testing.assert_allclose(ensemble.weights, np.full(3, 1 / 3))
        for index, posterior in zip(chosen, ensemble.posteriors, strict=True):
            expected = fit_posterior(batch.model(index), record, method)
            np.testing.assert_array_equal(posterior.factor, expected.factor)
            for name, value in posterior.model.weights.items():
                np.testing.assert_array_equal(value, expected.model.weights[name])
        widened = widen_to_residuals(combine(ensemble.posteriors), (record,))
        np.testing.assert_array_equal(ensemble.inflation, widened.inflation)


@pytest.mark.parametrize("network", ["mlp", "lstm"])
@pytest.mark.parametrize("samples", SAMPLES, ids=["linearised", "sampled"])
def test_free_run_never_looks_at_later_outputs(network: str, samples: int | None) -> None:
    posteriors = posteriors_of(network) if network == "mlp" else posteriors_of(network)[:1]
    ensemble, record = combine(posteriors), small_record(40, seed=3)
    for n_init in (3, 9):
        runs = []
        for other in (0.0, 1.0, 1e12):
            y = record.y.copy()
            y[n_init:] += other
            runs.append(simulate(ensemble, replace(record, y=y), n_init, samples=samples))
        for run in runs[1:]:
            for name in ("mean", "std", "epistemic_std", "aleatoric_std", "quantiles"):
                np.testing.assert_array_equal(getattr(run, name), getattr(runs[0], name))
        np.testing.assert_array_equal(runs[0].mean[:n_init], record.y[:n_init])
        np.testing.assert_array_equal(runs[0].quantiles[0, :n_init], record.y[:n_init])
    y = record.y.copy()
    y[:3] += 1.0
    moved = simulate(ensemble, replace(record, y=y), 3, samples=samples)
    assert np.abs(moved.mean - runs[0].mean)[3:].max() > 1e-3  # but it does at the first ones


def test_later_outputs_of_a_prediction_do_not_change_earlier_ones() -> None:
    ensemble, record = combine(posteriors_of("mlp")), small_record(40, seed=3)
    y = record.y.copy()
    y[20:] += 5.0
    for samples in SAMPLES:
        a, b = (predict(ensemble, r, 3, samples=samples) for r in (record, replace(record, y=y)))
        np.testing.assert_array_equal(a.mean[:23], b.mean[:23])
        np.testing.assert_array_equal(a.quantiles[:, :20], b.quantiles[:, :20])
        assert np.abs(a.mean - b.mean)[23:].max() > 0.1


def test_short_members_start_earlier() -> None:
    """What the surviving lags need is enough, if the caller says so."""
    posterior = fit_posterior(
        without(batch_of("mlp").model(Index(0, 0, 1)), 0, [0]), small_record()
    )
    ensemble, record = combine([posterior]), small_record(40, seed=3)
    assert ensemble.terms.max_lag == 2
    found = simulate(ensemble, record, 2)
    expected = posterior.model.free_run(record.u, record.y[:2])
    np.testing.assert_allclose(found.mean, expected, rtol=1e-9)
    assert np.all(found.std[2:] > 0)


def test_inflation_widens_the_bands_about_the_mean() -> None:
    ensemble, record = combine(posteriors_of("mlp")), small_record(40, seed=3)
    wide = replace(ensemble, inflation=np.full((3, 1), 1.7))
    for samples in SAMPLES:
        a, b = (simulate(e, record, samples=samples) for e in (ensemble, wide))
        np.testing.assert_array_equal(a.mean, b.mean)
        for name in ("std", "epistemic_std", "aleatoric_std"):
            np.testing.assert_allclose(getattr(b, name), 1.7 * getattr(a, name), rtol=1e-12)
        expected = a.mean + 1.7 * (a.quantiles - a.mean)
        np.testing.assert_allclose(b.quantiles, expected, rtol=1e-9, atol=1e-9)


def test_messages_of_bad_calls() -> None:
    ensemble, record = combine(posteriors_of("mlp")), small_record(40, seed=3)
    assert ensemble.terms.max_lag == 3  # of an input; those before the record are inferred
    for n_init in (0, 1, 40, 41):
        with pytest.raises(DataError) as error:
            ensemble.simulate(record, n_init)
        assert str(error.value) == (
            f'record "small": n_init is {n_init}; it must be at least 2 and less than the 40 rows.'
        )
    for horizon in (0, -1):
        with pytest.raises(SettingsError) as wrong:
            ensemble.predict(record, horizon)
        assert str(wrong.value) == f"the horizon is {horizon}; it must be 1 or more."


def surprise(found: Banded, record: Record, start: int) -> float:
    """Minus the log density of the measurements, by a loop."""
    total = 0.0
    for t in range(start, len(record)):
        total -= norm.logpdf(record.y[t, 0], found.mean[t, 0], found.std[t, 0])
    return total


def test_fed_back_noise_fits_a_twin_with_equation_noise() -> None:
    twin = hairdryer(0)
    settings = SMALL.replace(input_lags=4, epochs=200, restarts=3)
    ensemble = ensemble_of(train(twin.estimation, settings), twin.estimation, count=2)
    fed, plain = (
        surprise(simulate(ensemble, twin.test, feedback=f), twin.test, 4) for f in FEEDBACKS
    )
    assert fed < plain - 10


def noisy_record(noise: Literal["equation", "output"], samples: int = 400) -> Record:
    rng = np.random.default_rng(1)
    u, e = rng.normal(size=samples), 0.3 * rng.normal(size=samples)
    y = np.zeros(samples)
    for t in range(1, samples):
        y[t] = 0.9 * y[t - 1] + 0.5 * u[t - 1] + (e[t] if noise == "equation" else 0.0)
    return Record(u=u, y=y + e if noise == "output" else y)


@pytest.mark.parametrize(("noise", "better"), [("equation", 0), ("output", 1)])
def test_feedback_of_the_true_linear_model(
    noise: Literal["equation", "output"], better: int
) -> None:
    """The same process; only where its noise enters differs, and so which band is likelier."""
    model = Model(
        network=MLP(2, (1,), 1, "identity", bias=False),
        terms=Terms(((0, 1),), ((0, 1),), ("u",), ("y",)),
        scaling=Scaling(*(np.full(1, v) for v in (0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0))),
        weights={"layer0.W": np.array([[0.5, 0.9]]), "layer1.W": np.array([[1.0]])},
        start=1,
        prior_widths={"layer0.W": np.ones((1, 2)), "layer1.W": np.ones((1, 1))},
    )
    record = noisy_record(noise)
    ensemble = combine([fit_posterior(model, record, "last-layer")])
    runs = [simulate(ensemble, record, feedback=f) for f in FEEDBACKS]
    values = [surprise(run, record, 1) for run in runs]
    assert values[better] < values[1 - better] - 10
    default = simulate(ensemble, record)
    np.testing.assert_array_equal(default.std, runs[0].std)
    assert np.abs(runs[0].std - runs[1].std).max() > 0.1
