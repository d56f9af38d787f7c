"""Scores of bands, held-back blocks, conformal inflation and stacking."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from occamid import (
    Batch,
    DataError,
    Ensemble,
    Index,
    Record,
    Run,
    Settings,
    SettingsError,
    combine,
    ensemble_of,
    identify,
    identify_with_bands,
)
from occamid.bands.calibration import (
    SHARES,
    Fold,
    blocks_of,
    conformal_inflation,
    cross_validate,
    held_back_scores,
    reliability,
    score,
    stacking_weights,
)
from occamid.bands.ensemble import LEVELS, widen_to_residuals
from occamid.data.windows import all_terms, windows
from tests.bands.test_monte_carlo import linear_model, linear_posterior
from tests.support.small import SMALL, small_record

QUICK = SMALL.replace(restarts=2, cycles=2)


def gaussian(
    samples: int, levels: tuple[float, ...] = LEVELS, stretch: float = 1.0
) -> tuple[np.ndarray, Run]:
    """Measurements of two outputs, and the distribution that made them (or a wider one)."""
    rng = np.random.default_rng(3)
    mean, std = rng.normal(size=(samples, 2)), rng.uniform(0.5, 3.0, (samples, 2))
    y = mean + std * rng.normal(size=mean.shape)
    wide = stretch * std
    quantiles = norm(mean, wide).ppf(np.array(levels)[:, None, None])
    return y, Run(mean, wide, wide, 0 * wide, levels, quantiles, 0.0)


def test_scores_against_loops_and_integrals() -> None:
    y, found = gaussian(30, stretch=1.4)
    skip = 4
    marks = score(y, found, skip)
    for k in range(2):
        density, crps, width = [], [], []
        inside: dict[float, list[bool]] = {share: [] for share in SHARES}
        for t in range(skip, len(y)):
            m, s, value = found.mean[t, k], found.std[t, k], y[t, k]
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
    assert set(marks.coverage) == {0.5, 0.8, 0.95}


def test_scores_of_the_true_distribution_are_nominal_and_best() -> None:
    y, found = gaussian(20_000)
    marks = score(y, found, 0)
    for share, coverage in marks.coverage.items():
        np.testing.assert_allclose(coverage, share, atol=0.015)
    entropy = np.mean(norm.entropy(found.mean, found.std), axis=0)
    np.testing.assert_allclose(marks.log_density, entropy, atol=0.02)
    np.testing.assert_allclose(marks.crps, found.std.mean(axis=0) / np.sqrt(np.pi), rtol=0.02)
    for stretch in (0.7, 1.4):
        other = score(y, gaussian(20_000, stretch=stretch)[1], 0)
        assert np.all(other.log_density > marks.log_density)
        assert np.all(other.crps > marks.crps)


def test_reliability_counts_measurements_below() -> None:
    y, found = gaussian(25, levels=(0.1, 0.4, 0.9))
    levels, below = reliability(y, found, 5)
    assert levels.tolist() == [0.1, 0.4, 0.9]
    for j in range(3):
        for k in range(2):
            count = sum(y[t, k] <= found.quantiles[j, t, k] for t in range(5, 25))
            assert below[j, k] == count / 20
    levels, below = reliability(*gaussian(20_000), 0)
    np.testing.assert_allclose(below, levels[:, None] + 0 * below, atol=0.015)


@pytest.mark.parametrize(("samples", "folds", "start"), [(100, 4, 3), (101, 7, 0), (50, 1, 10)])
def test_blocks_cover_the_record_once(samples: int, folds: int, start: int) -> None:
    blocks = blocks_of(small_record(samples), folds, start)
    assert len(blocks) == folds
    rows = [t for b in blocks for t in range(b.start, b.stop)]
    assert rows == list(range(start, samples))
    sizes = [b.stop - b.start for b in blocks]
    assert max(sizes) - min(sizes) <= 1


def test_too_many_blocks() -> None:
    assert len(blocks_of(small_record(23), 10, 3)) == 10
    with pytest.raises(DataError) as error:
        blocks_of(small_record(23), 11, 3)
    assert str(error.value) == (
        'record "small" has 23 rows, too few for 11 held-back blocks after an initial window of 3; '
        "use fewer folds."
    )


@pytest.mark.parametrize(
    "held",
    [
        (slice(20, 30), slice(5, 9)),
        (slice(3, 10), slice(30, 40)),
        (slice(0, 2), slice(0, 0)),
        (slice(45, None), slice(-6, None)),
    ],
    ids=str,
)
def test_no_window_has_a_held_back_output(held: tuple[slice, slice]) -> None:
    """Row by row: it counts if neither its target nor any of its output regressors is held back."""
    records = [small_record(50), small_record(40, seed=1)]
    regressors = all_terms(records[0], 3, 2)
    start = 3
    found = windows(records, regressors, start, held)
    assert found.valid.shape == (2, 47, 1)
    total = 0
    for r, (record, block) in enumerate(zip(records, held, strict=True)):
        hidden = set(range(len(record))[block])
        kept = 0
        for row in range(47):
            t = start + row
            used = {t} | {t - lag for _, lag in regressors.outputs}
            expected = t < len(record) and not used & hidden
            assert bool(found.valid[r, row, 0]) == expected
            kept += expected
        assert float(found.residuals[r]) == kept
        total += kept
    assert 0 < total < 47 + 37 + (held[1] == slice(0, 0))


def test_held_back_needs_a_block_for_each_record() -> None:
    records = [small_record(50), small_record(40, seed=1)]
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer|shorter"):
        windows(records, all_terms(records[0], 3, 2), 3, [slice(3, 5)])


@cache
def small_result() -> Batch:
    return identify(small_record(), QUICK)


@pytest.mark.parametrize("scaling", ["standardize", "detrend"])
def test_identification_does_not_look_at_held_back_outputs(scaling: str) -> None:
    """Scaling, weights, priors and figures are the same whatever the held-back outputs are."""
    held = [slice(40, 70), slice(60, 80)]
    settings = QUICK.replace(scaling=scaling)
    found = []
    for shift in (0.0, 3.0, 300.0):
        records = []
        for record, block in zip((small_record(), small_record(80, seed=1)), held, strict=True):
            y = record.y.copy()
            y[block] = y[block] * (1 - shift / 10) + shift
            records.append(replace(record, y=y))
        found.append(train(records, settings, held_back=held))
    for other in found[1:]:
        for name in ("u_offset", "u_scale", "y_offset", "y_scale"):
            np.testing.assert_array_equal(
                getattr(other.scaling, name), getattr(found[0].scaling, name)
            )
        for name, value in found[0].params.items():
            np.testing.assert_array_equal(other.params[name], value)
        for name, widths in found[0].psi.items():
            for a, b in zip(other.psi[name], widths, strict=True):
                np.testing.assert_array_equal(a, b)
        for name, column in found[0].table.items():
            np.testing.assert_array_equal(other.table[name], column)
        assert other.best_index == found[0].best_index
    assert found[0].count == 117 - 32 + 77 - 20
    plain = identify([small_record(), small_record(80, seed=1)], settings)
    name = "layer0.W"
    assert np.abs(plain.params[name] - found[0].params[name]).max() > 1e-3


def test_identification_without_a_block_at_the_end_equals_the_shorter_record() -> None:
    """Outputs held back at the end are as if the record ended there, scaling included."""
    record = small_record()
    held = identify(record, QUICK, held_back=[slice(90, None)])
    short = identify(record[:90], QUICK)
    np.testing.assert_array_equal(held.scaling.y_scale, short.scaling.y_scale)
    for name, value in short.params.items():
        np.testing.assert_allclose(held.params[name], value, rtol=1e-6, atol=1e-9)


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
    y, found = gaussian(20_000, stretch=0.5)
    factor = conformal_inflation((np.abs(y - found.mean) / found.std)[:10_000])
    np.testing.assert_allclose(factor, 2.0, rtol=0.04)
    wide = replace(found, quantiles=found.mean + factor * (found.quantiles - found.mean))
    np.testing.assert_allclose(score(y, wide, 10_000).coverage[0.95], 0.95, atol=0.01)


def fold_with(weights: list[float], parts: list[Record]) -> Fold:
    """Held-back blocks whose outputs are a known combination of the models' free runs."""
    result = small_result()
    made = []
    for part in parts:
        runs = [
            result.model(index).free_run(part.u, part.y[: result.start]) for index in candidates()
        ]
        y = part.y.copy()
        y[3:] = sum(w * run[3:] for w, run in zip(weights, runs, strict=True))
        made.append(replace(part, y=y))
    return Fold(result, [], made, result.start)


