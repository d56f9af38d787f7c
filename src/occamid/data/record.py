"""A record: inputs and outputs of one experiment, sampled evenly in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.errors import DataError

Array = np.ndarray
LARGEST = 1e100  # of a value: squares and sums of such values are still finite


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
            A plain string is one name.
        output_names: likewise, ``y`` or ``y1, y2, …``.
        input_units: for axes, one per input, or none at all.
        output_units: likewise.
        start: seconds between the start of the log that this is a piece of and the first sample.
        lead: rows at the head of which only the inputs are known: they are regressors, and what
            stands in their outputs is never looked at.
    """

    u: Float[Array, "N nu"]
    y: Float[Array, "N ny"]
    sampling_time: float = 1.0
    name: str = "record"
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    input_units: tuple[str, ...] = ()
    output_units: tuple[str, ...] = ()
    start: float = 0.0
    lead: int = 0

    def __post_init__(self) -> None:
        where = f'record "{self.name}"'
        u, input_names = _channels(self.u, self.input_names, "u", "input", where)
        y, output_names = _channels(self.y, self.output_names, "y", "output", where)
        if len(u) != len(y):
            raise DataError(
                f"{where}: u has {_count(len(u), 'row')} but y has {len(y)}; "
                "inputs and outputs must be sampled together."
            )
        if len(set(input_names + output_names)) < len(input_names + output_names):
            raise DataError(
                f"{where}: channel names repeat: {', '.join(input_names + output_names)}."
            )
        if not (_is(Real, self.sampling_time) and 0 < self.sampling_time < np.inf):
            raise DataError(
                f"{where}: the sampling time is {_shown(self.sampling_time)}; "
                "it must be a positive number."
            )
        input_units = _units(self.input_units, input_names, "input", where)
        output_units = _units(self.output_units, output_names, "output", where)
        for field, value in (
            ("u", u),
            ("y", y),
            ("input_names", input_names),
            ("output_names", output_names),
            ("input_units", input_units),
            ("output_units", output_units),
            ("sampling_time", float(self.sampling_time)),
            ("start", float(self.start)),
        ):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.u)

    def __getitem__(self, rows: slice) -> Record:
        """A contiguous piece, ``record[100:300]``, with the same names and sampling time."""
        ends = (rows.start, rows.stop) if isinstance(rows, slice) and rows.step in (None, 1) else ()
        if not ends or any(end is not None and not _is(Integral, end) for end in ends):
            raise DataError(
                f'record "{self.name}": take pieces with record[start:stop]; '
                "to keep every k-th sample use decimate(k)."
            )
        if len(self.u[rows]) == 0:
            piece = ":".join("" if end is None else str(end) for end in ends)
            raise DataError(
                f'record "{self.name}": record[{piece}] is empty; '
                f"it has {_count(len(self), 'row')}."
            )
        first = rows.indices(len(self))[0]
        start = self.start + first * self.sampling_time
        lead = max(0, self.lead - first)
        return replace(self, u=self.u[rows], y=self.y[rows], start=start, lead=lead)

    def split(self, at: float | int) -> tuple[Record, Record]:
        """The record before and after ``at``: a share of the rows (0.7) or a row number (300)."""
        row = 0
        if _is(Integral, at):
            row = int(at)
        elif _is(Real, at) and 0 < at < 1:
            row = round(float(at) * len(self))
        if not 0 < row < len(self):
            raise DataError(
                f'record "{self.name}": cannot split at {_shown(at)}; '
                f"it has {_count(len(self), 'row')}. "
                "Give a share between 0 and 1 or a row number inside the record."
            )
        return self[:row], self[row:]

    def later(self, delays: Sequence[int]) -> Record:
        """The record with every input moved by so many samples to the rows where it acts.

        Rows whose inputs came before the record are not in it any more.
        """
        most = max(delays)
        after = self[most:]
        rows = np.arange(most, len(self))[:, None] - np.asarray(delays)
        return replace(after, u=self.u[rows, np.arange(self.u.shape[1])])

    def decimate(self, factor: int) -> Record:
        """Every ``factor``-th sample after a zero-phase anti-aliasing filter."""
        from scipy.signal import decimate

        if not (_is(Integral, factor) and factor > 0):
            raise DataError(
                f'record "{self.name}": cannot decimate by {_shown(factor)}; '
                "give a whole number above 0."
            )
        if factor == 1:
            return self
        factor = int(factor)
        taps = 20 * factor + 1  # the length of SciPy's default filter
        if len(self) <= taps:
            raise DataError(
                f'record "{self.name}": {len(self)} rows are too few to decimate by {factor}; '
                f"it needs more than {taps}."
            )
        # SciPy takes the signal as zero outside the record: half a filter is added and cut again.
        around = ((10 * factor, 10 * factor), (0, 0))
        u, y = (
            decimate(
                np.pad(x, around, mode="reflect", reflect_type="odd"), factor, ftype="fir", axis=0
            )[10:-10]
            for x in (self.u, self.y)
        )
        return replace(self, u=u, y=y, sampling_time=self.sampling_time * factor)


