"""Experiments in a table: which rows belong together, and the pieces between gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from occamid.data.findings import Finding
from occamid.data.record import LARGEST, Record
from occamid.errors import DataError
from occamid.reading.choose import Chosen
from occamid.reading.clock import resampled, seconds
from occamid.reading.columns import Table, counted, numbers
from occamid.reading.remarks import Remarks
from occamid.reading.steps import SAME_STEP, SHORTEST, Gaps, Options, Rows, Steps, steps

__all__ = ["SAME_STEP", "Gaps", "Options", "experiments", "pieces"]
Array = np.ndarray
FEWEST = 10  # rows of an experiment
FILLED = 3  # empty cells in a row of a column that are filled if asked for


def experiments(table: Table, chosen: Chosen, remarks: Remarks) -> Iterator[Rows]:
    """The rows of each experiment; a column that cannot be read is collected as a problem."""
    names = chosen.inputs + chosen.outputs
    stem = f"{table.path.stem} {table.part}".strip()
    columns = (*names, *(n for n in (chosen.time, chosen.experiment) if n))
    lengths = {name: len(table.columns[name]) for name in columns}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise DataError(f"{table.path}: the columns differ in length ({described}).")
    values = np.zeros((lengths[names[0]], len(names)))
    for k, name in enumerate(names):
        with remarks.collect():
            values[:, k] = numbers(table, name)
    t = None
    with remarks.collect():
        t = seconds(table, chosen.time) if chosen.time else None
    groups = [("", np.arange(len(values)))]
    if chosen.experiment:
        groups = _groups(table, chosen.experiment)
    for label, rows in groups:
        if len(rows) < FEWEST:
            raise DataError(
                f"{table.path}: {f'experiment {label}' if label else 'the table'} has "
                f"{counted(len(rows), 'row')} of data; at least {FEWEST} are needed."
            )
        name = f"{stem} {label}".strip()
        yield Rows(name, values[rows], None if t is None else t[rows], rows)


def _groups(table: Table, name: str) -> list[tuple[str, Array]]:
    """The rows of each value of the experiment column, which must stand together."""
    column = table.columns[name].reset_index(drop=True)
    empty = np.flatnonzero(column.isna().to_numpy())
    if len(empty):
        raise DataError(
            f"{table.path}: column {name} has no value at {table.place(int(empty[0]))}; each row "
            "must belong to an experiment."
        )
    labels = column.map(label_of)
    starts = np.flatnonzero((labels != labels.shift()).to_numpy())
    runs = np.split(np.arange(len(labels)), starts[1:])
    seen: set[str] = set()
    for start in starts:
        label = labels.iloc[start]
        if label in seen:
            raise DataError(
                f"{table.path}: experiment {label} starts again at {table.place(int(start))}; the "
                "rows of an experiment must follow each other."
            )
        seen.add(label)
    return [(labels.iloc[s], rows) for s, rows in zip(starts, runs, strict=True)]


def pieces(
    table: Table, chosen: Chosen, rows: Rows, options: Options, remarks: Remarks
) -> list[Record]:
    """The records of one experiment: one, or the pieces between gaps."""
    if options.gaps == "error":
        with remarks.collect():
            _refuse_missing(table, chosen, rows)
        if rows.t is not None and not np.isfinite(rows.t).all():
            return []  # the steps between the others say nothing
    else:
        if options.gaps == "fill":
            rows = _filled(table, rows, remarks)
        _note_missing(table, chosen, rows, remarks)
    if rows.t is not None:  # a row without a time leaves a gap in the others
        rows = rows.only(np.isfinite(rows.t))
    on = steps(table, chosen, rows, options, remarks)
    if remarks.errors:
        return []
    missing = on.missing
    if options.gaps == "error":
        missing = np.zeros_like(missing)  # those left are bridged by resampling
    whole = np.all(_usable(on.rows.values), axis=1)
    ends = np.flatnonzero(missing | ~whole[:-1] | ~whole[1:]) + 1
    parts = [p for p in np.split(np.arange(len(whole)), ends) if len(p) >= SHORTEST]
    if not parts:
        raise DataError(
            f"{table.path}: between the gaps of {rows.name} no {SHORTEST} rows are left together."
        )
    return [
        _record(table, on, part, chosen, f" #{k}" if len(parts) > 1 else "")
        for k, part in enumerate(parts, 1)
    ]


def _filled(table: Table, rows: Rows, remarks: Remarks) -> Rows:
    """Short runs of empty cells, each between two measurements of its column, interpolated."""
    values, at = rows.values.copy(), np.arange(len(rows))
    t = at.astype(float) if rows.t is None else rows.t
    longest = (FILLED + 1.5) * np.nanmedian(np.diff(t)) if len(t) > 1 else 0.0
    for column in values.T:
        known = np.flatnonzero(_usable(column) & np.isfinite(t))
        if len(known) < 2:
            continue
        after = np.clip(np.searchsorted(known, at), 1, len(known) - 1)
        low, high = known[after - 1], known[after]
        span = t[high] - t[low]
        short = np.isnan(column) & (low < at) & (at < high) & (high - low <= FILLED + 1)
        short &= (span > 0) & (span <= longest)
        column[short] = np.interp(t[short], t[known], column[known])
    new = np.isnan(rows.values) & ~np.isnan(values)
    if new.any():
        first = int(np.flatnonzero(new.any(axis=1))[0])
        remarks.notes.append(
            Finding(
                "filled", "note", "", f"{counted(int(new.sum()), 'empty cell')} interpolated",
                f"no more than {FILLED} in a row of one column", record=rows.name,
                place=f"{table.path.name}: {table.place(int(rows.places[first]))}",
            )
        )  # fmt: skip
    return Rows(rows.name, values, rows.t, rows.places)


def _record(table: Table, on: Steps, piece: Array, chosen: Chosen, suffix: str) -> Record:
    values, start = on.rows.values[piece], float(piece[0]) * on.step
    if on.clock is not None and on.rows.t is not None:
        start = float(on.rows.t[piece[0]] - on.rows.t[0])
        if on.resample:
            values = resampled(on.clock[piece], values, on.step)
    count = len(chosen.inputs)
    return Record(
        u=values[:, :count],
        y=values[:, count:],
        sampling_time=on.step,
        name=on.rows.name + suffix,
        input_names=chosen.inputs,
        output_names=chosen.outputs,
        input_units=tuple(table.units.get(name, "") for name in chosen.inputs),
        output_units=tuple(table.units.get(name, "") for name in chosen.outputs),
        start=start,
    )


def _usable(cells: Float[Array, "N n"]) -> Bool[Array, "N n"]:
    """Which cells hold a number that can be a measurement."""
    return np.abs(cells) <= LARGEST


def _cells(chosen: Chosen, rows: Rows) -> tuple[tuple[str, ...], Float[Array, "N n"]]:
    """The cells of an experiment, the times in the last column, and the names of the columns."""
    names = (*chosen.inputs, *chosen.outputs)
    if rows.t is None or chosen.time is None:
        return names, rows.values
    return (*names, chosen.time), np.column_stack([rows.values, rows.t])


def _note_missing(table: Table, chosen: Chosen, rows: Rows, remarks: Remarks) -> None:
    """A finding about cells that are empty or hold a number beyond all measure."""
    names, cells = _cells(chosen, rows)
    bad = ~_usable(cells)
    at = np.flatnonzero(bad.any(axis=1))
    if not len(at):
        return
    counts = {name: int(n) for name, n in zip(names, bad.sum(axis=0), strict=True) if n}
    huge = cells[bad & ~np.isnan(cells)]
    said = ", ".join(f"{n} of {name}" for name, n in counts.items())
    beyond = f"; {len(huge)} hold no measurement, such as {huge[0]:g}" if len(huge) else ""
    place = f"{table.path.name}: {table.place(int(rows.places[at[0]]))}"
    remarks.notes.append(
        Finding(
            "blank", "advice", ", ".join(counts),
            f"{counted(int(bad.sum()), 'cell')} without a value ({said}){beyond}",
            "the record is cut at rows that are not whole",
            "fill short gaps with prepare", rows.name,
            place=place + (" and others" if len(at) > 1 else ""),
        )
    )  # fmt: skip


def _refuse_missing(table: Table, chosen: Chosen, rows: Rows) -> None:
    """Name the first cell that is empty or holds no measurement."""
    names, cells = _cells(chosen, rows)
    bad = ~_usable(cells)
    if not bad.any():
        return
    row, column = (int(k) for k in np.argwhere(bad)[0])
    value = cells[row, column]
    what = "has no value" if np.isnan(value) else f"is {value:g}"
    raise DataError(
        f"{table.path}: column {names[column]} {what} at {table.place(int(rows.places[row]))} "
        f"({counted(int(bad.sum()), 'such cell')} in all); fill it, or read the pieces between "
        'gaps with `gaps="split"`, or have short gaps filled with `gaps="fill"`.'
    )


def label_of(value: Any) -> str:
    """The value of an experiment column in a name: 2.0 is 2."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
