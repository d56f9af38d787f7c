"""Conformal inflation, and bands no narrower than errors already seen."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from occamid import Record, combine, ensemble_of
from occamid.bands.calibration import conformal_inflation
from occamid.bands.ensemble import widen_to_residuals
from tests.support.banded import banded, simulate
from tests.support.gaussian import gaussian
from tests.support.linear_model import linear_model, linear_posterior
from tests.support.small import small_record
from tests.support.trained import batch_of


def test_conformal_factor_by_hand() -> None:
    """Ten scores of two outputs: the ninth smallest for a share of 0.8."""
    scores = np.array([[3.0, 1.0, 2.0, 5.0, 4.0, 9.0, 8.0, 7.0, 6.0, 10.0]]).T * [1.0, 0.5]
    factor = conformal_inflation(scores, 0.8)  # ceil(11 * 0.8) = 9
    np.testing.assert_allclose(factor, np.array([9.0, 4.5]) / 1.2815515655446004)
    np.testing.assert_allclose(
        conformal_inflation(scores), np.array([10.0, 5.0]) / 1.959963984540054
    )


@pytest.mark.parametrize(("count", "share"), [(19, 0.95), (50, 0.95), (9, 0.8), (33, 0.5)])
def test_conformal_coverage_of_exchangeable_scores(count: int, share: float) -> None:
    """Heavy tails, many repetitions: at least the nominal share, and the exact one on average."""
    rng = np.random.default_rng(0)
    trials = 20_000
    scores = np.abs(rng.standard_t(3, size=(count, trials)))
    edge = conformal_inflation(scores, share) * norm.ppf(0.5 + share / 2)
    fresh = np.abs(rng.standard_t(3, size=(40, trials)))
    coverage = float(np.mean(fresh <= edge))
    exact = np.ceil((count + 1) * share) / (count + 1)
    assert exact >= share
    assert coverage == pytest.approx(exact, abs=0.003)


def test_inflated_bands_hold_their_share() -> None:
    """Bands half as wide as they should be: the factor is two and the coverage nominal."""
    record, run = gaussian(20_000, stretch=0.5, n_init=10_000)
    found = banded(run)
    factor = conformal_inflation((np.abs(record.y - found.mean) / found.std)[:10_000])
    np.testing.assert_allclose(factor, 2.0, rtol=0.04)
    wide = replace(run, quantiles=found.mean + factor * (found.quantiles - found.mean))
    np.testing.assert_allclose(wide.coverage(record), 0.95, atol=0.01)


def test_ensembles_do_not_look_at_held_back_outputs() -> None:
    """Covariance, noise, evidence and inflation are those of the other rows."""
    record, held = small_record(), [slice(40, 70)]
    y = record.y.copy()
    y[40:70] += 3.0
    a, b = (
        ensemble_of(batch_of("mlp"), r, count=2, held_back=held)
        for r in (record, replace(record, y=y))
    )
    for p, q in zip(a.posteriors, b.posteriors, strict=True):
        np.testing.assert_array_equal(p.factor, q.factor)
        np.testing.assert_array_equal(p.noise_variance, q.noise_variance)
        assert p.log_evidence == q.log_evidence
    np.testing.assert_array_equal(a.inflation, b.inflation)
    whole = ensemble_of(batch_of("mlp"), record, count=2)
    assert a.posteriors[0].noise_variance != whole.posteriors[0].noise_variance


@pytest.mark.parametrize("held", [None, [slice(40, 70)]], ids=str)
@pytest.mark.parametrize("slow", [0.0, 1.0])
def test_bands_are_no_narrower_than_errors_already_seen(
    held: list[slice] | None, slow: float
) -> None:
    """Root mean square of the standardised free-run errors on the estimation data, at least 1."""
    model, rng = linear_model(0.9), np.random.default_rng(0)
    u, y = rng.normal(size=100), np.zeros(100)
    for t in range(1, 100):  # in the model's scaled units
        e = 0.1 * (slow * np.sin(t / 15) + (1 - slow) * rng.normal())
        y[t] = 0.9 * y[t - 1] + 0.5 * (u[t - 1] - 0.3) / 1.5 + e
    record = Record(u=u, y=4 * y - 2)
    ensemble = combine([linear_posterior(model, sigma=0.1 if slow == 0 else 0.07)])
    own = simulate(ensemble, record)
    squares = [
        ((record.y[t, 0] - own.mean[t, 0]) / own.std[t, 0]) ** 2
        for t in range(1, 100)
        if not (held and t in range(40, 70))
    ]
    seen = float(np.sqrt(np.mean(squares)))
    assert (seen > 1.5) == (slow > 0)
    found = widen_to_residuals(ensemble, (record,), held).inflation
    np.testing.assert_allclose(found, [max(1.0, seen)], rtol=1e-9)