def as_record(data: Any) -> Record:
    """A record from an object with ``u``, ``y`` and, where it has them, a sampling time and name.

    Made for ``Input_output_data`` of the package nonlinear_benchmarks.  Its
    ``state_initialization_window_length`` is not kept: give it to a simulation as the number of
    outputs that it may know.
    """
    if isinstance(data, Record):
        return data
    u, y = getattr(data, "u", None), getattr(data, "y", None)
    if u is None or y is None:
        missing = " and ".join(n for n, v in (("u", u), ("y", y)) if v is None)
        raise DataError(
            f"expected an object with u and y, got {type(data).__name__} without {missing}; "
            "wrap the arrays: Record(u=..., y=...)."
        )
    step, name = getattr(data, "sampling_time", None), getattr(data, "name", None)
    return Record(u=u, y=y, sampling_time=1.0 if step is None else step, name=str(name or "record"))


def as_records(records: Record | Iterable[Record]) -> tuple[Record, ...]:
    """One record or several as a tuple of experiments with the same channels and sampling time.

    Whatever :func:`as_record` takes counts as a record.
    """
    several = isinstance(records, Iterable) and not hasattr(records, "u")
    found = tuple(as_record(r) for r in (records if several else (records,)))  # type: ignore[union-attr]
    if not found:
        raise DataError("no record was given.")
    first = found[0]
    for other in found:
        for what, mine, theirs in (
            ("inputs", first.input_names, other.input_names),
            ("outputs", first.output_names, other.output_names),
            ("sampling time", (first.sampling_time,), (other.sampling_time,)),
        ):
            if mine != theirs:
                raise DataError(
                    f'records "{first.name}" and "{other.name}" differ in their {what}: '
                    f"{', '.join(map(str, mine))} and {', '.join(map(str, theirs))}."
                )
    return found


def _channels(
    data: Any, names: Any, letter: str, kind: str, where: str
) -> tuple[Float[Array, "N n"], tuple[str, ...]]:
    """A validated read-only copy of ``data`` as columns, and a name for each."""
    raw = _table(data, letter, kind, where)
    count = raw.shape[1]
    columns = _names(names, kind, where) or tuple(str(c) for c in getattr(data, "columns", ()))
    if not columns:
        columns = (letter,) if count == 1 else tuple(f"{letter}{i + 1}" for i in range(count))
    if len(columns) != count:
        raise DataError(
            f"{where}: {_count(len(columns), f'{kind} name')} for "
            f"{_count(count, f'{kind} column')}."
        )
    if raw.dtype.kind in "OUS":
        for (row, column), value in np.ndenumerate(raw):
            if not _converts(value):
                raise DataError(
                    f"{where}: {kind} {columns[column]} holds {_shown(value)}, "
                    f"which is not a number, at row {row}."
                )
    values = np.array(raw, dtype=np.float64)
    bad = np.argwhere(~(np.abs(values) <= LARGEST))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{where}: {kind} {columns[column]} is {values[row, column]} at row {row} "
            f"({_count(len(bad), 'such value')} in all); "
            f"remove or fill {'it' if len(bad) == 1 else 'them'} first."
        )
    values.setflags(write=False)
    return values, columns


def _table(data: Any, letter: str, kind: str, where: str) -> Array:
    """``data`` as an array of columns that may still hold text; masked values become NaN."""
    if isinstance(data, np.ma.MaskedArray):
        data = np.ma.filled(data.astype(object), np.nan)
    try:
        raw = np.asarray(data)
    except ValueError:
        raise DataError(f"{where}: {letter} has rows of different lengths.") from None
    if raw.ndim not in (1, 2):
        raise DataError(
            f"{where}: {letter} has {raw.ndim} dimensions; give (samples,) or (samples, channels)."
        )
    if len(raw) == 0:
        raise DataError(f"{where}: {letter} has no samples.")
    if raw.size == 0:
        raise DataError(
            f"{where}: {letter} is empty (shape {raw.shape}); at least one {kind} is needed."
        )
    if raw.dtype.kind not in "OUSbiuf":
        raise DataError(f"{where}: {letter} has type {raw.dtype}; real numbers are needed.")
    return raw.reshape(len(raw), -1)


def _names(names: Any, kind: str, where: str) -> tuple[str, ...]:
    """Channel names as given; a plain string is one name."""
    several = isinstance(names, Iterable) and not isinstance(names, str)
    found = tuple(names) if several else (names,)
    for name in found:
        if not isinstance(name, str):
            raise DataError(f"{where}: {kind} names must be text (got {_shown(name)}).")
    return found


def _units(units: Any, names: tuple[str, ...], kind: str, where: str) -> tuple[str, ...]:
    """A unit for each channel, or none."""
    found = _names(units, kind, where)
    if found and len(found) != len(names):
        raise DataError(
            f"{where}: {_count(len(found), f'{kind} unit')} for {_count(len(names), kind)}."
        )
    return found if any(found) else ()


def _converts(value: Any) -> bool:
    """Whether an entry of a text or object array is a number."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is(kind: type, value: Any) -> bool:
    """Whether this is a number of the kind, Python's or NumPy's; true and false are not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """A value as Python writes it, without NumPy's type."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _count(number: int, word: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number} {word}{'' if number == 1 else 's'}"
