"""The width of bands from held-back errors, against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm, t

from occamid import Record, combine
from occamid.bands.calibration import HORIZONS, MARGIN, NARROWEST, WIDEST, held_back_inflation
from occamid.bands.combine import widen_to_residuals
from occamid.training.criterion import independent
from tests.support.banded import banded, predict, simulate
from tests.support.gaussian import gaussian
from tests.support.linear_model import linear_model, linear_posterior, linear_record

Array = np.ndarray


def coloured(rng: np.random.Generator, phi: float, rows: int) -> Array:
    """An AR(1) of unit variance."""
    noise = np.sqrt(1 - phi**2) * rng.standard_normal(rows + 200)
    return lfilter([1.0], [1.0, -phi], noise)[200:]


def test_independent_scores_give_their_spread(rng: np.random.Generator) -> None:
    """Each output its own: 1 where the bands are right, 2 where they are half as wide."""
    scores = rng.standard_normal((20_000, 3)) * [1.0, 2.0, 0.5]
    found = held_back_inflation([scores])
    np.testing.assert_allclose(found, MARGIN * np.array([1.0, 2.0, 0.5]), rtol=0.02)
    split = held_back_inflation([scores[:7000], scores[7000:]])
    np.testing.assert_allclose(split, held_back_inflation([scores]), rtol=0.01)


def test_heavy_tails_count_by_quantile_and_mean_square(rng: np.random.Generator) -> None:
    """Student's t with five degrees of freedom has a variance of 5/3."""
    scores = rng.standard_t(5, size=(40_000, 1))
    quantile = t.ppf(0.975, 5) / norm.ppf(0.975)
    expected = MARGIN * np.sqrt(quantile * np.sqrt(5 / 3))
    np.testing.assert_allclose(held_back_inflation([scores]), expected, rtol=0.02)


@pytest.mark.parametrize("count", [25, 60, 200])
def test_a_fresh_score_is_inside_with_the_promised_share(count: int) -> None:
    """Many small calibrations: 95 % of new scores are inside on average, and not many more."""
    rng = np.random.default_rng(0)
    trials = 1500
    scores = rng.standard_t(4, size=(count, trials))
    edge = held_back_inflation([scores]) * norm.ppf(0.975)
    coverage = float(np.mean(np.abs(rng.standard_t(4, size=(200, trials))) <= edge))
    assert 0.94 <= coverage <= 0.97


def test_inflated_bands_hold_their_share() -> None:
    """Bands half as wide as they should be: the factor is two and the coverage nominal."""
    record, run = gaussian(20_000, stretch=0.5, n_init=10_000)
    found = banded(run)
    factor = held_back_inflation([((record.y - found.mean) / found.std)[:10_000]])
    np.testing.assert_allclose(factor, 2.0 * MARGIN, rtol=0.04)
    factor = factor / MARGIN
    wide = replace(run, quantiles=found.mean + factor * (found.quantiles - found.mean))
    np.testing.assert_allclose(wide.coverage(record), 0.95, atol=0.01)


@pytest.mark.parametrize("count", [2, 5, 12])
def test_few_scores_take_students_factor(count: int) -> None:
    """White scores of alternating size: their number is theirs, so the factor is exact."""
    size = np.where(np.arange(count) % 2, 1.5, 0.5)
    n = independent([size])
    wide = t.ppf(0.975, max(n, 1.0)) / norm.ppf(0.975)
    edge = np.quantile(size, 0.95) / norm.ppf(0.975)
    expected = MARGIN * wide * np.sqrt(np.sqrt(np.mean(size**2)) * edge)
    np.testing.assert_allclose(held_back_inflation([size[:, None]]), expected)
    assert wide > 1.1


def test_a_few_outliers_count_little(rng: np.random.Generator) -> None:
    """One row in a hundred that ran away does not make all bands wide."""
    scores = rng.standard_normal((2000, 1))
    found = held_back_inflation([scores])
    scores[::100] = np.inf
    assert found < held_back_inflation([scores]) < 1.15 * found


def test_a_long_slow_error_counts_as_a_few(rng: np.random.Generator) -> None:
    """400 rows of one slow wave say little: wider than 400 independent ones of the same size."""
    slow = np.abs(coloured(rng, 0.99, 400))[:, None]
    mixed = rng.permutation(slow)
    assert independent([slow[:, 0]]) < 20 < independent([mixed[:, 0]])
    assert held_back_inflation([slow])[0] > 1.2 * np.sqrt(np.mean(slow**2))
    assert held_back_inflation([slow])[0] > held_back_inflation([mixed])[0]


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_effective_number_of_a_coloured_score(phi: float, rng: np.random.Generator) -> None:
    """For a Gaussian AR(1) the sizes have the autocorrelation of |x| of a Gaussian pair:

    ``corr(|x|, |y|) = (2/π (√(1 − ρ²) + ρ asin ρ) − 2/π) / (1 − 2/π)``.
    """
    rows = 40_000
    rho = phi ** np.arange(1, 400)
    pair = 2 / np.pi * (np.sqrt(1 - rho**2) + rho * np.arcsin(rho))
    sizes = (pair - 2 / np.pi) / (1 - 2 / np.pi)
    expected = rows / (1 + 2 * sizes.sum())
    runs = np.split(coloured(rng, phi, rows), [10_000, 25_000])
    assert independent(runs) == pytest.approx(expected, rel=0.12)