def candidates() -> list[Index]:
    return [Index(0, 0, 1), Index(0, 1, 1), Index(0, 0, 0)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0.3, 0.7, 0.0], [0.3, 0.7, 0.0]),
        ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
        ([0.4, 0.8, 0.8], [0.2, 0.4, 0.4]),  # normalised
        ([-1.0, -1.0, -1.0], [1 / 3, 1 / 3, 1 / 3]),  # none helps
    ],
)
def test_stacking_finds_the_best_combination(weights: list[float], expected: list[float]) -> None:
    parts = [small_record(50, seed=4), small_record(40, seed=5)]
    folds = [fold_with(weights, parts[:1]), fold_with(weights, parts[1:])]
    found = stacking_weights(folds, candidates())
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_cross_validation_holds_back_every_row_once() -> None:
    records = [small_record(), small_record(80, seed=1)]
    folds = list(cross_validate(records, QUICK, 2))
    assert len(folds) == 2
    for k, record in enumerate(records):
        rest = [fold.parts[k][fold.start :] for fold in folds]
        np.testing.assert_array_equal(np.concatenate([r.y for r in rest]), record.y[3:])
        np.testing.assert_array_equal(np.concatenate([r.u for r in rest]), record.u[3:])
    edges = [blocks_of(r, 2, 3) for r in records]
    for j, fold in enumerate(folds):
        assert fold.held_back == [e[j] for e in edges]
        assert fold.start == fold.result.start == 3
        expected = identify(records, QUICK, held_back=[e[j] for e in edges])
        for name, value in expected.params.items():
            np.testing.assert_array_equal(fold.result.params[name], value)
        for k, record in enumerate(records):
            first = edges[k][j].start
            np.testing.assert_array_equal(fold.parts[k].y[:3], record.y[first - 3 : first])
    difference = folds[0].result.params["layer0.W"] - folds[1].result.params["layer0.W"]
    assert np.abs(difference).max() > 1e-3


