"""What is held back: whole records where there are several, else blocks of rows.

What is learned in a fold is learned from ``Fold.records`` alone, pieces that end before a block
begins or begin after it ends; nothing of a block is in them, so nothing can leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from occamid.data.record import Record

HISTORY = 250  # rows before a block from which its free run may start
FEWEST_HELD_BACK, FEWEST_LEFT = 10, 30  # rows
GAP = 10  # rows on either side of a block that nobody sees, fewer where blocks are short


class Part(NamedTuple):
    """Held-back rows, and before them as many rows as the models may know."""

    record: Record
    known: int


class Fold(NamedTuple):
    """What may be learned from, and what it is judged on."""

    records: tuple[Record, ...]
    parts: tuple[Part, ...]


def folds(records: Sequence[Record], count: int) -> list[Fold]:
    """Up to ``count`` ways to hold something back; none where the records are too short."""
    whole = _whole_records(records, count)
    found = whole or _blocks(records, count)
    return [fold for fold in found if sum(map(len, fold.records)) >= FEWEST_LEFT]


def _whole_records(records: Sequence[Record], count: int) -> list[Fold]:
    """Every record held back once, if two thirds of the rows are always left."""
    turns = min(count, len(records))
    total = sum(map(len, records))
    found = []
    for turn in range(turns if turns > 1 else 0):
        held = [r for k, r in enumerate(records) if k % turns == turn]
        left = tuple(r for k, r in enumerate(records) if k % turns != turn)
        if 3 * sum(map(len, left)) < 2 * total:
            return []
        found.append(Fold(left, tuple(Part(r, 0) for r in held)))
    return found


def _blocks(records: Sequence[Record], count: int) -> list[Fold]:
    """Block ``k`` of every record; fewer and longer blocks where the records are short."""
    shortest = min(map(len, records))
    count = min(count, shortest // FEWEST_HELD_BACK)
    found = []
    for turn in range(count if count > 1 else 0):
        left: list[Record] = []
        parts = []
        for record in records:
            block = slice(len(record) * turn // count, len(record) * (turn + 1) // count)
            gap = min(GAP, (block.stop - block.start) // 10)
            left += without(record, block, gap)
            known = min(block.start, HISTORY)
            parts.append(Part(record[block.start - known : block.stop], known))
        found.append(Fold(tuple(left), tuple(parts)))
    return found


def without(record: Record, block: slice, gap: int = 0) -> list[Record]:
    """The pieces of a record before and after a block of rows."""
    ends = ((0, block.start - gap), (block.stop + gap, len(record)))
    return [replace(record[a:b], name=f"{record.name} from row {a}") for a, b in ends if b - a > 1]
