"""The referee: paired differences, the choice, what to expect, and cross-validation never void."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from occamid import DataError, Options, Record
from occamid.bands.calibration import HORIZONS
from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.identification import court, crew, referee
from occamid.identification import expected as expecting
from occamid.identification.assemble import Workshop
from occamid.identification.court import Court
from occamid.identification.expected import (
    calibrated,
    expected,
    learning_gain,
    own_error,
)
from occamid.identification.families import Family
from occamid.identification.families import families as all_families
from occamid.identification.folds import Fold, Part, whole
from occamid.identification.hearing import Hearing, as_used, difference
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import HOPELESS, PLENTY, Judgement, choose, judge
from occamid.training.settings import Settings
from tests.support.linear_model import linear_model, linear_posterior, linear_record

Array = np.ndarray
SAME = np.ones(1)  # more data bring nothing
TRIED = [
    Family(name, kind, name, Settings())
    for name, kind in (("a", "simple"), ("b", "simple"), ("c", "flexible"), ("d", "wild"))
]


def pieces(*squares: float, rows: Sequence[float] | None = None) -> Array:
    return np.stack([squares, np.ones(len(squares)) if rows is None else rows])


# --- paired differences -------------------------------------------------------------------------


def test_a_difference_is_the_plain_paired_computation(rng: np.random.Generator) -> None:
    """Equal rows: mean, and the standard error of a mean, widened by the correlation."""
    for phi in (0.0, 0.6):
        noise = rng.normal(size=12)
        for k in range(1, 12):
            noise[k] += phi * noise[k - 1]
        one, other = 3.0 + noise, 2.0 + 0 * noise
        mean, error = difference(pieces(*one), pieces(*other))
        apart = one - other
        rest = apart - apart.mean()
        rho = min(0.8, max(0.0, np.mean(rest[1:] * rest[:-1]) / np.mean(rest**2)))
        plain = np.std(apart, ddof=1) / np.sqrt(12)
        assert mean == pytest.approx(apart.mean())
        assert error == pytest.approx(plain * np.sqrt((1 + rho) / (1 - rho)))


def test_longer_pieces_count_for_more() -> None:
    rows = [30.0, 10.0, 20.0]
    one, other = pieces(2.0, 5.0, 3.0, rows=rows), pieces(1.0, 1.0, 1.0, rows=rows)
    mean, error = difference(one, other)
    assert mean == pytest.approx((30 * 1 + 10 * 4 + 20 * 2) / 60)
    variance = (30 * (1 - mean) ** 2 + 10 * (4 - mean) ** 2 + 20 * (2 - mean) ** 2) / 60
    assert error == pytest.approx(np.sqrt(variance / 2))  # neighbours do not go together


def test_what_both_families_miss_is_no_difference() -> None:
    """A hard piece is hard for both: paired, it says nothing against either."""
    hard = np.array([1.0, 1.0, 100.0, 1.0])
    assert difference(pieces(*hard), pieces(*(hard - 0.1))) == pytest.approx((0.1, 0.0), abs=1e-6)


def test_one_piece_is_no_evidence() -> None:
    assert difference(pieces(3.0), pieces(1.0)) == (2.0, 2.0)
    assert difference(pieces(1.0, 1.0), pieces(1.0, 1.0)) == (0.0, 0.0)


# --- the choice ---------------------------------------------------------------------------------


def chosen(squares: dict[str, Array], sizes: dict[str, int] | None = None) -> tuple[str, str]:
    """The choice between families with these mean squares of pieces of 20 rows, a fold each."""
    heard = {}
    for name, values in squares.items():
        misses = [[np.full((20, 1), np.sqrt(value))] for value in values[0]]
        model: Any = SimpleNamespace(parameters_in_all=(sizes or {}).get(name, 1))
        fold: Any = None
        heard[name] = Hearing([(model, fold)] * len(misses), misses)
    return choose([f for f in TRIED if f.name in squares], heard, np.ones(1))


@pytest.mark.parametrize(
    ("squares", "expected"),
    [
        # the flexible one is better on average, but not by one standard error
        ({"a": (1.0, 1.2, 0.8), "b": (1.1, 1.1, 1.1), "c": (0.5, 1.4, 1.0)}, "a"),
        # better in every piece, by a little: that is certain
        ({"a": (1.0, 1.2, 0.8), "b": (1.1, 1.3, 0.9), "c": (0.9, 1.11, 0.7)}, "c"),
        # the best of the simple kind stands for it
        ({"a": (1.2, 1.2, 1.2), "b": (1.0, 1.2, 0.8), "c": (0.5, 1.4, 1.0)}, "b"),
        # the simplest kind is out, the next one is near the best
        ({"a": (2.0, 2.1, 2.0), "c": (1.0, 1.2, 0.8), "d": (0.5, 1.4, 1.0)}, "c"),
        ({"a": (2.0, 2.1, 2.0), "c": (2.0, 1.9, 2.1), "d": (0.5, 0.6, 0.5)}, "d"),
        # the simple one is the best
        ({"a": (0.1, 0.1, 0.2), "c": (0.5, 0.6, 0.5)}, "a"),
        # a single piece has no standard error, but simplicity may not cost this much
        ({"a": (1.0,), "c": (0.1,)}, "c"),
        ({"a": (1.0,), "c": (0.95,)}, "a"),
        # within one standard error, but more than five per cent worse
        ({"a": (1.0, 3.0, 0.2), "c": (0.5, 1.4, 0.6)}, "c"),
    ],
)
def test_the_simplest_kind_within_one_standard_error(
    squares: dict[str, tuple[float, ...]], expected: str
) -> None:
    found, grounds = chosen({name: pieces(*values) for name, values in squares.items()})
    assert found == expected
    best = min(squares, key=lambda n: float(np.mean(squares[n])))
    if found == best:
        assert grounds == f"{found} has the smallest free-run error on held-back data"
    else:
        assert grounds.startswith(f"{found} is of a simpler kind than {best} and, within one stand")


@pytest.mark.parametrize(
    ("squares", "expected", "grounds"),
    [
        ({"a": (1.01, 1.2, 0.8), "b": (1.0, 1.19, 0.79)}, "a", "a is smaller than b and errs le"),
        ({"a": (1.03, 1.2, 0.83), "b": (1.0, 1.19, 0.79)}, "b", "b has the smallest free-run er"),
        ({"a": (1.0, 1.2, 0.8), "b": (1.0, 1.2, 0.8)}, "a", "a has the smallest free-run error"),
        # it stands for its kind where another one is best, too
        ({"a": (1.01, 1.2, 0.8), "b": (1.0, 1.2, 0.8), "c": (0.5, 1.4, 1.0)}, "a", "a is of a sim"),
    ],
)
def test_the_smallest_of_a_kind_that_is_about_as_good(
    squares: dict[str, tuple[float, ...]], expected: str, grounds: str
) -> None:
    sizes = {"a": 3, "b": 50, "c": 4}
    found, why = chosen({name: pieces(*v) for name, v in squares.items()}, sizes)
    assert found == expected
    assert why.startswith(grounds)


# --- what to expect -----------------------------------------------------------------------------


def test_the_expected_error_of_toy_hearings() -> None:
    """The folds' geometric mean, times what more data brings, and where one more fold would be."""
    errors = np.array([[1.0, 2.0], [4.0, 2.0], [2.0, 2.0]])
    misses = [np.tile(fold, (rows, 1)) for fold, rows in zip(errors, (9, 50, 20), strict=True)]
    hearing = Hearing(misses=[[miss] for miss in misses])
    error, low, high = expected(hearing, gain=np.array([0.9, 0.9]))
    np.testing.assert_allclose(error, 0.9 * 2.0)  # the root of their mean square is 3.1 or more
    # Student's t with three usual folds beside the three, 0.36 of scatter in their logs
    scatter = np.sqrt((3 * 0.36**2 + np.array([2 * np.log(2) ** 2, 0.0])) / 5)
    factor = np.exp(2.570582 * scatter * np.sqrt(4 / 3))
    np.testing.assert_allclose(high, error * factor, rtol=1e-6)
    np.testing.assert_allclose(low, error / factor, rtol=1e-6)


