"""Predictive distributions against closed forms, finite differences and brute force."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

from occamid import (
    Ensemble,
    Index,
    Model,
    Posterior,
    Record,
    combine,
    fit_posterior,
    train,
)
from occamid.bands.ensemble import LEVELS
from occamid.bands.mixture import WIDEST, Feedback
from occamid.bands.monte_carlo import _draw, _held
from occamid.bands.units import DivergedWarning
from occamid.data.twins import hairdryer, mass_spring_damper
from tests.support.banded import Banded, predict, simulate
from tests.support.linear_model import linear_model, linear_posterior, linear_record
from tests.support.small import SMALL, small_record
from tests.support.trained import batch_of, data_of

FEEDBACKS: tuple[Feedback, ...] = ("process", "none")
ROWS = 99  # of a record: three blocks of 32 after the window, all of one shape
SAMPLES = (None, 200)  # of the linearised band, and of a sampled one


@cache
def posterior_of(kind: str, restart: int = 0) -> Posterior:
    """The full posterior of a small trained model."""
    return fit_posterior(batch_of(kind).model(Index(0, restart, 1)), data_of(kind))


def record_for(kind: str, samples: int) -> Record:
    if kind == "two-outputs":
        return mass_spring_damper(0, samples=400).test[:samples]
    return small_record(samples, seed=5)


def certain(posterior: Posterior) -> Posterior:
    """The same model without any doubt or noise."""
    return replace(
        posterior, factor=0 * posterior.factor, noise_variance=0 * posterior.noise_variance
    )


def noiseless(posterior: Posterior) -> Posterior:
    return replace(posterior, noise_variance=0 * posterior.noise_variance)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in a short record."""
    monkeypatch.setattr("occamid.bands.monte_carlo.BLOCK", 32)


# --- no doubt, no noise ----------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n_init"), [("mlp", 20), ("lstm", 20), ("two-outputs", 3)])
def test_certain_free_run_is_the_models(kind: str, n_init: int, short_blocks: None) -> None:
    posterior = certain(posterior_of(kind))
    ensemble, record = combine([posterior]), record_for(kind, ROWS)
    expected = posterior.model.free_run(record.u, record.y[:n_init])
    scale = posterior.model.scaling.y_scale.max()
    for feedback in FEEDBACKS[: 1 if kind == "lstm" else 2]:
        sampled = simulate(ensemble, record, n_init, feedback=feedback, samples=2)
        for quantile in sampled.quantiles:
            np.testing.assert_allclose(quantile, expected, rtol=1e-4, atol=1e-4 * scale)
        np.testing.assert_allclose(sampled.mean, expected, rtol=1e-9, atol=1e-9 * scale)
        assert sampled.std.max() < 1e-4 * scale
        found = simulate(ensemble, record, n_init, feedback=feedback)
        np.testing.assert_allclose(found.mean, expected, rtol=1e-9, atol=1e-9 * scale)
        assert not found.std.any()


@pytest.mark.parametrize(
    ("kind", "horizon"),
    [("mlp", 1), ("mlp", 25), ("lstm", 5), ("two-outputs", 3)],
)
def test_certain_prediction_is_the_models(kind: str, horizon: int, short_blocks: None) -> None:
    """Over several blocks of rows, also where the overlap is longer than half a block."""
    posterior = certain(posterior_of(kind))
    ensemble, record = combine([posterior]), record_for(kind, ROWS)
    expected = posterior.model.predict(record, horizon).mean
    scale = posterior.model.scaling.y_scale.max()
    sampled = predict(ensemble, record, horizon, samples=2)
    for quantile in sampled.quantiles:
        np.testing.assert_allclose(quantile, expected, rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(sampled.mean, expected, rtol=1e-9, atol=1e-9 * scale)
    assert sampled.std.max() < 1e-4 * scale
    found = predict(ensemble, record, horizon)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-9, atol=1e-9 * scale)
    assert not found.std.any()


# --- noise in closed form --------------------------------------------------------------------


