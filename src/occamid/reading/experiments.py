"""Experiments in a table: which rows belong together, their steps, and the pieces between gaps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from occamid.data.record import Record
from occamid.errors import DataError, SettingsError
from occamid.reading.choose import Chosen
from occamid.reading.clock import Pace, pace, resampled, seconds
from occamid.reading.columns import Table, counted, numbers

Array = np.ndarray
Gaps = Literal["error", "split"]
FEWEST = 10  # rows of an experiment
SHORTEST = 2  # rows of a piece between gaps
SAME_STEP = 1e-3  # relative; what two statements of the sampling time may differ in


class Options(NamedTuple):
    """What to do with time."""

    sampling_time: float | None
    resample: float | bool | None
    gaps: Gaps


class Rows(NamedTuple):
    """The rows of one experiment in a table."""

    name: str
    values: Float[Array, "N n"]  # inputs, then outputs
    t: Float[Array, " N"] | None
    places: Array  # the same rows, counted in the table


def experiments(table: Table, chosen: Chosen) -> Iterator[Rows]:
    """The rows of each experiment."""
    names = chosen.inputs + chosen.outputs
    stem = f"{table.path.stem} {table.part}".strip()
    columns = (*names, *(n for n in (chosen.time, chosen.experiment) if n))
    lengths = {name: len(table.columns[name]) for name in columns}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise DataError(f"{table.path}: the columns differ in length ({described}).")
    values = np.column_stack([numbers(table, name) for name in names])
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
    labels = column.map(_label)
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


def pieces(table: Table, chosen: Chosen, rows: Rows, options: Options) -> list[Record]:
    """The records of one experiment: one, or the pieces between gaps."""
    if options.gaps == "error":
        _refuse_missing(table, chosen, rows)
    if rows.t is not None:  # a row without a time leaves a gap in the others
        timed = np.isfinite(rows.t)
        rows = Rows(rows.name, rows.values[timed], rows.t[timed], rows.places[timed])
    step, missing = _steps(table, chosen, rows, options)
    if options.gaps == "error":
        missing[:] = False  # those left are bridged by resampling
    whole = np.isfinite(rows.values).all(axis=1)
    ends = np.flatnonzero(missing | ~whole[:-1] | ~whole[1:]) + 1
    parts = [p for p in np.split(np.arange(len(whole)), ends) if len(p) >= SHORTEST]
    if not parts:
        raise DataError(
            f"{table.path}: between the gaps of {rows.name} no {SHORTEST} rows are left together."
        )
    return [
        _record(rows, part, chosen, step, options, f" #{k}" if len(parts) > 1 else "")
        for k, part in enumerate(parts, 1)
    ]


def _record(
    rows: Rows, piece: Array, chosen: Chosen, step: float, options: Options, suffix: str
) -> Record:
    values = rows.values[piece]
    if options.resample is not None and rows.t is not None:
        values = resampled(rows.t[piece], values, step)
    count = len(chosen.inputs)
    return Record(
        u=values[:, :count],
        y=values[:, count:],
        sampling_time=step,
        name=rows.name + suffix,
        input_names=chosen.inputs,
        output_names=chosen.outputs,
    )


def _steps(
    table: Table, chosen: Chosen, rows: Rows, options: Options
) -> tuple[float, Bool[Array, " M"]]:
    """The sampling time, and after which rows others are missing."""
    t, places = rows.t, rows.places
    none = np.zeros(max(len(rows.values) - 1, 0), dtype=bool)
    if t is None and options.resample is not None:
        raise SettingsError(f"{table.path}: `resample` needs a time column; name it with `time`.")
    if t is None or len(t) < SHORTEST:
        return options.sampling_time or table.sampling_time or 1.0, none
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(back):
        k = int(back[0])
        raise DataError(
            f"{table.path}: column {chosen.time} does not increase at "
            f"{table.place(int(places[k + 1]))} (from {t[k]:.9g} to {t[k + 1]:.9g} s); sort the "
            "rows, tell experiments apart with `experiment`, or use `sampling_time`."
        )
    found = pace(t)
    if options.resample is not None:
        return found.step if options.resample is True else float(options.resample), found.gaps
    _refuse_uneven(table, chosen, t, places, found)
    if options.gaps == "error":
        _refuse_gaps(table, t, places, found)
    return found.step, found.gaps


def _refuse_uneven(
    table: Table, chosen: Chosen, t: Float[Array, " N"], places: Array, found: Pace
) -> None:
    """Name the most uneven step, or a sampling time in the file that the steps contradict."""
    if found.worst is not None:
        raise DataError(
            f"{table.path}: the sampling is uneven: the step to "
            f"{table.place(int(places[found.worst]))} is "
            f"{t[found.worst] - t[found.worst - 1]:.4g} s, {found.deviation:.2%} off the usual "
            f"{found.step:.4g} s; interpolate to even steps with `resample`."
        )
    stated = table.sampling_time
    if stated is not None and abs(stated - found.step) > SAME_STEP * found.step:
        raise DataError(
            f"{table.path}: the file states a sampling time of {stated:g} s, but column "
            f"{chosen.time} has steps of {found.step:g} s; give the right one with `sampling_time`."
        )


def _refuse_gaps(table: Table, t: Float[Array, " N"], places: Array, found: Pace) -> None:
    """Name the first place where rows are missing."""
    gaps = np.flatnonzero(found.gaps)
    if not len(gaps):
        return
    k = int(gaps[0])
    missing = max(round((t[k + 1] - t[k]) / found.step) - 1, 1)
    raise DataError(
        f"{table.path}: {counted(missing, 'row')} missing before "
        f"{table.place(int(places[k + 1]))}: the time goes from {t[k]:.9g} to {t[k + 1]:.9g} s "
        f"where the step is {found.step:.4g} s ({counted(len(gaps), 'gap')} in all); read the "
        'pieces with `gaps="split"` or bridge the gaps with `resample`.'
    )


def _refuse_missing(table: Table, chosen: Chosen, rows: Rows) -> None:
    """Name the first empty cell."""
    names = (*chosen.inputs, *chosen.outputs, *([chosen.time] if chosen.time else []))
    cells = rows.values if rows.t is None else np.column_stack([rows.values, rows.t])
    bad = ~np.isfinite(cells)
    if not bad.any():
        return
    row, column = (int(k) for k in np.argwhere(bad)[0])
    value = cells[row, column]
    what = "has no value" if np.isnan(value) else f"is {value:g}"
    raise DataError(
        f"{table.path}: column {names[column]} {what} at {table.place(int(rows.places[row]))} "
        f"({counted(int(bad.sum()), 'such cell')} in all); fill it, or read the pieces between "
        'gaps with `gaps="split"`.'
    )


def _label(value: Any) -> str:
    """The value of an experiment column in a name: 2.0 is 2."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
