"""Runs: errors and intervals, and scores of bands against loops, integrals and the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from occamid import DataError, Record, Run, SettingsError
from occamid.assessment.metrics import fit_percent, rmse
from occamid.assessment.scores import SHARES
from occamid.bands.ensemble import LEVELS
from tests.support.banded import banded
from tests.support.gaussian import gaussian


def test_scores_against_loops_and_integrals() -> None:
    n_init = 4
    record, run = gaussian(30, stretch=1.4, n_init=n_init)
    marks, found = run.scores(record), banded(run)
    for k in range(2):
        density, crps, width = [], [], []
        inside: dict[float, list[bool]] = {share: [] for share in SHARES}
        for t in range(n_init, len(record)):
            m, s, value = found.mean[t, k], found.std[t, k], record.y[t, k]
            density.append(-norm.logpdf(value, m, s))
            below = quad(lambda x, m=m, s=s: norm.cdf(x, m, s) ** 2, m - 12 * s, value)[0]
            above = quad(lambda x, m=m, s=s: norm.sf(x, m, s) ** 2, value, m + 12 * s)[0]
            crps.append(below + above)
            width.append(2 * 1.959963984540054 * s)
            for share in SHARES:
                low, high = norm.interval(share, m, s)
                inside[share].append(bool(low <= value <= high))
        assert marks.log_density[k] == pytest.approx(np.mean(density), rel=1e-9)
        assert marks.crps[k] == pytest.approx(np.mean(crps), rel=1e-6)
        assert marks.width[k] == pytest.approx(np.mean(width), rel=1e-9)
        for share in SHARES:
            assert marks.coverage[share][k] == pytest.approx(np.mean(inside[share]))
            assert run.coverage(record, share)[k] == marks.coverage[share][k]
    assert set(marks.coverage) == {0.5, 0.8, 0.95}
    np.testing.assert_array_equal(run.coverage(record), marks.coverage[0.95])


def test_scores_of_the_true_distribution_are_nominal_and_best() -> None:
    record, run = gaussian(20_000)
    marks, found = run.scores(record), banded(run)
    for share, coverage in marks.coverage.items():
        np.testing.assert_allclose(coverage, share, atol=0.015)
    entropy = np.mean(norm.entropy(found.mean, found.std), axis=0)
    np.testing.assert_allclose(marks.log_density, entropy, atol=0.02)
    np.testing.assert_allclose(marks.crps, found.std.mean(axis=0) / np.sqrt(np.pi), rtol=0.02)
    for stretch in (0.7, 1.4):
        other = gaussian(20_000, stretch=stretch)[1].scores(record)
        assert np.all(other.log_density > marks.log_density)
        assert np.all(other.crps > marks.crps)


def test_reliability_counts_measurements_below() -> None:
    record, run = gaussian(25, levels=(0.1, 0.4, 0.9), n_init=5)
    quantiles = banded(run).quantiles
    levels, below = run.reliability(record)
    assert levels.tolist() == [0.1, 0.4, 0.9]
    for j in range(3):
        for k in range(2):
            count = sum(record.y[t, k] <= quantiles[j, t, k] for t in range(5, 25))
            assert below[j, k] == count / 20
    record, run = gaussian(20_000)
    levels, below = run.reliability(record)
    np.testing.assert_allclose(below, levels[:, None] + 0 * below, atol=0.015)


def test_errors_are_those_after_the_known_rows() -> None:
    record, run = gaussian(40, n_init=7)
    y = record.y.copy()
    y[:7] += 1e6  # known rows count for nothing
    record = Record(u=record.u, y=y)
    np.testing.assert_array_equal(run.rmse(record), rmse(y[7:], run.mean[7:]))
    np.testing.assert_array_equal(run.fit(record), fit_percent(y[7:], run.mean[7:]))
    expected = [
        np.sqrt(sum((y[t, k] - run.mean[t, k]) ** 2 for t in range(7, 40)) / 33) for k in (0, 1)
    ]
    np.testing.assert_allclose(run.rmse(record), expected, rtol=1e-12)


@pytest.mark.parametrize(("rows", "n_init"), [(3, 4), (7, 0), (9, 0)])
def test_after_cuts_rows_from_everything(rows: int, n_init: int) -> None:
    _, run = gaussian(20, n_init=7)
    rest, whole = run.after(rows), banded(run)
    assert (len(run), len(rest), rest.n_init) == (20, 20 - rows, n_init)
    assert (rest.levels, rest.diverged) == (run.levels, run.diverged)
    found = banded(rest)
    for name in ("mean", "std", "epistemic_std", "aleatoric_std"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[rows:])
    np.testing.assert_array_equal(found.quantiles, whole.quantiles[:, rows:])
    bare = Run(run.mean, 7).after(rows)
    assert (bare.std, bare.quantiles) == (None, None)
    np.testing.assert_array_equal(bare.mean, run.mean[rows:])


def test_a_run_without_a_band_says_how_to_get_one() -> None:
    record, run = gaussian(20, n_init=3)
    bare = Run(run.mean, 3)
    np.testing.assert_array_equal(bare.rmse(record), run.rmse(record))
    np.testing.assert_array_equal(bare.fit(record), run.fit(record))
    for ask in (
        lambda: bare.spread,
        lambda: bare.interval(),
        lambda: bare.coverage(record),
        lambda: bare.scores(record),
        lambda: bare.reliability(record),
    ):
        with pytest.raises(SettingsError) as error:
            ask()
        assert str(error.value) == (
            "this run has no band: a single trained model has no posterior; take "
            "fit_posterior(model, records) and combine, or the model of identify."
        )
    np.testing.assert_array_equal(run.spread, banded(run).std)


def test_a_run_is_compared_with_its_own_record() -> None:
    record, run = gaussian(20)
    for other in (record[:19], Record(u=record.u, y=record.y[:, :1])):
        for judge in (run.rmse, run.fit, run.coverage, run.scores, run.reliability):
            with pytest.raises(DataError, match="compare a run with the record it was made on"):
                judge(other)
    with pytest.raises(DataError) as error:
        run.rmse(record[:19])
    assert str(error.value) == (
        'record "record" has 19 rows and 2 outputs, the run 20 and 2; compare a run with the '
        "record it was made on."
    )


def stairs(levels: tuple[float, ...]) -> Run:
    """A run whose quantiles are their numbers."""
    zeros = np.zeros((3, 1))
    quantiles = np.arange(len(levels), dtype=float)[:, None, None] + zeros
    return Run(zeros, 0, zeros, zeros, zeros, levels, quantiles)


@pytest.mark.parametrize(("share", "ends"), [(0.5, (1.0, 2.0)), (0.95, (0.0, 3.0))])
def test_interval_takes_its_quantiles(share: float, ends: tuple[float, float]) -> None:
    low, high = stairs((0.025, 0.25, 0.75, 0.975)).interval(share)
    np.testing.assert_array_equal(low, np.full((3, 1), ends[0]))
    np.testing.assert_array_equal(high, np.full((3, 1), ends[1]))


@pytest.mark.parametrize(
    ("share", "levels", "message"),
    [
        (
            0.9,
            (0.025, 0.975),
            "a 90% interval needs the quantiles 0.05 and 0.95; ask for them with levels=, "
            "there are 0.025, 0.975.",
        ),
        (
            0.5,
            (0.25, 0.7),
            "a 50% interval needs the quantiles 0.25 and 0.75; ask for them with levels=, "
            "there are 0.25, 0.7.",
        ),
        (
            0.5,
            (0.2, 0.75),
            "a 50% interval needs the quantiles 0.25 and 0.75; ask for them with levels=, "
            "there are 0.2, 0.75.",
        ),
    ],
)
def test_interval_without_its_quantiles(
    share: float, levels: tuple[float, ...], message: str
) -> None:
    with pytest.raises(SettingsError) as error:
        stairs(levels).interval(share)
    assert str(error.value) == message


def test_the_usual_levels_hold_the_usual_intervals() -> None:
    _, run = gaussian(5)
    assert run.levels == LEVELS
    found = banded(run)
    for share in SHARES:
        low, high = run.interval(share)
        expected = norm.interval(share, found.mean, found.std)
        np.testing.assert_allclose((low, high), expected, rtol=1e-12)
