"""Channels of several records, runs of rows in them, and findings placed there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.data.findings import Finding, Severity
from occamid.data.record import Record

Array = np.ndarray
FEWEST = 20  # rows of a record that is looked at
MOST_PLACES = 50  # in one finding


class Channel(NamedTuple):
    """One input or output in all records."""

    name: str
    is_input: bool
    parts: tuple[Float[Array, " N"], ...]
    records: tuple[Record, ...]

    @property
    def all(self) -> Float[Array, " N"]:
        """Every sample."""
        return np.concatenate(self.parts)

    @property
    def word(self) -> str:
        """``input u`` or ``output y``."""
        return f"{'input' if self.is_input else 'output'} {self.name}"


def channels(records: Sequence[Record]) -> list[Channel]:
    """All inputs, then all outputs."""
    kept = tuple(records)
    first = kept[0]
    return [
        Channel(name, is_input, tuple((r.u if is_input else r.y)[:, k] for r in kept), kept)
        for is_input, names in ((True, first.input_names), (False, first.output_names))
        for k, name in enumerate(names)
    ]


def runs_of(mask: Bool[Array, " N"]) -> Int[Array, "K 2"]:
    """First and last row of each stretch in which the mask holds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return edges.reshape(-1, 2) - [0, 1]


def finding(
    kind: str,
    severity: Severity,
    channel: str,
    texts: tuple[str, str, str],
    places: Sequence[tuple[Record, Int[Array, "K 2"]]] = (),
) -> Finding:
    """A finding with what, why and remedy, at these rows of the first record that has any."""
    record, spans = next(((r, s) for r, s in places if len(s)), (None, np.zeros((0, 2), int)))
    what, why, remedy = texts
    others = sum(len(s) > 0 for _, s in places) - 1
    if others > 0:
        what += f" (also in {others} more record{'s' if others > 1 else ''})"
    rows = tuple((int(a), int(b)) for a, b in spans[:MOST_PLACES])
    step, start = (record.sampling_time, record.start) if record else (1.0, 0.0)
    times = tuple((start + a * step, start + b * step) for a, b in rows)
    name = record.name if record else ""
    return Finding(kind, severity, channel, what, why, remedy, name, rows, times)
