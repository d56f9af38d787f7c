"""What is held back: whole records where there are several, else blocks of rows.

What is learned in a fold is learned from ``Fold.records`` alone, pieces that end before a block
begins or begin after it ends; nothing of a block is in them, so nothing can leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from occamid.data.record import Record
from occamid.data.windows import Shape, padded_shape

HISTORY = 250  # rows before a block or a piece that models may read
FEWEST_HELD_BACK, FEWEST_LEFT = 10, 30  # rows
GAP = 10  # rows on either side of a block that nobody sees, fewer where blocks are short


class Part(NamedTuple):
    """Held-back rows, and before them as many rows as the models may know."""

    record: Record
    known: int


class Blanked(NamedTuple):
    """A whole record, and in which rows its outputs may be looked at."""

    record: Record
    seen: Bool[np.ndarray, " N"]


class Lesson(NamedTuple):
    """What may be learned from: pieces of records, or the same as records with blanks.

    A model that runs free through a record learns from the latter; every fold has the same shapes.
    Of long records the pieces may be a part.
    """

    records: tuple[Record, ...]
    blanked: tuple[Blanked, ...]

    def rows(self, blanked: bool = False) -> int:
        """How many rows there are to learn from."""
        return sum(int(b.seen.sum()) for b in self.blanked) if blanked else rows_of(self.records)


class Fold(NamedTuple):
    """What may be learned from, and what it is judged on.

    ``long`` are runs through rows that nobody learns from, where records are longer than what is
    trained on.
    """

    lesson: Lesson
    parts: tuple[Part, ...]
    long: tuple[Part, ...] = ()
    shape: Shape | None = None  # room for the lessons of all folds

    @property
    def records(self) -> tuple[Record, ...]:
        """The pieces that may be learned from."""
        return self.lesson.records

    @property
    def runs(self) -> tuple[Part, ...]:
        """Everything that a free run is judged on."""
        return (*self.parts, *self.long)


def folds(records: Sequence[Record], count: int) -> list[Fold]:
    """Up to ``count`` ways to hold something back; none where the records are too short."""
    found = _whole_records(records, count) or _blocks(records, count)
    return with_room([f for f in found if rows_of(f.records) >= FEWEST_LEFT])


def with_room(found: Sequence[Fold]) -> list[Fold]:
    """The folds with a shape that all their lessons fit into."""
    shape = padded_shape(*(f.lesson.records for f in found)) if found else None
    return [f._replace(shape=shape) for f in found]


def whole(records: Sequence[Record]) -> Lesson:
    """Everything may be learned from."""
    return Lesson(tuple(records), tuple(_blanked(record, None) for record in records))


def _blanked(record: Record, block: slice | None) -> Blanked:
    """A record with a block of rows, and a gap on either side of it, blanked."""
    seen = np.arange(len(record)) >= record.lead
    if block is not None:
        gap = _gap(block)
        seen[max(0, block.start - gap) : block.stop + gap] = False
    return Blanked(record, seen)


def _gap(block: slice) -> int:
    return min(GAP, (block.stop - block.start) // 10)


def rows_of(records: Sequence[Record]) -> int:
    """How many rows have outputs to learn from."""
    return sum(len(r) - r.lead for r in records)


def _whole_records(records: Sequence[Record], count: int) -> list[Fold]:
    """Every record held back once, if two thirds of the rows are always left."""
    turns = min(count, len(records))
    found = []
    for turn in range(turns if turns > 1 else 0):
        held = [r for k, r in enumerate(records) if k % turns == turn]
        if 3 * rows_of(held) > rows_of(records):
            return []
        parts = tuple(Part(r[r.lead :] if r.lead else r, 0) for r in held)
        found.append(Fold(_without_records(records, turns, turn), parts))
    return found


def _without_records(records: Sequence[Record], turns: int, turn: int) -> Lesson:
    """The records without those of a turn."""
    out = [k % turns == turn for k in range(len(records))]
    blanked = (
        _blanked(r, slice(0, len(r)) if gone else None)
        for r, gone in zip(records, out, strict=True)
    )
    left = (r for r, gone in zip(records, out, strict=True) if not gone)
    return Lesson(tuple(left), tuple(blanked))


def _blocks(records: Sequence[Record], count: int) -> list[Fold]:
    """Block ``k`` of every record; fewer and longer blocks where all records are short.

    Of a record that is too short to be cut nothing is held back: it is always learned from.
    """
    count = min(count, max(len(r) - r.lead for r in records) // FEWEST_HELD_BACK)
    found = []
    for turn in range(count if count > 1 else 0):
        held: list[slice | None] = []
        parts = []
        for record in records:
            rows = len(record) - record.lead
            if rows < count * FEWEST_HELD_BACK:
                held.append(None)
                continue
            first, stop = (record.lead + rows * k // count for k in (turn, turn + 1))
            block = slice(first, stop)
            held.append(block)
            known = min(block.start - record.lead, HISTORY)  # outputs before are not the plant's
            part = record[block.start - known : block.stop]
            parts.append(Part(replace(part, lead=0), known))
        found.append(Fold(_without_blocks(records, held), tuple(parts)))
    return found


def _without_blocks(records: Sequence[Record], held: Sequence[slice | None]) -> Lesson:
    """The records without a block of each, or with all of it."""
    pieces: list[Record] = []
    blanked: list[Blanked] = []
    for record, block in zip(records, held, strict=True):
        pieces += without(record, block) if block else [record]
        blanked.append(_blanked(record, block))
    return Lesson(tuple(pieces), tuple(blanked))


def without(record: Record, block: slice) -> list[Record]:
    """The pieces of a record before and after a block of rows, with a gap on either side of it."""
    gap = _gap(block)
    pieces = (record.lead, block.start - gap), (block.stop + gap, len(record))
    return [piece(record, a, b) for a, b in pieces if b - a > 1]


def piece(record: Record, first: int, stop: int) -> Record:
    """Rows of a record, led by inputs from before them; the outputs there are blanked."""
    lead = min(first, HISTORY)
    rows = slice(first - lead, stop)
    y = record.y[rows].copy()
    y[:lead] = y[lead]
    name = f"{record.name} from row {first}"
    return replace(record, u=record.u[rows], y=y, name=name, lead=lead)
