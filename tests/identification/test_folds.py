"""Folds: what is held back is judged once and is in nothing that is learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamid import Options, Record
from occamid.data.scaling import fit_scaling
from occamid.identification.assemble import Workshop
from occamid.identification.families import CLASSICAL, families
from occamid.identification.folds import (
    FEWEST_HELD_BACK,
    FEWEST_LEFT,
    GAP,
    HISTORY,
    Fold,
    folds,
    piece,
    without,
)
from occamid.identification.options import Budget
from tests.support.small import small_record

TINY = Options(network="mlp", hidden=2, cycles=1, epochs=20, input_lags=2, output_lags=2)
BUDGET = Budget(folds=3, restarts=2, members=2, iterations=2)


def numbered(*lengths: int) -> list[Record]:
    """Records whose outputs are row numbers, 10000 apart from record to record."""
    return [
        Record(u=np.arange(n) % 7.0, y=10_000.0 * k + np.arange(n), name=f"r{k}")
        for k, n in enumerate(lengths)
    ]


def learned(fold: Fold) -> list[float]:
    for r in fold.records:
        assert np.all(r.y[: r.lead] == r.y[r.lead])  # blank: nothing of a block is there
    return [float(v) for r in fold.records for v in r.y[r.lead :, 0]]


def held(fold: Fold) -> list[float]:
    return [float(v) for p in fold.parts for v in p.record.y[p.known :, 0]]


def check(records: Sequence[Record], count: int) -> list[Fold]:
    """What must be true of all folds of any records."""
    everything = {float(v) for r in records for v in r.y[:, 0]}
    found = folds(records, count)
    assert len(found) <= count
    judged: list[float] = []
    for fold in found:
        mine, theirs = held(fold), learned(fold)
        assert len(theirs) == len(set(theirs)) >= FEWEST_LEFT
        assert set(theirs) <= everything
        assert not set(mine) & set(theirs)
        assert fold.parts
        for part in fold.parts:
            y = part.record.y[:, 0]
            assert np.all(np.diff(y) == 1)  # an uninterrupted stretch of one record
            assert 0 <= part.known <= HISTORY
            before = {float(v) for v in y[: part.known]}
            assert not before & set(mine)
        judged += mine
    assert len(judged) == len(set(judged))
    return found


@pytest.mark.parametrize(
    ("lengths", "count"),
    [((100,), 5), ((101,), 7), ((60,), 5), ((90,), 3), ((1000, 400), 5), ((3000,), 8)],
)
def test_blocks_cover_every_row_once_with_gaps_around_them(
    lengths: tuple[int, ...], count: int
) -> None:
    records = numbered(*lengths)
    found = check(records, count)
    assert len(found) == count
    assert sorted(v for f in found for v in held(f)) == sorted(
        float(v) for r in records for v in r.y[:, 0]
    )
    for fold in found:
        assert len(fold.parts) == len(records)
        for part, record in zip(fold.parts, records, strict=True):
            rows = part.record.y[part.known :, 0]
            gap = min(GAP, len(rows) // 10)
            near = set(np.arange(rows[0] - gap, rows[-1] + gap + 1))
            missing = {float(v) for v in record.y[:, 0]} - set(learned(fold))
            assert missing == near & {float(v) for v in record.y[:, 0]}
            assert part.known == min(int(rows[0] - record.y[0, 0]), HISTORY)
    sizes = [len(held(f)) for f in found]
    assert max(sizes) - min(sizes) <= len(records)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 300), min_size=1, max_size=6), st.integers(1, 9))
def test_any_records_any_number_of_folds(lengths: list[int], count: int) -> None:
    check(numbered(*lengths), count)


@pytest.mark.parametrize(
    ("lengths", "count", "whole"),
    [
        ((100, 100, 100), 5, True),  # two thirds are left
        ((100, 100), 5, False),  # only a half would be
        ((100, 100, 120), 5, False),  # a little less than two thirds
        ((100, 100, 100, 100), 2, False),  # two at a time leave a half
        ((50,) * 10, 5, True),
        ((1000, 50, 50), 3, False),
    ],
)
def test_whole_records_are_held_back_where_two_thirds_are_left(
    lengths: tuple[int, ...], count: int, whole: bool
) -> None:
    records = numbered(*lengths)
    found = check(records, count)
    assert len(found) == min(count, len(records)) if whole else found
    known = {id(r) for r in records}
    assert whole == all(id(p.record) in known and not p.known for f in found for p in f.parts)
    for fold in found if whole else []:
        assert 3 * len(learned(fold)) >= 2 * sum(lengths)
        assert len(learned(fold)) + len(held(fold)) == sum(lengths)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((12,), 0),  # a block of ten rows leaves nothing
        ((39,), 0),  # three blocks of 13 leave 25 rows and less
        ((45,), 4),
        ((60,), 5),
        ((300, 8), 5),  # the short one is always learned from
        ((15, 8), 0),
    ],
)
def test_short_records(lengths: tuple[int, ...], expected: int) -> None:
    found = check(numbered(*lengths), 5)
    assert len(found) == expected
    for fold in found:
        assert all(len(p.record) - p.known >= FEWEST_HELD_BACK for p in fold.parts)
        if len(lengths) > 1:
            assert set(range(10_000, 10_000 + lengths[1])) <= set(map(int, learned(fold)))


def test_pieces_of_a_record_keep_what_it_is() -> None:
    record = replace(numbered(50)[0], sampling_time=0.5, name="long")
    before, after = without(record, slice(20, 30))  # a gap of a tenth of the block: one row
    assert (before.lead, len(before), after.lead, len(after) - after.lead) == (0, 19, 31, 19)
    assert (before.name, after.name) == ("long from row 0", "long from row 31")
    assert before.sampling_time == after.sampling_time == 0.5
    np.testing.assert_array_equal(after.u, record.u)  # led by inputs from before it
    assert without(record, slice(0, 46)) == []  # four rows of gap: nothing is left
    (only,) = without(record, slice(0, 44))
    assert only.y[only.lead :, 0].tolist() == [48.0, 49.0]


# --- nothing of a block is in what is learned ---------------------------------------------------


def changed(record: Record, block: slice, seed: int) -> Record:
    """The record with other outputs in a block."""
    rng = np.random.default_rng(seed)
    y = record.y.copy()
    y[block] = 10.0 ** rng.uniform(-2, 4) * rng.standard_normal(y[block].shape)
    return replace(record, y=y)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 4), st.integers(0, 10_000))
def test_scaling_and_lags_of_a_fold_do_not_know_what_it_holds_back(turn: int, seed: int) -> None:
    record = small_record(150)
    block = slice(30 * turn, 30 * (turn + 1))
    first, second = (folds([r], 5)[turn] for r in (record, changed(record, block, seed)))
    for a, b in zip(first.records, second.records, strict=True):
        np.testing.assert_array_equal(a.y, b.y)
    one, other = (vars(fit_scaling(f.records, "standardize")) for f in (first, second))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
    assert families(Options(), first.records) == families(Options(), second.records)


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_models_of_a_fold_do_not_know_what_it_holds_back(turn: int) -> None:
    """Weights, noise and covariance of trained and classical families, bit by bit."""
    record = small_record(120)
    block = slice(40 * turn, 40 * (turn + 1))
    models = []
    for one in (record, changed(record, block, 1), record[:119]):
        fold = folds([one], 3)[turn]
        shop = Workshop(fold.lesson, BUDGET)
        models.append([shop.model(f) for f in (*families(TINY, fold.records), CLASSICAL[0])])
    for a, b in zip(models[0], models[1], strict=True):
        np.testing.assert_array_equal(a.mixture.mean, b.mixture.mean)
        np.testing.assert_array_equal(a.mixture.factor, b.mixture.factor)
        np.testing.assert_array_equal(a.mixture.noise_std, b.mixture.noise_std)
    shorter = models[2][0].mixture.mean  # other rows are learned from: the test can see it
    assert shorter.shape != models[0][0].mixture.mean.shape or np.any(
        shorter != models[0][0].mixture.mean
    )


@pytest.mark.parametrize("several", [False, True])
def test_blanked_records_hide_what_pieces_leave_out(several: bool) -> None:
    records = [small_record(120)] if not several else [small_record(60) for _ in range(4)]
    for fold in folds(records, 3):
        lesson = fold.lesson
        assert [b.record for b in lesson.blanked] == records  # one shape for every fold
        seen = np.concatenate([b.record.y[b.seen, 0] for b in lesson.blanked])
        known = np.concatenate([r.y[r.lead :, 0] for r in lesson.records])
        np.testing.assert_array_equal(seen, known)


def test_outputs_before_a_piece_are_not_called_known() -> None:
    whole = small_record(400)
    part = piece(whole, 200, 400)
    assert part.lead == 200
    for fold in folds([part], 3):
        for held in fold.parts:
            start = len(held.record) - held.known  # rows of the block itself
            known = held.record.y[: held.known, 0]
            at = np.flatnonzero(whole.y[:, 0] == held.record.y[held.known, 0])[0]
            np.testing.assert_array_equal(known, whole.y[at - held.known : at, 0])
            assert start >= 66
            assert at - held.known >= 200