def test_parts_of_a_fold_count_by_their_rows_and_one_fold_has_the_usual_scatter() -> None:
    hearing = Hearing(misses=[[np.full((30, 1), 1.0), np.full((10, 1), 3.0)]])
    error, low, high = expected(hearing, gain=SAME)
    np.testing.assert_allclose(error, np.sqrt(3.0))
    np.testing.assert_allclose(high / error, np.exp(3.182446 * 0.36 * np.sqrt(2)), rtol=1e-6)
    np.testing.assert_allclose(error / low, high / error)


def test_the_interval_holds_one_more_error_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for logs in rng.normal(0.3, 0.7, size=(2000, 6)):
        _, low, high = expected(Hearing(misses=[[np.exp([[v]])] for v in logs[:5]]), gain=SAME)
        inside.append(low <= np.exp(logs[5]) <= high)
    assert 0.9 < np.mean(inside) < 0.97


def test_the_error_on_the_parts_learned_from_is_that_of_plain_free_runs() -> None:
    model, record = combine([linear_posterior(linear_model())]), linear_record(80)
    parts = (Part(record[:50], 0), Part(record[20:], 30))
    known = model.window
    first, second = record[:50], record[50 - known :]
    miss = np.concatenate(
        [(model.free_run(r.u, r.y[:known]) - r.y)[known:] for r in (first, second)]
    )
    hearing = Hearing(models=[(model, Fold(whole([record]), parts[:1], parts[1:]))])
    np.testing.assert_allclose(own_error(model, hearing), np.sqrt(np.mean(miss**2, axis=0)))


