"""Very long records: pieces that are trained on, and between them what is left to be judged on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from occamid.assessment.check.dynamics import fastest
from occamid.data.record import Record
from occamid.identification.folds import HISTORY, Fold, Lesson, Part, piece, rows_of, with_room

PIECES = 5  # of which very long records are trained on, fewer where they would be short:
SHORTEST_PIECE = 500  # rows
LONGEST_RUN = 5_000  # rows of a free run between the pieces
STEPS = 20  # in a period of an output's fastest motion, which a longer step must leave


class Cut(NamedTuple):
    """Rows of one of the records."""

    record: int
    first: int
    stop: int


def stride(records: Sequence[Record], most: int) -> int:
    """Every how many-th row of a slow process is enough, and brings its rows down to ``most``.

    All of its time in longer steps says more than short pieces of it.  One, where outputs move
    too fast for that.
    """
    wanted = -(-sum(map(len, records)) // most)
    longest = max(records, key=len)
    moves = [fastest(y) for y in longest.y.T] if wanted > 1 else []
    return max(1, min([wanted, *(int(1 / (STEPS * f)) for f in moves if f)]))


def thin(records: tuple[Record, ...], most: int) -> tuple[Record, ...]:
    """At most about this many rows: a few long, evenly spaced pieces where there are more."""
    if rows_of(records) <= most:
        return records
    return tuple(piece(records[c.record], c.first, c.stop) for c in _cuts(records, most))


def lighter(held: Sequence[Fold], most: int) -> list[Fold]:
    """Folds whose pieces are thinned; the records with blanks stay as they are."""

    def thinned(lesson: Lesson) -> Lesson:
        return lesson._replace(records=thin(lesson.records, most))

    return with_room([f._replace(lesson=thinned(f.lesson)) for f in held])


def between(records: tuple[Record, ...], most: int) -> list[Part]:
    """Rows that :func:`thin` leaves out: long runs, each after the last rows of a piece.

    A model of short pieces may drift away where a longer run would show it.
    """
    if rows_of(records) <= most:
        return []
    found = []
    cuts = sorted(_cuts(records, most))
    for cut, after in zip(cuts, [*cuts[1:], None], strict=True):
        record = records[cut.record]
        same = after is not None and after.record == cut.record
        stop = min(after.first if same and after else len(record), cut.stop + LONGEST_RUN)
        first = max(cut.first, cut.stop - HISTORY)
        if stop - cut.stop >= SHORTEST_PIECE:
            found.append(Part(replace(record[first:stop], lead=0), cut.stop - first))
    return found


def _cuts(records: Sequence[Record], most: int) -> list[Cut]:
    """Which rows are kept; short records are left out where there are many."""
    total = rows_of(records)
    wanted = max(2, min(PIECES, most // SHORTEST_PIECE))
    length = most // wanted
    found: list[Cut] = []
    left = most
    for number in sorted(range(len(records)), key=lambda k: -len(records[k])):
        first = records[number].lead
        rows = len(records[number]) - first
        if left < min(length, SHORTEST_PIECE) // 2:
            break
        own = min(rows, length, left)
        count = min(max(1, round(wanted * rows / total)), max(1, left // own))
        starts = first + np.linspace(0, rows - own, count).round().astype(int)
        found += [Cut(number, int(s), int(s) + own) for s in starts]
        left -= own * count
    return sorted(found, key=lambda cut: cut.record)
