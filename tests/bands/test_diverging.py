"""Members that leave the range of the data: they widen the band, are told, and never narrow it."""

from __future__ import annotations

import numpy as np
import pytest

from occamid import Ensemble, combine
from occamid.bands.linearised import _mixed
from occamid.bands.mixture import WIDEST, Mixture
from occamid.bands.units import DivergedWarning
from tests.support.banded import simulate
from tests.support.linear_model import linear_model, linear_posterior, linear_record

Array = np.ndarray
LEVELS = (0.025, 0.5, 0.975)
BULK = (0.3, 0.32, 0.31, 0.29)  # y[t-1]'s weight in members that agree


def mixed(
    runs: list[float],
    epistemic: list[float],
    aleatoric: list[float],
    centre: float = 0.0,
    spread: float = 1.0,
) -> tuple[float, float, float]:
    """Centre, standard deviation and diverged share of one sample of equal members."""
    one, two, three = (
        np.array(v, dtype=float)[:, None, None] for v in (runs, epistemic, aleatoric)
    )
    share = np.full(len(runs), 1 / len(runs))
    empty = np.zeros((len(runs), 0))
    mixture = Mixture(empty, empty, empty, share, np.array([centre]), np.array([spread]))
    run = _mixed(one, two, three, mixture, LEVELS)
    assert run.std is not None
    return float(run.mean[0, 0]), float(run.std[0, 0]), run.diverged


@pytest.mark.parametrize("wild", [40.0, 1e9, -1e300, np.inf, -np.inf, np.nan])
def test_a_wild_run_stands_at_the_edge(wild: float) -> None:
    """Around the median 1, at 10 standard deviations: (0 + 0 + 1 + 81)/4 and the noise."""
    sign = -1 if wild < 0 else 1
    found = mixed([1.0, 1.0, 1.0, wild], [0.0] * 4, [0.5] * 4)
    expected = np.sqrt((WIDEST * sign - 1) ** 2 / 4 + 0.5)
    assert found == pytest.approx((1.0, expected, 0.25))


@pytest.mark.parametrize("wide", [150.0, 1e12, np.inf, np.nan])
def test_a_wide_member_is_as_wide_as_the_range(wide: float) -> None:
    for epistemic, aleatoric in ((wide, 0.5), (0.25, wide)):
        mean, std, gone = mixed([0.0] * 4, [0.25] * 3 + [epistemic], [0.5] * 3 + [aleatoric])
        assert (mean, gone) == (0.0, 0.25)
        # the geometric mean of three members' 0.75 and one as wide as the range, not less
        assert std >= (0.75**3 * WIDEST**2) ** (1 / 8) - 1e-12
        assert std <= (0.75**3 * 2 * WIDEST**2) ** (1 / 8)


def test_a_variance_that_rounding_made_negative_is_no_variance() -> None:
    """Beyond what doubles resolve, where the noise of an unstable model has grown for long."""
    assert mixed([0.0], [0.25], [-1e9]) == pytest.approx((0.0, np.sqrt(2) * WIDEST, 1.0))


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e5])
def test_the_range_is_in_standard_deviations_of_the_output(unit: float) -> None:
    """In any unit and with any offset."""
    reference = mixed([1.0, 1.2, 0.9, 40.0], [0.1] * 4, [0.5] * 4)
    offset = 30 * unit
    runs = [offset + unit * v for v in (1.0, 1.2, 0.9, 40.0)]
    found = mixed(runs, [0.1 * unit**2] * 4, [0.5 * unit**2] * 4, offset, unit)
    assert ((found[0] - offset) / unit, found[1] / unit, found[2]) == pytest.approx(reference)


@pytest.mark.parametrize("gain", [1.2, 2.0, 30.0])
@pytest.mark.filterwarnings("ignore::occamid.bands.units.DivergedWarning")
def test_one_wild_member_never_narrows_the_band(gain: float) -> None:
    """``y[t] = gain y[t-1]`` beside members that agree; it was left out where it was worst."""
    record = linear_record(60)
    calm = simulate(_ensemble(*BULK), record)
    found = simulate(_ensemble(*BULK, gain), record)
    assert found.diverged == pytest.approx(0.2)
    assert np.all(np.isfinite(found.quantiles))
    late = slice(30, None)
    assert np.all(found.std[late] > 3 * calm.std[late])
    # wider the farther the member goes, and no wider than the range
    assert np.all(found.std[1:] >= 0.85 * calm.std[1:])
    assert found.std.max() <= 4.0 * 2 * WIDEST  # 4 is the output's standard deviation
    np.testing.assert_allclose(found.mean[late], calm.mean[late], atol=0.5)  # the median holds


def test_what_diverges_is_told() -> None:
    record = linear_record(60)
    with pytest.warns(DivergedWarning, match=r"20\.0% of the posterior diverged"):
        _ensemble(*BULK, 2.0).simulate(record)


def _ensemble(*gains: float) -> Ensemble:
    return combine([linear_posterior(linear_model(a), 0.1, (0.01, 0.01)) for a in gains])