@pytest.mark.parametrize("own", [0.0, 0.6, 1.0, 1.3])
def test_what_more_rows_do_not_mend_stays(monkeypatch: pytest.MonkeyPatch, own: float) -> None:
    """Errors beyond the model's own fall with 1/n in squares; what streams counts rows seen."""
    model, record = combine([linear_posterior(linear_model())]), linear_record(80)
    lesson = whole([record])
    seen = lesson.blanked[0]._replace(seen=np.arange(80) < 40)
    fold = Fold(lesson._replace(blanked=(seen,)), (Part(linear_record(30), 0),))
    hearing = Hearing(models=[(model, fold)], misses=[[np.full((9, 1), 2.0)]])
    monkeypatch.setattr(expecting, "own_error", lambda *_: np.array([2 * own]))
    for rows, streams, left in ((100, False, 0.8), (100, True, 0.4), (60, False, 1.0)):
        found = learning_gain(model, hearing, rows, streams)
        expected = max(own**2, own**2 + left * (1 - own**2)) ** 0.5
        np.testing.assert_allclose(found, expected)


def test_however_many_rows_there_are_an_interval_has_a_width() -> None:
    hearing = Hearing(misses=[[np.full((9, 1), level)] for level in (0.9, 1.0, 1.1)])
    middle, low, high = expected(hearing, np.array([0.98]))
    assert low < 0.8 * middle
    assert high > 1.2 * middle


# --- bands --------------------------------------------------------------------------------------