def ar_std(a: float, sigma: float, steps: np.ndarray) -> np.ndarray:
    """Of the k-step error of an autoregression, in the user's units of the linear model."""
    return 4.0 * sigma * np.sqrt((1 - a ** (2 * steps)) / (1 - a**2))


def test_fed_back_noise_of_an_autoregression() -> None:
    """``σ²(1 − a^2k)/(1 − a²)``; with feedback "none" σ² at every step."""
    a, sigma, n_init = 0.9, 0.2, 4
    ensemble, record = combine([linear_posterior(linear_model(a), sigma)]), linear_record()
    expected = ar_std(a, sigma, np.arange(1, len(record) - n_init + 1))
    found = simulate(ensemble, record, n_init, feedback="process")
    np.testing.assert_allclose(found.std[n_init:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.aleatoric_std[n_init:, 0], expected, rtol=1e-6)
    assert not found.std[:n_init].any()
    assert not found.epistemic_std.any()
    plain = simulate(ensemble, record, n_init, feedback="none")
    np.testing.assert_allclose(plain.std[n_init:, 0], 4.0 * sigma, rtol=1e-6)
    sampled = simulate(ensemble, record, n_init, feedback="process", samples=8000)
    np.testing.assert_allclose(sampled.std[n_init:, 0], expected, rtol=0.04)
    np.testing.assert_allclose(sampled.mean, found.mean, rtol=1e-9)
    assert sampled.epistemic_std.max() < 1e-4
    plain = simulate(ensemble, record, n_init, feedback="none", samples=8000)
    np.testing.assert_allclose(plain.std[n_init:, 0], 4.0 * sigma, rtol=0.04)


@pytest.mark.parametrize("horizon", [1, 7])
def test_noise_of_k_step_prediction(horizon: int) -> None:
    """Rows nearer to the start than the horizon are predicted fewer steps ahead."""
    a, sigma = -0.8, 0.2
    ensemble, record = combine([linear_posterior(linear_model(a), sigma)]), linear_record()
    steps = np.minimum(np.arange(1, len(record)), horizon)
    found = predict(ensemble, record, horizon, feedback="process")
    np.testing.assert_allclose(found.std[1:, 0], ar_std(a, sigma, steps), rtol=1e-6)
    sampled = predict(ensemble, record, horizon, feedback="process", samples=8000)
    np.testing.assert_allclose(sampled.std[1:, 0], ar_std(a, sigma, steps), rtol=0.04)
    plain = predict(ensemble, record, horizon, feedback="none")
    np.testing.assert_allclose(plain.std[1:, 0], 4.0 * sigma, rtol=1e-6)


def test_noise_of_consecutive_samples_is_one_process() -> None:
    """Its quantiles are Gaussian with that spread, row by row and not only on average."""
    a, sigma = 0.9, 0.2
    ensemble, record = combine([linear_posterior(linear_model(a), sigma)]), linear_record()
    options = {"feedback": "process", "samples": 20_000}
    found = simulate(ensemble, record, 1, **options)
    spread = ar_std(a, sigma, np.arange(1, len(record)))
    z = (found.quantiles[:, 1:, 0] - found.mean[1:, 0]) / spread
    np.testing.assert_allclose(z, norm.ppf(LEVELS)[:, None] + 0 * z, atol=0.08)


def test_blocks_of_rows_have_different_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same noise in every block the process would repeat itself and spread too far."""
    a, sigma = 0.98, 0.2
    monkeypatch.setattr("occamid.bands.monte_carlo.BLOCK", 5)
    ensemble, record = combine([linear_posterior(linear_model(a), sigma)]), linear_record()
    found = simulate(ensemble, record, 1, feedback="process", samples=8000)
    expected = ar_std(a, sigma, np.arange(1, len(record)))
    np.testing.assert_allclose(found.std[1:, 0], expected, rtol=0.05)


# --- doubt about the weights -----------------------------------------------------------------


def jacobian(model: Model, positions: np.ndarray, run: Callable[[Model], np.ndarray]) -> np.ndarray:
    """Central differences of ``run`` along each uncertain parameter, (N, ny, n)."""
    flat = np.concatenate([v.ravel() for v in model.weights.values()])

    def at(vector: np.ndarray) -> np.ndarray:
        return run(model.with_weights(as_weights(model, vector)))

    columns = []
    for place in positions:
        shift = np.zeros(flat.size)
        shift[place] = 1e-5
        columns.append((at(flat + shift) - at(flat - shift)) / 2e-5)
    return np.stack(columns, axis=-1)


def as_weights(model: Model, vector: np.ndarray) -> dict[str, np.ndarray]:
    weights, at = {}, 0
    for name, value in model.weights.items():
        weights[name] = np.asarray(vector[at : at + value.size]).reshape(value.shape)
        at += value.size
    return weights


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *(("mlp", "start"), ("mlp", "k-step"), ("lstm", "warm"), ("lstm", "k-step")),
        *(("two-outputs", "start"), ("two-outputs", "warm"), ("two-outputs", "k-step")),
    ],
)
def test_linearised_doubt_equals_finite_differences(kind: str, what: str) -> None:
    posterior = posterior_of(kind)
    model, record = posterior.model, record_for(kind, 40)
    ensemble = combine([posterior])
    if what == "k-step":
        found = predict(ensemble, record, 4)
        J = jacobian(model, posterior.positions, lambda m: m.predict(record, 4).mean)
        known = model.start
    else:
        known = model.start if what == "start" else 9
        found = simulate(ensemble, record, known)
        J = jacobian(model, posterior.positions, lambda m: m.free_run(record.u, record.y[:known]))
    expected = np.sqrt(np.sum((J @ posterior.factor) ** 2, axis=-1))
    assert found.mean.shape == record.y.shape
    np.testing.assert_allclose(found.epistemic_std[known:], expected[known:], rtol=1e-4)
    assert not found.epistemic_std[:known].any()


def test_diagonal_factor_equals_the_full_one_of_a_diagonal_matrix() -> None:
    record = record_for("mlp", 40)
    posterior = posterior_of("mlp")
    sd = np.sqrt(np.diag(posterior.covariance))
    thin, wide = (combine([replace(posterior, factor=f)]) for f in (sd, np.diag(sd)))
    for samples in SAMPLES:
        a, b = (simulate(e, record, 3, samples=samples) for e in (thin, wide))
        np.testing.assert_allclose(a.epistemic_std, b.epistemic_std, rtol=1e-4, atol=1e-6)
        assert a.epistemic_std.max() > 0.01


@pytest.mark.parametrize(
    ("kind", "feedback", "samples"),
    [
        *(("mlp", "process", None), ("mlp", "none", None), ("two-outputs", "process", None)),
        *(("mlp", "none", 2000), ("lstm", "process", 2000)),
    ],
)
def test_variances_add_up(kind: str, feedback: Feedback, samples: int | None) -> None:
    ensemble, record = combine([posterior_of(kind)]), record_for(kind, 40)
    scale = posterior_of(kind).model.scaling.y_scale
    noise = np.sqrt(posterior_of(kind).noise_variance) * scale
    for found in (
        simulate(ensemble, record, 5, samples=samples, feedback=feedback, seed=2),
        predict(ensemble, record, 3, samples=samples, feedback=feedback, seed=2),
    ):
        np.testing.assert_allclose(
            found.std**2, found.epistemic_std**2 + found.aleatoric_std**2, rtol=1e-6, atol=1e-12
        )
        assert found.std.shape == found.aleatoric_std.shape == record.y.shape
        assert found.quantiles.shape == (7, *record.y.shape)
        assert np.all(np.diff(found.quantiles[:, 5:], axis=0) > 0)
        assert found.diverged == 0.0
        if feedback == "none" and samples is None:
            expected = noise + np.zeros_like(found.std[5:])
            np.testing.assert_allclose(found.aleatoric_std[5:], expected, rtol=1e-9)
        else:
            assert np.all(found.aleatoric_std[5:] > 0.8 * noise)


def test_linearised_quantiles_are_gaussian() -> None:
    levels = (0.01, 0.5, 0.8)
    found = simulate(combine([posterior_of("mlp")]), record_for("mlp", 40), levels=levels)
    expected = norm(found.mean[3:], found.std[3:]).ppf(np.array(levels)[:, None, None])
    np.testing.assert_allclose(found.quantiles[:, 3:], expected, rtol=1e-9)
    assert found.levels == levels


def brute_force(ensemble: Ensemble, members: np.ndarray, record: Record, seed: int) -> np.ndarray:
    """Every sample through Model.free_run by itself, (S, N, ny)."""
    weights = _draw(
        jnp.asarray(ensemble.mixture.mean, jnp.float32),
        jnp.asarray(ensemble.mixture.factor, jnp.float32),
        jnp.asarray(members),
        jnp.arange(len(members)),
        jnp.asarray(seed),
    )
    model = ensemble.members.model(0)
    runs = []
    for vector in np.asarray(weights, dtype=np.float64):
        drawn = model.with_weights(as_weights(model, vector))
        runs.append(drawn.free_run(record.u, record.y[: model.start]))
    return np.stack(runs)


@pytest.mark.parametrize("kind", ["lstm", "two-outputs"])
def test_monte_carlo_equals_brute_force(kind: str) -> None:
    """Two members, one twice as heavy: spread and quantiles of thirty free runs."""
    parts = [noiseless(posterior_of(kind, k)) for k in range(2)]
    ensemble, record = combine(parts, np.array([1.0, 2.0])), record_for(kind, 40)
    found = simulate(ensemble, record, samples=30, seed=7)
    runs = brute_force(ensemble, np.array([0] * 10 + [1] * 20), record, seed=7)
    scale = parts[0].model.scaling.y_scale
    near = 1e-4 * float(scale.max())
    spread = np.sqrt(np.mean((runs - found.mean) ** 2, axis=0))
    np.testing.assert_allclose(found.epistemic_std, spread, rtol=1e-4, atol=near)
    np.testing.assert_allclose(found.std, spread, rtol=1e-4, atol=near)
    np.testing.assert_allclose(
        found.quantiles, np.quantile(runs, LEVELS, axis=0), rtol=1e-4, atol=near
    )
    assert found.epistemic_std[3:].min() > 10 * near


def test_draws_have_the_posteriors_moments() -> None:
    posterior = posterior_of("mlp")
    mixture = combine([posterior]).mixture
    draws = np.asarray(
        _draw(
            jnp.asarray(mixture.mean),
            jnp.asarray(mixture.factor),
            jnp.zeros(20_000, int),
            jnp.arange(20_000),
            jnp.asarray(0),
        )
    )[:, posterior.positions]
    sd = np.sqrt(np.diag(posterior.covariance))
    np.testing.assert_allclose((draws.mean(axis=0) - posterior.mean) / sd, 0.0, atol=0.04)
    whitened = np.cov(draws.T) / np.outer(sd, sd)
    np.testing.assert_allclose(whitened, posterior.covariance / np.outer(sd, sd), atol=0.05)


@pytest.mark.parametrize(
    ("kind", "what"),
    [("mlp", "3-step"), ("lstm", "free run")],
)
def test_chunks_do_not_change_the_result(kind: str, what: str, short_blocks: None) -> None:
    """A budget that draws the weights again for every chunk and block, and one that keeps all."""
    ensemble, record = combine([posterior_of(kind)]), record_for(kind, ROWS)
    found, few = [], 22.5 * ensemble.mixture.mean.shape[1] / 2**16  # for half of the samples
    for memory_mb in (few, 1024.0):
        options = {"samples": 44, "memory_mb": memory_mb, "seed": 3}
        if what == "free run":
            found.append(simulate(ensemble, record, 5, **options))
        else:
            horizon = int(what[0])
            found.append(predict(ensemble, record, horizon, **options))
    for name in ("mean", "std", "epistemic_std", "quantiles"):
        a, b = (getattr(f, name) for f in found)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert found[0].epistemic_std.max() > 0.01


def test_seeds_differ_and_repeat() -> None:
    ensemble, record = combine([posterior_of("mlp")]), record_for("mlp", 40)
    runs = [simulate(ensemble, record, samples=20, seed=seed).quantiles for seed in (1, 1, 2)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[0] - runs[2]).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "feedback", "horizon"),
    [
        ("mlp", "process", None),
        ("mlp", "none", 5),
        ("lstm", "none", None),
        ("lstm", "process", 3),
    ],
)
def test_blocks_do_not_change_the_moments(
    kind: str, feedback: Feedback, horizon: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble, record = combine([posterior_of(kind)]), record_for(kind, 40)

    def moments() -> Banded:
        if horizon is None:
            return simulate(ensemble, record, 5, feedback=feedback, samples=30)
        return predict(ensemble, record, horizon, feedback=feedback, samples=30)

    whole = moments()
    monkeypatch.setattr("occamid.bands.monte_carlo.BLOCK", 14)
    cut = moments()
    np.testing.assert_allclose(cut.epistemic_std, whole.epistemic_std, rtol=1e-4, atol=1e-5)
    assert whole.epistemic_std.max() > 0.01


def test_monte_carlo_converges_to_the_linearised_moments() -> None:
    """On a nearly linear twin the error falls with the root of the number of samples."""
    twin = hairdryer(0, samples=400)
    settings = SMALL.replace(activation="identity", input_lags=4, epochs=200)
    best = train(twin.estimation, settings).best
    ensemble = combine([fit_posterior(best, twin.estimation, "last-layer")])
    record = twin.test[:60]
    exact = simulate(ensemble, record, feedback="process")

    def error(samples: int, seed: int) -> float:
        found = simulate(ensemble, record, feedback="process", samples=samples, seed=seed)
        miss = [
            (found.quantiles[3] - exact.mean)[4:] / exact.std[4:],
            found.epistemic_std[4:] / exact.epistemic_std[4:] - 1,
            found.std[4:] / exact.std[4:] - 1,
        ]
        return float(np.mean(np.square(miss)))

    few = np.sqrt(np.mean([error(400, seed) for seed in range(8)]))
    many = np.sqrt(np.mean([error(10_000, seed) for seed in range(2)]))
    assert 3 < few / many < 8  # 5 of that many samples
    assert few < 0.1


# --- samples that diverge --------------------------------------------------------------------

MESSAGE = (
    "{} of the posterior diverged in free run, which widens the band; are the inputs within the "
    "range of the estimation data? If so, use a sparser model (a later cycle, a larger lam), the "
    "full posterior instead of the diagonal one, or an ensemble."
)


@pytest.mark.parametrize("block", [128, 9])
def test_diverged_samples_stand_at_the_edge(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doubtful pole: the share that leaves the range, and the moments of all by a loop."""
    monkeypatch.setattr("occamid.bands.monte_carlo.BLOCK", block)
    model = linear_model(0.9)
    posterior = replace(linear_posterior(model), factor=np.diag([0.01, 0.3]))
    ensemble, record = combine([posterior]), linear_record(100)
    with pytest.warns(DivergedWarning) as caught:
        found = simulate(ensemble, record, feedback="none", samples=150, seed=1)
    runs = brute_force(ensemble, np.zeros(150, int), record, seed=1)[:, :, 0]
    share = np.mean((np.abs((runs + 2.0) / 4.0) > WIDEST).any(axis=1))
    assert 0.1 < share < 0.6
    assert found.diverged == pytest.approx(share, abs=1e-12)
    assert [str(w.message) for w in caught] == [MESSAGE.format(f"{share:.1%}")]
    held = np.clip(runs, -2 - 4 * WIDEST, -2 + 4 * WIDEST)
    for t in range(1, len(record)):
        spread = np.sqrt(np.mean((held[:, t] - found.mean[t, 0]) ** 2))
        assert found.std[t, 0] == pytest.approx(spread, rel=2e-3, abs=0.05)
        expected = np.quantile(held[:, t], LEVELS)
        np.testing.assert_allclose(found.quantiles[:, t, 0], expected, rtol=2e-3, atol=0.05)
    own = model.free_run(record.u, record.y[:1])  # the centre is not theirs
    np.testing.assert_allclose(found.mean, own, rtol=1e-9)


def test_a_sample_that_comes_back_counts_again_but_is_told() -> None:
    """One blow takes some samples out of the range; all decay again."""
    posterior = linear_posterior(linear_model(0.5), spread=(0.2, 0.0))
    ensemble, record = combine([posterior]), linear_record(40)
    u = record.u.copy()
    u[19] = 0.3 + 1.5 * 20.0
    blow = replace(record, u=u)
    with pytest.warns(DivergedWarning):
        found = simulate(ensemble, blow, samples=60, seed=2)
    runs = brute_force(ensemble, np.zeros(60, int), blow, seed=2)[:, :, 0]
    outside = np.abs((runs + 2.0) / 4.0) > WIDEST
    assert 0.3 < outside[:, 20].mean() < 0.7
    assert not outside[:, 25:].any()
    assert found.diverged == pytest.approx(outside.any(axis=1).mean(), abs=1e-12)
    held = np.clip(runs, -2 - 4 * WIDEST, -2 + 4 * WIDEST)
    for t in (19, 20, 25, 39):
        spread = np.sqrt(np.mean((held[:, t] - found.mean[t, 0]) ** 2))
        assert found.std[t, 0] == pytest.approx(spread, rel=1e-3, abs=1e-3)
        expected = np.quantile(held[:, t], LEVELS)
        np.testing.assert_allclose(found.quantiles[:, t, 0], expected, rtol=1e-3, atol=1e-3)


def test_every_sample_may_diverge_beyond_what_numbers_hold() -> None:
    """All stand at the edge where they left, and the warning says all."""
    ensemble = combine([linear_posterior(linear_model(3.0), sigma=0.1)])
    with pytest.warns(DivergedWarning) as caught:
        found = simulate(ensemble, linear_record(200), feedback="process", samples=20)
    assert found.diverged == 1.0
    assert [str(w.message) for w in caught] == [MESSAGE.format("100.0%")]
    np.testing.assert_allclose(np.abs(found.quantiles[:, -1, 0] + 2), 4 * WIDEST)


def test_what_is_no_number_stands_at_both_edges() -> None:
    mixture = combine([linear_posterior(linear_model(), sigma=0.1)]).mixture
    runs = np.zeros((2, 4, 1), np.float32)
    runs[1, :3, 0] = np.nan, np.nan, 3.0
    gone = np.zeros(4, bool)
    far = WIDEST * mixture.spread[0]
    found = _held(mixture.centre + runs, mixture, gone)[:, :, 0] - mixture.centre
    np.testing.assert_allclose(found, [[0, 0, 0, 0], [far, -far, 3.0, 0]], atol=1e-6)
    assert gone.tolist() == [True, True, False, False]


def test_stable_samples_do_not_warn() -> None:
    posterior = linear_posterior(linear_model(0.5), sigma=0.1, spread=(0.01, 0.01))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = combine([posterior]).simulate(linear_record(), samples=200)
    assert found.diverged == 0.0


def test_linear_model_is_what_it_says() -> None:
    """The hand-made model of these tests against a filter."""
    record = linear_record()
    u, y0 = (record.u[:, 0] - 0.3) / 1.5, (record.y[0, 0] + 2.0) / 4.0
    drive = np.concatenate([[y0], 0.5 * u[:-1]])
    expected = 4.0 * lfilter([1.0], [1.0, -0.9], drive) - 2.0
    found = linear_model().free_run(record.u, record.y[:1])[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_double_precision_around_it_changes_nothing() -> None:
    """Monte Carlo is single, linearised is double, whatever the caller has switched on."""
    ensemble, record = combine([posterior_of("mlp")]), record_for("mlp", 40)
    for samples in SAMPLES:
        plain = simulate(ensemble, record, samples=samples)
        with jax.enable_x64(True):
            double = simulate(ensemble, record, samples=samples)
        np.testing.assert_allclose(plain.mean, double.mean, rtol=1e-6)
        np.testing.assert_allclose(plain.std, double.std, rtol=1e-5)
        np.testing.assert_allclose(plain.quantiles, double.quantiles, rtol=1e-5, atol=1e-5)
