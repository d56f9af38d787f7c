"""Records from files: which rows and columns become experiments, checked and in even steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from occamid.data.findings import Finding
from occamid.data.record import Record
from occamid.errors import DataError, OccamidError, SettingsError, check_choice
from occamid.reading.assets import Asset, asset_tables
from occamid.reading.choose import Chosen, Key, Wanted, choose
from occamid.reading.columns import Table
from occamid.reading.experiments import SAME_STEP, Gaps, Options, experiments, pieces
from occamid.reading.remarks import Remarks, one_line
from occamid.reading.tables import read_tables


def read(
    paths: Path | str | Sequence[Path | str],
    *,
    inputs: Sequence[Key] = (),
    outputs: Sequence[Key] = (),
    time: Key | None = None,
    sampling_time: float | None = None,
    experiment: Key | None = None,
    resample: float | bool | None = None,
    gaps: Gaps = "error",
    variable: str | None = None,
    constant: bool = False,
) -> tuple[Record, ...]:
    """Read experiments from one file or several: CSV and other text, Excel, Parquet, MATLAB, …

    A column is named as in the header; a whole number is a position counted from 1, as in
    spreadsheets (a name wins over a position).  Rows in messages are lines of a text file, rows of
    a sheet, and samples counted from 1 elsewhere.

    Args:
        paths: files; each is one experiment or more, named after the file.
        inputs: columns, or matrices of a MATLAB, NumPy or HDF5 file; default: u, u1, u2, …
        outputs: likewise; default: y, y1, y2, …
        time: column of seconds or timestamps; default: one called t, time, date, …
        sampling_time: seconds between rows; a time column is then not used.  Without either, the
            file's own Ts, dt or fs counts, else 1 s.
        experiment: column whose value tells experiments apart; default: one called experiment.
        resample: interpolate linearly to even steps of this many seconds, or of the usual step
            (true).  Missing rows are bridged unless ``gaps`` is split.
        gaps: at empty cells and missing rows, stop with an error, split the record, or fill
            up to three empty cells in a row of a column and split at longer gaps.
        variable: struct or variable of a MATLAB, NumPy or HDF5 file; sheet of a workbook.
        constant: whether a channel that never changes will do, as in data to simulate.
    """
    told = {k: v for k, v in locals().items() if k != "paths"}
    return examine(paths, **told).records


class Reading(NamedTuple):
    """Records, and what was noticed about the files they are from."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...]


def examine(
    paths: Path | str | Sequence[Path | str],
    *,
    lenient: bool = False,
    inputs: Sequence[Key] = (),
    outputs: Sequence[Key] = (),
    constant: bool = False,
    variable: str | None = None,
    asset: Asset | None = None,
    **told: Any,
) -> Reading:
    """What :func:`read` reads, and findings about gaps, clocks, empty cells and units.

    ``lenient`` makes a finding of whatever a record can still be made from: gaps, uneven steps,
    channels that never change.  Of a file with many assets only the
    rows of ``asset`` are read.  The other arguments are those of :func:`read`.
    """
    try:
        files = _paths(paths)
        step, resample = told.get("sampling_time"), told.get("resample")
        wanted = Wanted(
            _keys(inputs, "inputs"), _keys(outputs, "outputs"), told.get("time"),
            told.get("experiment"), timed=step is None,
        )  # fmt: skip
        gaps: Gaps = "split" if lenient else told.get("gaps", "error")
        options = Options(step, None if resample is False else resample, gaps, lenient)
        _check_options(wanted, options, variable)
        remarks = Remarks()
        with np.errstate(all="ignore"):  # numbers beyond all measure are refused by name
            tables: Callable[[Path], list[Table]] = partial(read_tables, variable=variable)
            if asset is not None:
                tables = partial(asset_tables, asset=asset, variable=variable)
            records = _records(files, wanted, options, tables, remarks)
            if not constant and not lenient:
                _check_constant(records)
            found = _distinct_names(same_step(records))
            return Reading(found, tuple(dict.fromkeys(remarks.notes)))
    except OccamidError as error:
        lines = [one_line(line) for line in str(error).split("\n  - ")]
        raise type(error)("\n  - ".join(lines)) from None