def test_bands_take_their_width_from_held_back_errors_by_horizon() -> None:
    """Noise on the output, taken for fed-back noise: too narrow one step ahead, too wide later."""
    rng = np.random.default_rng(0)
    model = combine([linear_posterior(linear_model(0.9), sigma=0.1)])
    u, y = rng.normal(size=1500), np.zeros(1500)
    for t in range(1, 1500):  # white noise on the output alone, in the model's scaled units
        y[t] = 0.9 * y[t - 1] + 0.5 * (u[t - 1] - 0.3) / 1.5
    record = Record(u=u, y=4 * (y + 0.1 * rng.normal(size=1500)) - 2)
    parts = (Part(record[:700], 0), Part(record[650:], 50))
    fold = Fold(whole([record]), parts)
    found = calibrated(model, Hearing(models=[(model, fold)]), gain=SAME)
    assert found.inflation.shape == (len(HORIZONS), 1)
    one, ten, free = found.inflation[:, 0]
    # y(t) - 0.9 y(t-1) has noise of variance 1.81; in free run 1 instead of 1/(1 - 0.81)
    assert one == pytest.approx(np.sqrt(1.81), rel=0.1)
    assert ten == pytest.approx(np.sqrt((1 + 0.9**20) * (1 - 0.81) / (1 - 0.9**20)), rel=0.15)
    assert free == pytest.approx(np.sqrt(1 - 0.81), rel=0.1)
    assert found.predict(record).coverage(record) == pytest.approx(0.95, abs=0.02)
    assert found.predict(record, 10).coverage(record) == pytest.approx(0.95, abs=0.02)
    assert found.simulate(record).coverage(record) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("wide", [2.0, 0.1])
@pytest.mark.parametrize("sigma", [0.02, 0.5, 1.0, 3.0])
def test_no_band_is_narrowed_unless_errors_in_its_own_units_ask_for_it_too(
    wide: float, sigma: float
) -> None:
    """A band ``sigma`` times as wide as those of the folds, which were too wide or too narrow."""
    record = linear_record(400)
    theirs, ours = (
        combine([linear_posterior(linear_model(0.9), sigma=wide * s)]) for s in (1.0, sigma)
    )
    parts = tuple(Part(record[k : k + 130], 30) for k in range(0, 270, 100))
    hearing = Hearing(models=[(theirs, Fold(whole([record]), parts))])
    first, found = (calibrated(model, hearing, gain=SAME).inflation for model in (theirs, ours))
    assert np.all(first < 1) if wide == 2.0 else np.all(first > 1)
    asked = first / sigma  # a band that is far too narrow is widened halfway
    both = np.maximum(first, np.minimum(asked, np.sqrt(asked)))
    np.testing.assert_allclose(found, both if wide == 2.0 else first, rtol=1e-6)
    if wide == 2.0 and sigma == 0.02:
        assert np.all((found > 1) & (found < asked))


def test_without_parts_for_predictions_their_bands_stay_as_they_are() -> None:
    """A part that is long, but was not learned around, tells of free runs alone."""
    record, model = linear_record(60), combine([linear_posterior(linear_model(), sigma=0.1)])
    fold = Fold(whole([record]), (Part(record[:2], 0),), (Part(record, 0),))
    found = calibrated(model, Hearing(models=[(model, fold)]), gain=SAME).inflation
    np.testing.assert_array_equal(found[:-1], 1.0)
    assert found[-1] != 1.0


def test_parts_that_are_too_short_are_not_judged() -> None:
    model = combine([linear_posterior(linear_model(0.9), sigma=0.1)])  # starts at row 1
    record = linear_record(30)
    for rows, known, left, first in (
        *((30, 0, 30, 1), (30, 12, 19, 1), (3, 0, 3, 1), (2, 0, 2, 2), (30, 29, 2, 2)),
    ):
        used = as_used(model, Part(record[:rows], known))
        assert (len(used.record), used.known) == (left, first)
        np.testing.assert_array_equal(used.record.y, record.y[rows - left : rows])
    long, short = Part(record, 0), Part(record[:2], 0)
    alone, both = (
        calibrated(model, Hearing(models=[(model, Fold(whole([record]), p))]), gain=SAME)
        for p in ((long,), (long, short))
    )
    np.testing.assert_array_equal(alone.inflation, both.inflation)


