"""Logs that a model is used on: inputs, outputs as far as they are measured, the file's own times.

The file is read as any other.  Two channels go along: which row of the file each row of the record
is, and whether its outputs are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from occamid.data.record import Record
from occamid.errors import OccamidError
from occamid.reading.choose import Chosen, Wanted, choose
from occamid.reading.clock import origin, seconds
from occamid.reading.columns import Table, numbers
from occamid.reading.experiments import FEWEST, experiments, pieces
from occamid.reading.files import _check_options
from occamid.reading.remarks import Remarks, one_line
from occamid.reading.steps import Options, Rows
from occamid.reading.tables import read_tables

Array = np.ndarray
ROW, MEASURED = "row of the file\0", "measured\0"  # no file has columns of these names


class Log(NamedTuple):
    """A record of a file.

    Attributes:
        record: its outputs are zero where they are not measured.
        measured: how many rows at its head have measured outputs.
        times: one for each row as the file writes it, or seconds from the file's first row.
        ends: seconds of its first and last row by the file's clock; none where it has none, or
            none that tells the day.
        pieces: how many records the file has.
    """

    record: Record
    measured: int
    times: list[Any]
    ends: tuple[float, float] | None = None
    pieces: int = 1

    @property
    def complete(self) -> bool:
        """Whether every output is measured."""
        return self.measured == len(self.record)


def read_log(
    path: Path,
    wanted: Wanted,
    options: Options,
    variable: str | None = None,
    *,
    ahead: bool,
    last: bool = False,
) -> Log:
    """A file with the columns of a model: its longest record, or the ``last`` one.

    With ``ahead`` outputs may end before the inputs do.
    """
    try:
        _check_options(wanted, options, variable)
        with np.errstate(all="ignore"):
            found = list(_logs(path, wanted, options, variable, ahead))
    except OccamidError as error:
        lines = [one_line(line) for line in str(error).split("\n  - ")]
        raise type(error)("\n  - ".join(lines)) from None
    log = found[-1] if last else max(found, key=lambda log: len(log.record))
    return log._replace(pieces=len(found))


def _logs(
    path: Path, wanted: Wanted, options: Options, variable: str | None, ahead: bool
) -> Iterator[Log]:
    for table in read_tables(path, variable):
        measured = np.ones(_length(table), dtype=bool)
        if ahead:
            table, measured = _filled(table, tuple(map(str, wanted.outputs)))
        table, chosen = choose(table, wanted)
        rows = pd.Series(np.arange(len(measured)))
        extra = {ROW: rows, MEASURED: pd.Series(measured.astype(np.float64))}
        table = replace(table, columns={**table.columns, **extra})
        both = chosen._replace(outputs=(*chosen.outputs, *extra))
        clock = cache(partial(_clock, table, chosen.time))  # read once, whatever the pieces
        remarks = Remarks()
        for part in _experiments(table, both, remarks):
            with remarks.collect():
                found = pieces(table, both, part, options, remarks)
            remarks.tell()
            yield from (_log(table, chosen, record, clock) for record in found)


def _experiments(table: Table, chosen: Chosen, remarks: Remarks) -> Iterator[Rows]:
    """As for an identification, but inputs of a few samples will do."""
    if chosen.experiment or _length(table) >= FEWEST:
        yield from experiments(table, chosen, remarks)
        return
    names = chosen.inputs + chosen.outputs
    values = np.column_stack([numbers(table, name) for name in names])
    t = seconds(table, chosen.time) if chosen.time else None
    yield Rows(table.path.stem, values, t, np.arange(len(values)))


def _length(table: Table) -> int:
    return max((len(column) for column in table.columns.values()), default=0)


def _filled(table: Table, outputs: tuple[str, ...]) -> tuple[Table, Bool[Array, " N"]]:
    """Zeros where outputs are not there, or blank from some row to the end, and what is measured.

    Blank cells between measured ones stay blank: they are refused or split as usual.
    """
    length = _length(table)
    there = {name: numbers(table, name) for name in outputs if name in table.columns}
    last = [np.flatnonzero(~np.isnan(values))[-1:] + 1 for values in there.values()]
    end = min((int(row[0]) if len(row) else 0 for row in last), default=0)
    if len(there) < len(outputs):
        end = 0
    after = np.arange(length) >= end
    columns = dict(table.columns)
    for name in outputs:
        values = there.get(name, np.zeros(length))
        columns[name] = pd.Series(np.where(after[: len(values)], 0.0, values))
    return replace(table, columns=columns), ~after


def _clock(table: Table, name: str | None) -> Float[Array, " N"] | None:
    """The seconds of every row, comparable between files; none where no column tells them."""
    first = None if name is None else origin(table, name)
    return None if name is None or first is None else first + seconds(table, name)


def _log(
    table: Table, chosen: Chosen, record: Record, clock: Callable[[], Float[Array, " N"] | None]
) -> Log:
    """A record without the channels that went along."""
    at, measured = record.y[:, -2], record.y[:, -1] > 1 - 1e-9
    names = record.output_names[:-2]
    units = record.output_units[:-2]
    record = replace(record, y=record.y[:, :-2], output_names=names, output_units=units)
    head = len(measured) if measured.all() else int(np.argmin(measured))
    t = clock()
    ends = None if t is None else tuple(np.interp(at[[0, -1]], np.arange(len(t)), t).tolist())
    return Log(record, head, _times(table, chosen, record, at), ends)


def _times(table: Table, chosen: Chosen, record: Record, at: Float[Array, " N"]) -> list[Any]:
    """The file's own times of rows; where dates were resampled, seconds from the first row."""
    if chosen.time is None:
        rows = at[1] - at[0] if len(at) > 1 else 1.0  # of the file in a step
        return (at * record.sampling_time / rows).tolist()
    column = table.columns[chosen.time].reset_index(drop=True)
    if pd.api.types.is_numeric_dtype(column):
        return np.interp(at, np.arange(len(column)), column.to_numpy(np.float64)).tolist()
    near = np.rint(at).astype(int)
    if np.allclose(at, near, atol=1e-9):
        return [_stamp(cell) for cell in column.iloc[near]]
    t = seconds(table, chosen.time)
    return (np.interp(at, np.arange(len(t)), t)).tolist()


def _stamp(cell: Any) -> Any:
    return cell.isoformat(sep=" ") if hasattr(cell, "hour") and hasattr(cell, "year") else cell
