"""Pieces of long records, and the runs between them."""

from dataclasses import replace

import numpy as np

from occamid import Record
from occamid.identification.folds import folds, rows_of
from occamid.identification.thinning import (
    LONGEST_RUN,
    SHORTEST_PIECE,
    between,
    lighter,
    stride,
    thin,
)


def record(rows: int) -> Record:
    return Record(u=np.arange(rows, dtype=float), y=np.arange(rows, dtype=float))


def test_short_records_are_whole_and_leave_nothing() -> None:
    whole = (record(900),)
    assert thin(whole, 1000) is whole
    assert between((record(900),), 1000) == []


def test_runs_lie_between_the_pieces_and_touch_none_of_them() -> None:
    whole = (record(20_000), record(7_000))
    learned = {
        k: {int(v) for part in thin((r,), 3_000) for v in part.y[part.lead :, 0]}
        for k, r in enumerate(whole)
    }
    for k, r in enumerate(whole):
        runs = between((r,), 3_000)
        assert runs
        for part in runs:
            judged = part.record.y[part.known :, 0]
            assert SHORTEST_PIECE <= len(judged) <= LONGEST_RUN
            assert not learned[k] & {int(v) for v in judged}
            assert np.all(np.diff(part.record.y[:, 0]) == 1)  # without a break


def test_pieces_of_pieces_hold_no_blanked_outputs() -> None:
    """The rows that lead a piece have no outputs; nothing is learned from them when it is cut."""
    led = replace(record(5_000), lead=250)
    parts = thin((led,), 1_000)
    assert rows_of(parts) == 1_000
    assert all(part.y[part.lead, 0] >= 250 for part in parts)


def test_lighter_folds_keep_their_records_with_blanks() -> None:
    held = folds([record(10_000)], 5)
    light = lighter(held, 2_000)
    for before, after in zip(held, light, strict=True):
        assert after.lesson.rows() == 2_000
        assert after.lesson.blanked is before.lesson.blanked
        assert after.lesson.rows(blanked=True) > 7_000
        assert after.parts == before.parts
        assert after.shape is not None
        assert after.shape.samples == 2_048


def test_of_several_records_every_run_is_of_one() -> None:
    for part in between((record(20_000), record(7_000)), 3_000):
        assert np.all(np.diff(part.record.u[:, 0]) == 1)


def sines(*periods: float, noise: float = 0.0, rows: int = 20_000) -> Record:
    """An output for every period, in rows."""
    t = np.arange(rows)[:, None]
    y = np.sin(2 * np.pi * t / np.array(periods))
    y += noise * np.random.default_rng(0).normal(size=y.shape)
    return Record(u=y[:, :1], y=y)


def test_a_slow_process_is_taken_in_longer_steps_as_far_as_needed() -> None:
    assert stride([sines(1000.0)], 20_000) == 1  # nothing has to be left out
    assert stride([sines(1000.0)], 5_000) == 4
    assert stride([sines(1000.0, noise=0.05)], 5_000) == 4  # white noise is no motion
    assert stride([sines(1000.0), sines(1000.0)], 5_000) == 8


def test_the_fastest_output_limits_the_steps() -> None:
    assert 2 <= stride([sines(60.0)], 2_000) <= 3  # twenty steps in a period, of ten wanted
    assert stride([sines(1000.0, 60.0)], 2_000) == stride([sines(60.0)], 2_000)
    assert stride([sines(15.0)], 2_000) == 1
    assert stride([Record(u=np.zeros(9_000), y=np.zeros(9_000))], 2_000) == 5