# --- cross-validation is never void -------------------------------------------------------------

ONLY = ("arx", "second")


def process(rows: int, u: Array | None = None, seed: int = 0) -> Record:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=rows) if u is None else u
    y = np.zeros(rows)
    for t in range(2, rows):
        y[t] = 1.2 * y[t - 1] - 0.4 * y[t - 2] + u[t - 1] + 0.05 * rng.normal()
    return Record(u=u, y=y, name=f"of {rows} rows")


def with_constant_third(rows: int) -> Array:
    u = np.random.default_rng(1).normal(size=rows)
    u[: rows // 3] = 0.5
    return u


def impulses(rows: int, *at: int) -> Array:
    u = np.zeros(rows)
    u[list(at)] = 1.0
    return u


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lags and refusals as ever, but only plain least squares is tried, twice."""

    def few(options: Options, records: Sequence[Record], given: int | None = None) -> list[Family]:
        (arx,) = (f for f in all_families(options, records) if f.name == "arx")
        return [arx, Family("second", "flexible", "the same again")]

    monkeypatch.setattr(court, "every_family", few)
    monkeypatch.setattr(referee, "families", few)


def judged(*records: Record) -> Judgement:
    return judge(records, Options(), Clock(None, 1))


@pytest.mark.usefixtures("cheap")
def test_progress_counts_what_will_be_heard() -> None:
    told: list[Stage] = []
    clock = Clock(told.append, 0)
    judge((process(100),), Options(), clock)
    clock.tell("judged")
    assert told[-1].share == pytest.approx(10 / 12)  # two families in five folds, and the last


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("records", "count"),
    [
        ((process(60),), 5),
        ((process(90),), 5),
        ((process(150, with_constant_third(150)),), 5),
        (tuple(process(40, seed=k) for k in range(3)), 3),  # short pieces, each held back
        ((process(40), process(40, seed=1)), 4),
        ((process(300), process(15, seed=1)), 5),
        (tuple(process(n, seed=n) for n in (200, 200, 200, 9)), 4),  # one with little to judge
    ],
    ids=["60", "90", "constant third", "three of 40", "two of 40", "300 and 15", "200 and 9"],
)
def test_short_records_are_judged_on_held_back_data(
    records: tuple[Record, ...], count: int
) -> None:
    found = judged(*records)
    assert [t.family for t in found.trials] == ["arx", "second"]
    for trial in found.trials:
        assert np.isfinite([trial.score, *trial.rmse]).all()
        assert trial.failed == ""
    assert found.chosen == "arx"
    assert "held-back data" in found.grounds
    assert ("the records allow no more" in found.grounds) == (count < 5)
    assert len(found.hearings["arx"].models) == count
    assert found.trials[0].score < 0.5


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((process(35),), "the records are too short"),
        ((process(20), process(15, seed=1)), "the records are too short"),
    ],
)
def test_where_nothing_can_be_held_back_it_is_said(records: tuple[Record, ...], why: str) -> None:
    found = judged(*records)
    assert found.grounds == (
        f"nothing could be held back ({why}), so only the simplest kind of models was tried; arx "
        "has the smallest BIC on the estimation data itself"
    )
    assert found.hearings == {}
    (trial,) = found.trials
    assert np.isnan(trial.score)
    assert not trial.failed


@pytest.mark.usefixtures("cheap")
def test_where_nothing_can_be_held_back_and_nothing_simple_be_fitted_the_next_kind_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Workshop.model

    def only_flexible(shop: Workshop, family: Family, *rest: Any) -> Ensemble:
        if family.kind == "linear":
            raise DataError("no")
        return model(shop, family, *rest)

    monkeypatch.setattr(Workshop, "model", only_flexible)
    found = judged(process(35))
    assert found.chosen == "second"
    assert [t.failed for t in found.trials] == ["no", ""]


@pytest.mark.usefixtures("cheap")
def test_a_fold_that_fails_is_said_and_left_out() -> None:
    """One impulse: the fold that holds it back has nothing to learn from; the others count."""
    for at, failing in ((95, 5), (85, 5)):
        found = judged(process(100, impulses(100, at)))
        assert "held-back data" in found.grounds
        for trial in found.trials:
            assert np.isfinite(trial.score)
            assert trial.failed.startswith(f"fold {failing} of 5: input u is constant (0)")
            assert len(found.hearings[trial.family].models) == 4


def test_folds_that_fail_first_do_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two folds nobody could be tried, which says nothing about the families."""
    calls: list[int] = []

    def failing(
        options: Options, records: Sequence[Record], given: int | None = None
    ) -> list[Family]:
        calls.append(1)
        if 2 <= len(calls) <= 3:
            raise DataError("not now")
        return [f for f in all_families(options, records) if f.name == "arx"]

    monkeypatch.setattr(court, "every_family", failing)
    monkeypatch.setattr(referee, "families", failing)
    found = judged(process(100))
    assert found.chosen == "arx"
    assert np.isfinite(found.trials[0].score)
    assert found.trials[0].failed == "fold 2 of 5: not now"
    assert len(found.hearings["arx"].models) == 3

    def never(*_: object) -> list[Family]:
        raise DataError("not now")

    def straight(options: Options, records: Sequence[Record], given: int) -> list[Family]:
        return [f for f in all_families(options, records) if f.name == "arx"]

    monkeypatch.setattr(court, "every_family", never)
    monkeypatch.setattr(referee, "families", straight)
    found = judged(process(100))
    assert found.grounds.startswith("nothing could be held back (fold 5 of 5: not now), so")


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("cores", [1, PLENTY])
@pytest.mark.parametrize(("folds", "behind"), list(zip((1, 2), HOPELESS, strict=True)))
def test_a_family_far_behind_is_tried_no_further(
    folds: int, behind: float, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many cores all folds are heard at once, and what counts is the same."""

    def worse(self: Court, fold: Fold, where: str, names: Sequence[str]) -> object:
        found = answers(self, fold, where, names)
        if "second" in found:
            misses = [1.1 * behind * miss for miss in found["second"].misses]
            found["second"] = found["second"]._replace(misses=misses)
        return found

    answers = Court.answers
    monkeypatch.setattr(Court, "answers", worse)
    monkeypatch.setattr(referee, "MANY", 10 if folds == 1 else 10_000)
    monkeypatch.setattr(crew, "cores", lambda: cores)
    found = judged(process(100))
    arx, second = found.trials
    assert second.failed.startswith(f"left out after {folds} fold")
    assert arx.failed == ""
    assert len(found.hearings["second"].models) == folds
    assert len(found.hearings["arx"].models) == 5
    assert np.isfinite(second.score)
    assert np.isnan(second.error)
    assert found.chosen == "arx"


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("cores", [1, PLENTY])
def test_a_family_is_heard_after_all_where_the_leading_one_loses_its_lead(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind in two folds, but the other one errs a hundred times more in the next."""

    def uneven(self: Court, fold: Fold, where: str, names: Sequence[str]) -> object:
        found = answers(self, fold, where, names)
        factors = {"second": 3.0, "arx": 1.0 if where < "fold 3" else 100.0}
        asked.extend((where, name) for name in names)
        return {
            name: answer._replace(misses=[factors[name] * miss for miss in answer.misses])
            for name, answer in found.items()
        }

    asked: list[tuple[str, str]] = []
    answers = Court.answers
    monkeypatch.setattr(Court, "answers", uneven)
    monkeypatch.setattr(crew, "cores", lambda: cores)
    found = judged(process(100))
    assert found.chosen == "second"
    assert [t.failed for t in found.trials] == ["", ""]
    assert [len(found.hearings[name].models) for name in ("arx", "second")] == [5, 5]
    assert len(asked) == len(set(asked)) == 10
