"""A record: inputs and outputs of one experiment, sampled evenly in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.errors import DataError

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Inputs ``u`` and outputs ``y`` of one experiment.

    Arrays are time first, ``(samples, channels)``; one-dimensional data is one channel.  The
    record keeps a read-only copy in double precision: the caller's arrays are never changed.

    Args:
        u: inputs, ``(N,)`` or ``(N, n_inputs)``.
        y: outputs, ``(N,)`` or ``(N, n_outputs)``.
        sampling_time: seconds between samples.
        name: used in messages, tables and plots.
        input_names: one per input; taken from a data frame's columns, else ``u`` or ``u1, u2, …``.
        output_names: likewise, ``y`` or ``y1, y2, …``.
    """

    u: Float[Array, "N nu"]
    y: Float[Array, "N ny"]
    sampling_time: float = 1.0
    name: str = "record"
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f'record "{self.name}"'
        u, input_names = _channels(self.u, self.input_names, "u", "input", where)
        y, output_names = _channels(self.y, self.output_names, "y", "output", where)
        if len(u) != len(y):
            raise DataError(
                f"{where}: u has {len(u)} rows but y has {len(y)}; "
                "inputs and outputs must be sampled together."
            )
        if len(set(input_names + output_names)) < len(input_names + output_names):
            raise DataError(
                f"{where}: channel names repeat: {', '.join(input_names + output_names)}."
            )
        if not (np.isfinite(self.sampling_time) and self.sampling_time > 0):
            raise DataError(
                f"{where}: the sampling time is {self.sampling_time}; it must be a positive number."
            )
        for field, value in (
            ("u", u),
            ("y", y),
            ("input_names", input_names),
            ("output_names", output_names),
            ("sampling_time", float(self.sampling_time)),
        ):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.u)

    def __getitem__(self, rows: slice) -> Record:
        """A contiguous piece, ``record[100:300]``, with the same names and sampling time."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise DataError(
                f'record "{self.name}": take pieces with record[start:stop]; '
                "to keep every k-th sample use decimate(k)."
            )
        return replace(self, u=self.u[rows], y=self.y[rows])

    def split(self, at: float | int) -> tuple[Record, Record]:
        """The record before and after ``at``: a share of the rows (0.7) or a row number (300)."""
        row = round(at * len(self)) if isinstance(at, float) else at
        if not 0 < row < len(self):
            raise DataError(
                f'record "{self.name}": cannot split at {at}; it has {len(self)} rows. '
                "Give a share between 0 and 1 or a row number inside the record."
            )
        return self[:row], self[row:]

    def decimate(self, factor: int) -> Record:
        """Every ``factor``-th sample after a zero-phase anti-aliasing filter."""
        from scipy.signal import decimate

        if factor < 1 or int(factor) != factor:
            raise DataError(
                f'record "{self.name}": cannot decimate by {factor}; give a whole number above 0.'
            )
        if factor == 1:
            return self
        taps = 20 * factor + 1  # the length of SciPy's default filter
        if len(self) <= taps:
            raise DataError(
                f'record "{self.name}": {len(self)} rows are too few to decimate by {factor}; '
                f"it needs more than {taps}."
            )
        u, y = (decimate(x, factor, ftype="fir", axis=0) for x in (self.u, self.y))
        return replace(self, u=u, y=y, sampling_time=self.sampling_time * factor)


def as_records(records: Record | Iterable[Record]) -> tuple[Record, ...]:
    """One record or several as a tuple of experiments with the same channels and sampling time."""
    found = (records,) if isinstance(records, Record) else tuple(records)
    if not found:
        raise DataError("no record was given.")
    first = found[0]
    for other in found:
        if not isinstance(other, Record):
            raise DataError(
                f"expected occamid.Record objects, got {type(other).__name__}; "
                "wrap the arrays: Record(u=..., y=...)."
            )
        for what, mine, theirs in (
            ("inputs", first.input_names, other.input_names),
            ("outputs", first.output_names, other.output_names),
            ("sampling time", first.sampling_time, other.sampling_time),
        ):
            if mine != theirs:
                raise DataError(
                    f'records "{first.name}" and "{other.name}" differ in their {what}: '
                    f"{mine} and {theirs}."
                )
    return found


def _channels(
    data: Any, names: Iterable[str], letter: str, kind: str, where: str
) -> tuple[Float[Array, "N n"], tuple[str, ...]]:
    """A validated read-only copy of ``data`` as columns, and a name for each."""
    columns = tuple(names) or tuple(str(c) for c in getattr(data, "columns", ()))
    values = _numbers(data, letter, where)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise DataError(
            f"{where}: {letter} has {values.ndim} dimensions; "
            "give (samples,) or (samples, channels)."
        )
    if 0 in values.shape:
        raise DataError(
            f"{where}: {letter} is empty (shape {values.shape}); at least one {kind} is needed."
        )
    if not columns:
        count = values.shape[1]
        columns = (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))
    if len(columns) != values.shape[1]:
        raise DataError(
            f"{where}: {len(columns)} {kind} names for {values.shape[1]} {kind} columns."
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{where}: {kind} {columns[column]} is {values[row, column]} at row {row} "
            f"({len(bad)} such values in all); remove or fill them first."
        )
    values.setflags(write=False)
    return values, columns


def _numbers(data: Any, letter: str, where: str) -> Float[Array, ...]:
    """``data`` as a new double-precision array; text is refused with its place."""
    raw = np.asarray(data)
    if raw.dtype.kind in "OUS":
        for place, value in np.ndenumerate(raw):
            try:
                float(value)
            except (TypeError, ValueError):
                raise DataError(
                    f"{where}: {letter} holds {value!r}, which is not a number, at row {place[0]}."
                ) from None
    if raw.dtype.kind not in "OUSbiuf":
        raise DataError(f"{where}: {letter} has type {raw.dtype}; real numbers are needed.")
    return np.array(raw, dtype=np.float64)