def _records(
    files: Sequence[Path],
    wanted: Wanted,
    options: Options,
    tables: Callable[[Path], list[Table]],
    remarks: Remarks,
) -> list[Record]:
    """All files, one after the other; what is wrong with any of them is told at the end."""
    found: list[Record] = []
    first: tuple[Path, Chosen] | None = None
    for path in files:
        with remarks.collect():
            for table in tables(path):
                table, chosen = choose(table, wanted)
                remarks.notes += table.notes
                first = first or (path, chosen)
                _check_same_columns(first, (path, chosen))
                for rows in experiments(table, chosen, remarks):
                    with remarks.collect():
                        found += pieces(table, chosen, rows, options, remarks)
    remarks.tell()
    return found


def _check_same_columns(first: tuple[Path, Chosen], other: tuple[Path, Chosen]) -> None:
    for what in ("inputs", "outputs"):
        mine, theirs = getattr(first[1], what), getattr(other[1], what)
        if mine != theirs:
            raise DataError(
                f"{first[0]} and {other[0]} differ in their {what}: {', '.join(mine)} and "
                f"{', '.join(theirs)}; the same columns are needed in each file."
            )


def _check_constant(records: Sequence[Record]) -> None:
    """Refuse inputs and outputs that never change in any record."""
    problems = Remarks()
    for kind, names in (("input", records[0].input_names), ("output", records[0].output_names)):
        for k, name in enumerate(names):
            low, high = np.inf, -np.inf
            for record in records:
                column = (record.u if kind == "input" else record.y)[:, k]
                low, high = min(low, column.min()), max(high, column.max())
            if high - low <= 1e-12 * max(abs(low), abs(high)):
                with problems.collect():
                    raise DataError(
                        f"{kind} {name} is constant ({low:g}) in all records; leave it out or use "
                        "a record in which it moves."
                    )
    problems.tell()


def same_step(records: Sequence[Record]) -> list[Record]:
    """Records with the sampling time of the first, from which they may differ by rounding."""
    first = records[0]
    for other in records:
        if abs(other.sampling_time - first.sampling_time) > SAME_STEP * first.sampling_time:
            raise DataError(
                f'records "{first.name}" and "{other.name}" differ in their sampling time: '
                f"{first.sampling_time:g} and {other.sampling_time:g} s; bring them to the same "
                "steps with `resample=SECONDS`."
            )
    return [replace(record, sampling_time=first.sampling_time) for record in records]


def _distinct_names(records: Sequence[Record]) -> tuple[Record, ...]:
    """Records of files that are called the same in different folders get a number."""
    seen: dict[str, int] = {}
    named = []
    for record in records:
        seen[record.name] = seen.get(record.name, 0) + 1
        count = seen[record.name]
        named.append(record if count == 1 else replace(record, name=f"{record.name} #{count}"))
    return tuple(named)


def _paths(paths: Any) -> list[Path]:
    several = isinstance(paths, Iterable) and not isinstance(paths, str | bytes | os.PathLike)
    found = list(paths) if several else [paths]
    if not found:
        raise SettingsError("no file was given.")
    for path in found:
        if not isinstance(path, str | os.PathLike):
            raise SettingsError(f"a file is named by its path, not by {path!r}.")
    return [Path(path) for path in found]


def _keys(keys: Any, option: str) -> tuple[Key, ...]:
    """Columns as given; a plain string or number is one column."""
    if isinstance(keys, Iterable) and not isinstance(keys, str | bytes):
        return tuple(keys)
    if keys is None or isinstance(keys, bytes):
        raise SettingsError(f"`{option}` takes names of columns, not {keys!r}.")
    return (keys,)


def _check_options(wanted: Wanted, options: Options, variable: Any) -> None:
    """Refuse impossible settings before a file is opened."""
    check_choice("gaps", options.gaps, get_args(Gaps))
    for name, value in (("sampling_time", options.sampling_time), ("resample", options.resample)):
        if value is None or (name == "resample" and value is True):
            continue
        if isinstance(value, bool) or not (isinstance(value, Real) and 0 < value < np.inf):
            raise SettingsError(f"`{name}` takes a positive number of seconds, not {value!r}.")
    if options.sampling_time is not None and wanted.time is not None:
        raise SettingsError("give `time` or `sampling_time`, not both.")
    if options.sampling_time is not None and options.resample is not None:
        raise SettingsError("`resample` needs the time column, which `sampling_time` replaces.")
    if variable is not None and not isinstance(variable, str):
        raise SettingsError(f"`variable` takes a name, not {variable!r}.")