def quick_ensemble(
    result: Batch, records: tuple[Record, ...], held_back: Sequence[slice] | None = None
) -> Ensemble:
    return ensemble_of(result, records, count=2, held_back=held_back)


def test_held_back_scores_are_standardised_errors() -> None:
    record = small_record()
    parts = [small_record(30, seed=4), small_record(40, seed=5)]
    held = [slice(40, 70)]
    fold = Fold(small_result(), held, parts, 3)
    found = held_back_scores([fold, fold], record, quick_ensemble)
    ensemble = quick_ensemble(small_result(), (record,), held)
    expected = []
    for part in parts:
        run = ensemble.simulate(part, 3)
        for t in range(3, len(part)):
            expected.append(abs(part.y[t, 0] - run.mean[t, 0]) / run.std[t, 0])
    np.testing.assert_allclose(found[:, 0], expected + expected, rtol=1e-12)


def test_ensembles_do_not_look_at_held_back_outputs() -> None:
    """Covariance, noise, evidence and inflation are those of the other rows."""
    record, held = small_record(), [slice(40, 70)]
    y = record.y.copy()
    y[40:70] += 3.0
    a, b = (quick_ensemble(small_result(), (r,), held) for r in (record, replace(record, y=y)))
    for p, q in zip(a.posteriors, b.posteriors, strict=True):
        np.testing.assert_array_equal(p.factor, q.factor)
        np.testing.assert_array_equal(p.noise_variance, q.noise_variance)
        assert p.log_evidence == q.log_evidence
    np.testing.assert_array_equal(a.inflation, b.inflation)
    whole = quick_ensemble(small_result(), (record,))
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
    own = ensemble.simulate(record)
    squares = [
        ((record.y[t, 0] - own.mean[t, 0]) / own.std[t, 0]) ** 2
        for t in range(1, 100)
        if not (held and t in range(40, 70))
    ]
    seen = float(np.sqrt(np.mean(squares)))
    assert (seen > 1.5) == (slow > 0)
    found = widen_to_residuals(ensemble, (record,), held).inflation
    np.testing.assert_allclose(found, [max(1.0, seen)], rtol=1e-9)


def test_bands_by_default_and_with_folds() -> None:
    """Without folds the posterior's own; with them inflated by the held-back scores."""
    record = small_record()
    plain = identify_with_bands(record, QUICK, members=2)
    own = quick_ensemble(small_result(), (record,))
    np.testing.assert_array_equal(plain.inflation, own.inflation)
    assert len(plain.posteriors) == 2
    wide = identify_with_bands(record, QUICK, members=2, folds=2)
    scores = held_back_scores(cross_validate(record, QUICK, 2), record, quick_ensemble)
    assert scores.shape == (117, 1)
    factor = conformal_inflation(scores)
    np.testing.assert_allclose(wide.inflation, plain.inflation * factor, rtol=1e-9)
    assert abs(factor[0] - 1) > 0.01
    test = small_record(60, seed=6)
    a, b = (e.simulate(test) for e in (plain, wide))
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_allclose(b.std, factor * a.std, rtol=1e-9)


def test_cross_validation_needs_fixed_lags() -> None:
    for lags in ({"input_lags": 3}, {"output_lags": 2}, {}):
        with pytest.raises(SettingsError) as error:
            next(cross_validate(small_record(), Settings(**lags), 2))
        assert str(error.value) == (
            "cross-validation needs fixed lags; take the settings of a result."
        )
