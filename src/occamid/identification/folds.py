"""What is held back: whole records where there are several, else blocks of rows.

What is learned in a fold is learned from ``Fold.records`` alone, pieces that end before a block
begins or begin after it ends; nothing of a block is in them, so nothing can leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from occamid.data.record import Record

HISTORY = 250  # rows before a block or a piece that a run through it may start from
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
    return [f for f in found if sum(len(r) - r.lead for r in f.records) >= FEWEST_LEFT]


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
        found.append(Fold(left, tuple(Part(replace(r, lead=0), r.lead) for r in held)))
    return found


def _blocks(records: Sequence[Record], count: int) -> list[Fold]:
    """Block ``k`` of every record; fewer and longer blocks where the records are short."""
    shortest = min(len(r) - r.lead for r in records)
    count = min(count, shortest // FEWEST_HELD_BACK)
    found = []
    for turn in range(count if count > 1 else 0):
        left: list[Record] = []
        parts = []
        for record in records:
            rows = len(record) - record.lead
            first, stop = (record.lead + rows * k // count for k in (turn, turn + 1))
            block = slice(first, stop)
            gap = min(GAP, (block.stop - block.start) // 10)
            left += without(record, block, gap)
            known = min(block.start, HISTORY)
            part = record[block.start - known : block.stop]
            parts.append(Part(replace(part, lead=0), known))
        found.append(Fold(tuple(left), tuple(parts)))
    return found


def without(record: Record, block: slice, gap: int = 0) -> list[Record]:
    """The pieces of a record before and after a block of rows."""
    ends = ((record.lead, block.start - gap), (block.stop + gap, len(record)))
    return [piece(record, a, b) for a, b in ends if b - a > 1]


def piece(record: Record, first: int, stop: int) -> Record:
    """Rows of a record, led by inputs from before them: those are no secret."""
    lead = min(first, HISTORY)
    named = replace(record, name=f"{record.name} from row {first}", lead=0)
    return replace(named[first - lead : stop], lead=lead)