def test_the_effective_number_by_hand() -> None:
    """Sizes 1, 1, 0, 0: the sum stops where the correlation is no longer positive."""
    run = np.array([1.0, -1.0, 0.0, 0.0])  # centred sizes ½, ½, −½, −½: ρ₁ = ¼, ρ₂ = −½
    assert independent([run]) == pytest.approx(4 / 1.5)
    assert independent([run, run]) == pytest.approx(8 / 1.5)  # runs are not joined
    assert independent([np.ones(7)]) == 7.0


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1e-9, NARROWEST), (1e9, WIDEST), (np.inf, WIDEST), (-np.inf, WIDEST), (np.nan, WIDEST)],
)
def test_factors_stay_within_bounds_and_what_is_not_finite_widens(
    size: float, expected: float
) -> None:
    scores = (1.0 + np.arange(100) % 5)[:, None] * size
    assert held_back_inflation([scores]) == pytest.approx([expected])
    some = np.where(np.arange(100)[:, None] % 10, 1.0, scores)  # a tenth of them
    assert held_back_inflation([some])[0] == pytest.approx(
        WIDEST if expected == WIDEST else 0.74, rel=0.01
    )


# --- horizons -----------------------------------------------------------------------------------


def test_inflation_is_interpolated_between_horizons() -> None:
    """Linear in the logarithms of both; constant beyond the last, which is the free run."""
    model = combine([linear_posterior(linear_model())])
    assert HORIZONS == (1, 10, 100)
    model = replace(model, inflation=np.array([[1.0], [4.0], [2.0]]))
    for horizon, expected in [
        *((1, 1.0), (10, 4.0), (100, 2.0), (1000, 2.0)),
        *((2, 4.0 ** np.log10(2)), (20, 4.0 * 0.5 ** np.log10(2))),
    ]:
        np.testing.assert_allclose(model.inflation_at(np.array([horizon])), [[expected]])


@pytest.mark.parametrize("samples", [None, 40])
def test_every_horizon_is_widened_by_its_own_factor(samples: int | None) -> None:
    plain = combine([linear_posterior(linear_model(), 0.1, (0.01, 0.02))])
    model = replace(plain, inflation=np.array([[3.0], [5.0], [7.0]]))
    record = linear_record(40)
    for horizon, factor in ((1, 3.0), (10, 5.0)):
        a, b = (predict(m, record, horizon, samples=samples) for m in (plain, model))
        np.testing.assert_array_equal(a.mean, b.mean)
        np.testing.assert_allclose(b.std, factor * a.std, rtol=1e-9)
        np.testing.assert_allclose(
            b.quantiles - b.mean, factor * (a.quantiles - a.mean), rtol=1e-9, atol=1e-9
        )
    a, b = (simulate(m, record, samples=samples) for m in (plain, model))
    np.testing.assert_allclose(b.std, 7.0 * a.std, rtol=1e-9)


# --- without held-back data ---------------------------------------------------------------------


@pytest.mark.parametrize("slow", [0.0, 1.0])
def test_bands_are_no_narrower_than_errors_already_seen(slow: float) -> None:
    """Root mean square of the standardised free-run errors on the estimation data, at least 1."""
    model, rng = linear_model(0.9), np.random.default_rng(0)
    u, y = rng.normal(size=100), np.zeros(100)
    for k in range(1, 100):  # in the model's scaled units
        e = 0.1 * (slow * np.sin(k / 15) + (1 - slow) * rng.normal())
        y[k] = 0.9 * y[k - 1] + 0.5 * (u[k - 1] - 0.3) / 1.5 + e
    record = Record(u=u, y=4 * y - 2)
    ensemble = combine([linear_posterior(model, sigma=0.1 if slow == 0 else 0.07)])
    own = simulate(ensemble, record)
    seen = float(np.sqrt(np.mean(((record.y - own.mean)[1:] / own.std[1:]) ** 2)))
    assert (seen > 1.5) == (slow > 0)
    found = widen_to_residuals(ensemble, (record,)).inflation
    np.testing.assert_allclose(found, np.full((len(HORIZONS), 1), max(1.0, seen)), rtol=1e-9)
