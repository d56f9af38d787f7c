"""Linear models with many fading lags: dense Gaussians, explicit kernels, known systems."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from occamid import DataError, Record
from occamid.bands.combine import combine, load
from occamid.bands.posterior import faded_posterior
from occamid.networks.flat import flatten
from occamid.training.fading import BOUNDS, NOISE, Fading, _Sums, fit_fading

Array = np.ndarray
Rng = np.random.Generator
LENGTHS = (5, 3, 1)
X = np.array([-1.0, 1.0, 0.3, -0.4, -0.7])  # log s and logit λ of two channels, log σ²


def problem(rng: Rng, lengths: tuple[int, ...] = LENGTHS) -> tuple[_Sums, Array, Array]:
    """Sums of neighbouring regressors and an output."""
    sums, y = rng.normal(size=(40, sum(lengths))), rng.normal(size=40)
    return _Sums(sums.T @ sums, sums.T @ y, float(y @ y), len(y), lengths), sums, y


def kernel(log_s: float, logit: float, n: int) -> Array:
    """``s λ^max(i,k)``, entry by entry."""
    lam = 1 / (1 + np.exp(-logit))
    return np.array(
        [[np.exp(log_s) * lam ** max(i, k) for k in range(1, n + 1)] for i in range(1, n + 1)]
    )


def test_the_steps_of_the_prior_add_up_to_the_kernel(rng: Rng) -> None:
    sums, _, _ = problem(rng)
    U, V = np.triu(np.ones((5, 5))), np.diag(sums.variances(X)[:5])
    np.testing.assert_allclose(U @ V @ U.T, kernel(X[0], X[1], 5), rtol=1e-12)
    np.testing.assert_allclose(sums.coefficients(np.eye(9))[:5, :5], U)
    np.testing.assert_allclose(
        sums.coefficients(sums.variances(X))[:5], np.diag(kernel(X[0], X[1], 5))
    )


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:2]])  # with a constant and without
def test_the_energy_is_that_of_a_dense_gaussian(lengths: tuple[int, ...], rng: Rng) -> None:
    sums, Z, y = problem(rng, lengths)
    covariance = np.exp(X[-1]) * np.eye(len(y)) + (Z * sums.variances(X)) @ Z.T
    expected = -multivariate_normal(cov=covariance).logpdf(y)
    assert sums.energy(X)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:2]])
def test_its_gradient_is_that_of_finite_differences(lengths: tuple[int, ...], rng: Rng) -> None:
    sums, _, _ = problem(rng, lengths)
    step = 1e-6 * np.eye(len(X))
    found = [(sums.energy(X + d)[0] - sums.energy(X - d)[0]) / 2e-6 for d in step]
    np.testing.assert_allclose(sums.energy(X)[1], found, rtol=1e-6, atol=1e-7)


def response(rows: int, rng: Rng, noise: float, delays: tuple[int, int] = (1, 4)) -> Record:
    """Two inputs, two outputs that know nothing of each other, in odd units."""
    u, y = rng.normal(size=(rows, 2)), np.zeros((rows, 2))
    for t in range(1, rows):
        for k, pole in enumerate((0.8, 0.6)):
            y[t, k] = pole * y[t - 1, k] + sum(
                gain * u[t - d, c]
                for c, (gain, d) in enumerate(zip((1.0, -0.5), delays, strict=True))
                if t >= d
            )
    y += noise * rng.normal(size=y.shape)
    return Record(u=u * [1.0, 50.0] + [0.0, 300.0], y=y * [1e-3, 7.0] + [5.0, -40.0])


def test_the_energy_is_finite_wherever_it_is_looked_for(rng: Rng) -> None:
    """A multisine, slow against its samples: sums of its lags are all but dependent."""
    t = np.arange(2060)
    u = sum(np.cos(0.002 * np.pi * k * t + rng.uniform(0, 6.3)) for k in range(1, 100))
    lags = np.lib.stride_tricks.sliding_window_view(u / np.std(u), 60)
    Z = np.concatenate([np.cumsum(lags, axis=1), np.ones((len(lags), 1))], axis=1)
    y = rng.normal(size=len(Z))
    sums = _Sums(Z.T @ Z, Z.T @ y, float(y @ y), len(y), (60, 1))
    for corner in itertools.product(*BOUNDS, NOISE):
        energy, gradient = sums.energy(np.array(corner))
        assert np.isfinite(energy)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("lags", [Fading(12, 4, rows=10), Fading(40, 0, rows=10)])
def test_every_output_has_its_own_coefficients_noise_and_doubt(
    lags: Fading, zero: bool, rng: Rng
) -> None:
    record = response(500, rng, 0.2)
    if zero:
        record = replace(record, u=record.u - [0.0, 300.0], y=record.y - [5.0, -40.0])
    found = fit_fading([record], lags, zero)
    model, at = found.model, found.model.start
    scaled = model.scaling.apply(record)
    columns = [scaled.u[at - lag : len(record) - lag, c] for c, lag in model.terms.inputs]
    columns += [scaled.y[at - lag : len(record) - lag, c] for c, lag in model.terms.outputs]
    Z = np.stack([*columns, np.ones(len(record) - at)], axis=1)
    flat = flatten(model.network, model.weights)
    covariance = found.factor @ found.factor.T
    offset = 0
    for output in range(2):
        c = 0.0 if zero else model.weights["layer1.b"][output]
        W = np.append(model.weights["skip.W"][output], c)
        own = np.flatnonzero(W)
        count = len(own)
        places = slice(offset, offset + count)
        assert set(flat[found.positions[places]]) == set(W[own])
        miss = scaled.y[at:, output] - Z @ W
        assert np.var(miss) == pytest.approx(found.noise_variance[output], rel=0.15)
        assert (np.diag(covariance)[places] <= found.widths[places] * (1 + 1e-9)).all()
        offset += count
    assert offset == len(found.positions)
    assert 0 < found.effective < offset


@pytest.mark.parametrize("zero", [False, True])
def test_one_channel_against_gaussian_conditioning(zero: bool, rng: Rng) -> None:
    """At the hyperparameters that were found, the mean is that of explicit conditioning."""
    rows = 300
    u = rng.normal(size=rows)
    y = np.convolve(u, 0.7 ** np.arange(30))[:rows] + 0.3 * rng.normal(size=rows)
    record = Record(u=u, y=y)
    found = fit_fading([record], Fading(25, 0, rows=10), zero)
    scaled, terms = found.model.scaling.apply(record), found.model.terms
    at = found.model.start
    Z = np.stack([scaled.u[at - lag : rows - lag, 0] for _, lag in terms.inputs], axis=1)
    # the prior's variances are s λ^i: both follow from two of them
    constant = 0 if zero else 1  # the first of all
    widths = found.widths[np.argsort(found.positions)][constant:]
    by_lag = {lag: width for (_, lag), width in zip(terms.inputs, widths, strict=True)}
    first = min(by_lag)
    lam = by_lag[first + 1] / by_lag[first]
    age = np.array([lag - first + 1 for _, lag in terms.inputs])
    K = by_lag[first] / lam * lam ** np.maximum.outer(age, age)
    joint = found.noise_variance[0] * np.eye(len(Z)) + Z @ K @ Z.T + constant
    alone = np.linalg.solve(joint, scaled.y[at:, 0])
    np.testing.assert_allclose(found.model.weights["skip.W"][0], K @ Z.T @ alone, atol=1e-7)
    expected = K - K @ Z.T @ np.linalg.solve(joint, Z @ K)
    order = np.argsort(found.positions)
    variances = np.sum(found.factor**2, axis=1)[order][constant:]
    kept = variances / np.diag(expected)
    assert kept.max() <= 1 + 1e-9
    assert np.sum(variances) > 0.5 * np.trace(expected)  # what the data say nothing of is left out


def test_it_runs_free_as_the_process_does(rng: Rng) -> None:
    record = response(600, rng, 0.05)
    model = combine([faded_posterior(fit_fading([record[:400]], Fading(30, 10, rows=10)))])
    run = model.simulate(record[400:], model.start)
    error = run.rmse(record[400:]) / record.y.std(axis=0)
    assert (error < 0.06).all()


def test_a_delay_of_its_own_for_every_input(rng: Rng) -> None:
    found = fit_fading([response(500, rng, 0.1, delays=(2, 9))], Fading(10, 5, rows=10))
    lags = [min(lag for c, lag in found.model.terms.inputs if c == k) for k in range(2)]
    assert lags == [2, 9]


def test_a_record_without_noise_is_no_trouble(rng: Rng) -> None:
    found = fit_fading([response(400, rng, 0.0)], Fading(20, 10, rows=10))
    assert np.isfinite(found.factor).all()
    assert (np.log(found.noise_variance) >= NOISE[0] - 1e-9).all()


def test_an_input_that_moves_but_once_is_no_trouble(rng: Rng, tmp_path: Path) -> None:
    """Its lags are a constant nearly everywhere; the model can be saved all the same."""
    record = response(400, rng, 0.1)
    once = np.stack([record.u[:, 0], np.arange(400) < 3.0], axis=1)
    record = Record(u=once, y=record.y)
    model = combine([faded_posterior(fit_fading([record], Fading(20, 5, rows=10)))])
    model.save(tmp_path / "model.safetensors")
    std = load(tmp_path / "model.safetensors").simulate(record, model.start).std
    assert std is not None
    assert np.isfinite(std).all()


def test_pieces_too_short_for_the_lags_are_left_out(rng: Rng) -> None:
    record = response(400, rng, 0.1)
    alone = fit_fading([record], Fading(20, 5, rows=10))
    both = fit_fading([record, replace_name(record[:12])], Fading(20, 5, rows=10))
    assert both.model.terms.max_lag >= alone.model.terms.max_lag - 3
    with pytest.raises(DataError, match="too short"):
        fit_fading([record[:60]], Fading(20, 5, rows=100))


def replace_name(record: Record) -> Record:
    return Record(u=record.u, y=record.y, name="another")


def test_it_is_saved_and_loaded(rng: Rng, tmp_path: Path) -> None:
    """Its factor has fewer columns than rows."""
    record = response(400, rng, 0.1)
    faded = fit_fading([record], Fading(30, 10, rows=10))
    assert faded.factor.shape[1] < faded.factor.shape[0]
    model = combine([faded_posterior(faded)])
    path = tmp_path / "model.safetensors"
    model.save(path)
    again = load(path).simulate(record, 40)
    run = model.simulate(record, 40)
    np.testing.assert_array_equal(again.mean, run.mean)
    np.testing.assert_array_equal(again.std, run.std)
