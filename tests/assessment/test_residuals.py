"""Residual analysis against loops written out by hand, closed forms and the tests' own levels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import chi2, jarque_bera

from occamid.assessment.metrics import fit_percent, rmse
from occamid.assessment.residuals import (
    ResidualAnalysis,
    analyse,
    autocorrelation,
    criteria,
    cross_correlation,
    histogram,
    independence,
    ljung_box,
)
from occamid.data.record import Record
from occamid.errors import DataError

Array = np.ndarray
Rng = np.random.Generator


def parts(rng: Rng, lengths: tuple[int, ...], width: int) -> list[Array]:
    return [rng.normal(size=(n, width)) for n in lengths]


def residuals_of(e: Array, u: Array, **options: float) -> ResidualAnalysis:
    """The analysis of given residuals: the model predicts zero."""
    record = Record(u=u, y=e)
    settings: dict[str, float] = {"skip": 0, "parameters": 0} | options
    return analyse([record], [np.zeros_like(record.y)], **settings)  # type: ignore[arg-type]


def test_autocorrelation_is_the_loop_over_pairs_inside_each_record(rng: Rng) -> None:
    e = parts(rng, (30, 9, 4), 2)
    found = autocorrelation(e, 6)
    for k in range(2):
        power = sum(v**2 for part in e for v in part[:, k])
        for lag in range(7):
            total = 0.0
            for part in e:
                for t in range(lag, len(part)):
                    total += part[t, k] * part[t - lag, k]
            assert found[k, lag] == pytest.approx(total / power, abs=1e-14)
    np.testing.assert_allclose(found[:, 0], 1.0)


def test_cross_correlation_is_the_loop_over_pairs_inside_each_record(rng: Rng) -> None:
    e, u = parts(rng, (25, 8), 2), parts(rng, (25, 8), 3)
    found = cross_correlation(e, u, 5)
    assert found.shape == (2, 3, 11)
    for k, j, lag in np.ndindex(2, 3, 11):
        total, shift = 0.0, lag - 5
        for a, b in zip(e, u, strict=True):
            for t in range(len(a)):
                if 0 <= t - shift < len(b):
                    total += a[t, k] * b[t - shift, j]
        power = np.sum(np.concatenate(e)[:, k] ** 2) * np.sum(np.concatenate(u)[:, j] ** 2)
        assert found[k, j, lag] == pytest.approx(total / np.sqrt(power), abs=1e-14)


def test_ljung_box_is_the_textbook_formula(rng: Rng) -> None:
    e = rng.normal(size=80)
    found = ljung_box([e], 7)
    statistic = 0.0
    for k in range(1, 8):
        r = np.sum(e[k:] * e[:-k]) / np.sum(e**2)
        statistic += 80 * 82 * r**2 / (80 - k)
    assert found.statistic == pytest.approx(statistic)
    assert found.freedom == 7
    assert found.p_value == pytest.approx(1 - chi2.cdf(statistic, 7))
    assert found.passed == (found.p_value >= 0.01)


def test_independence_of_white_residuals_is_their_power_along_past_inputs(rng: Rng) -> None:
    """With R_e(k) = 0 beyond lag 0 the statistic is ``N R²`` of a regression on past inputs."""
    n, lags = 4000, 4
    e, u = rng.normal(size=n), lfilter([1.0], [1.0, -0.8], rng.normal(size=n))
    Phi = np.stack([u[lags - k : n - k] for k in range(lags + 1)], axis=1)
    coefficients, *_ = np.linalg.lstsq(Phi, e[lags:], rcond=None)
    expected = np.sum((Phi @ coefficients) ** 2) / np.mean(e**2)
    found = independence([e], [u], lags)
    assert found.freedom == lags + 1
    assert found.statistic == pytest.approx(expected, rel=0.1)


def test_a_signal_of_few_frequencies_has_few_directions() -> None:
    t = np.arange(500)
    u = np.sin(0.1 * t) + np.cos(0.37 * t)
    found = independence([np.sin(0.02 * t)], [u], 25)
    assert found.freedom == 4  # two for each frequency


def white(rng: Rng, n: int) -> Array:
    return rng.normal(size=n)


def coloured(rng: Rng, n: int) -> Array:
    return lfilter([1.0], [1.0, -0.7], rng.normal(size=n))


@pytest.mark.parametrize("noise", [white, coloured])
def test_tests_and_bounds_hold_their_level(noise: Callable[[Rng, int], Array], rng: Rng) -> None:
    """Of 120 records with an input of long memory about 1 % fail where they should not."""
    found = []
    for _ in range(120):
        u = lfilter([1.0], [1.0, -0.9], rng.normal(size=300))
        a = residuals_of(noise(rng, 300), u)
        outside = np.mean(np.abs(a.cross) > a.cross_bound[..., None])
        found.append((a.whiteness[0].passed, a.independence[0][0].passed, outside))
    whiteness, independent, outside = np.mean(found, axis=0)
    assert independent >= 0.97
    assert outside == pytest.approx(0.01, abs=0.008)
    assert whiteness >= 0.97 if noise is white else whiteness == 0.0


def test_one_in_a_hundred_autocorrelations_of_white_noise_is_outside(rng: Rng) -> None:
    """10,000 correlations: the share has a standard deviation of 0.001."""
    e = rng.normal(size=(2000, 400))
    bound = residuals_of(e[:, 0], e[:, 1]).auto_bound
    assert bound == pytest.approx(2.5758 / np.sqrt(2000), rel=1e-4)
    outside = np.mean(np.abs(autocorrelation([e], 25)[:, 1:]) > bound)
    assert outside == pytest.approx(0.01, abs=0.003)


def test_an_input_left_out_is_found_at_its_lag_and_nowhere_else(rng: Rng) -> None:
    u = rng.normal(size=(600, 2))
    e = rng.normal(size=600)
    e[4:] += 0.5 * u[:-4, 1]  # the model does not know that the second input acts after 4 samples
    a = residuals_of(e, u)
    assert a.whiteness[0].passed
    assert [test.passed for test in a.independence[0]] == [True, False]
    largest = np.argmax(np.abs(a.cross[0, 1]))
    assert a.cross_lags[largest] == 4
    assert abs(a.cross[0, 1, largest]) > a.cross_bound[0, 1]


def test_feedback_shows_at_negative_lags_and_does_not_fail_the_model(rng: Rng) -> None:
    e = rng.normal(size=800)
    u = rng.normal(size=800)
    u[2:] -= 0.6 * e[:-2]  # a controller reacts two samples later
    a = residuals_of(e, u)
    assert a.cross_lags[np.argmax(np.abs(a.cross[0, 0]))] == -2
    assert a.independence[0][0].passed


def test_errors_and_criteria_are_those_of_the_rows_after_the_first(rng: Rng) -> None:
    records = [
        Record(u=rng.normal(size=(n, 1)), y=rng.normal(size=(n, 2)), sampling_time=0.1)
        for n in (60, 45)
    ]
    one_step = [r.y + 0.1 * rng.normal(size=r.y.shape) for r in records]
    free_run = [r.y + 0.3 * rng.normal(size=r.y.shape) for r in records]
    a = analyse(records, one_step, free_run, skip=5, parameters=7)
    y, p, s = (
        np.concatenate([x[5:] for x in xs]) for xs in ([r.y for r in records], one_step, free_run)
    )
    assert a.samples == len(y) == 95
    assert a.free_run is not None
    np.testing.assert_allclose(a.one_step.rmse, rmse(y, p))
    np.testing.assert_allclose(a.one_step.fit, fit_percent(y, p))
    np.testing.assert_allclose(a.free_run.rmse, rmse(y, s))
    np.testing.assert_allclose(a.free_run.fit, fit_percent(y, s))
    V = sum(np.outer(e, e) for e in y - p) / 95
    assert a.aic == pytest.approx(np.log(np.linalg.det(V)) + 2 * 7 / 95)
    assert a.fpe == pytest.approx(np.linalg.det(V) * (1 + 7 / 95) / (1 - 7 / 95))
    assert len(a.whiteness) == len(a.histograms) == len(a.independence) == 2
    assert a.lags.tolist() == list(range(26))[: 55 // 4 + 1]


def test_more_parameters_than_samples_have_no_finite_prediction_error(rng: Rng) -> None:
    aic, fpe = criteria(rng.normal(size=(20, 1)), 25.0)
    assert np.isfinite(aic)
    assert fpe == np.inf


def test_histogram_is_a_density_with_the_moments_of_the_residuals(rng: Rng) -> None:
    e = rng.normal(3.0, 0.2, size=900)
    h = histogram(e)
    assert np.sum(h.density * np.diff(h.edges)) == pytest.approx(1.0)
    assert (h.mean, h.std) == (pytest.approx(np.mean(e)), pytest.approx(np.std(e)))
    oracle = jarque_bera(e)
    assert h.normality.statistic == pytest.approx(oracle.statistic)
    assert h.normality.p_value == pytest.approx(oracle.pvalue)
    assert h.normality.passed
    assert not histogram(rng.exponential(size=900)).normality.passed


def test_means_do_not_matter(rng: Rng) -> None:
    e, u = rng.normal(size=200), rng.normal(size=200)
    a, b = residuals_of(e, u), residuals_of(e + 5.0, u - 40.0)
    np.testing.assert_allclose(a.auto, b.auto, atol=1e-12)
    np.testing.assert_allclose(a.cross, b.cross, atol=1e-12)
    assert b.histograms[0].mean == pytest.approx(np.mean(e) + 5.0)


def test_signals_that_never_move_are_not_an_error(rng: Rng) -> None:
    a = residuals_of(rng.normal(size=100), np.full(100, 0.1))
    assert a.independence[0][0].passed
    np.testing.assert_array_equal(a.cross, 0.0)
    with np.errstate(all="raise"):
        perfect = independence([np.zeros(100)], [rng.normal(size=100)], 5)
    assert perfect.statistic == 0.0
    assert ljung_box([np.zeros(100)], 5).passed


def test_what_cannot_be_analysed_is_refused() -> None:
    record = Record(u=np.arange(10.0), y=np.arange(10.0), name="short")
    with pytest.raises(DataError, match=r"has 5 rows after the first 5; .* at least 8"):
        analyse([record], [record.y], skip=5, parameters=0)
    with pytest.raises(DataError, match="not finite"):
        analyse([record], [record.y * np.nan], skip=0, parameters=0)
