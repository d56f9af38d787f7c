"""Files to tables: which reader a file needs, and what to say where none can read it."""

from __future__ import annotations

import importlib
import io
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.reading.archives import MOST_BYTES, MOST_CELLS, MOST_ROWS, check_workbook, too_large
from occamid.reading.arrays import read_hdf5, read_mat, read_mat73, read_npz
from occamid.reading.columns import (
    Table,
    clock_seconds,
    closest,
    column_names,
    is_data,
    listed,
    noted_units,
    units_row,
    without_empty_end,
)
from occamid.reading.text import read_text

KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".dat", ".asc", ".prn", ".log"), "text"),
    **dict.fromkeys((".xlsx", ".xlsm"), "Excel"),
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), "HDF5"),
    ".mat": "MATLAB",
    ".npz": "NumPy",
}
# What a file is, from its first bytes, and the endings that such a file may have.
SIGNATURES = (
    (b"PK\x03\x04", "ZIP", ("Excel", "NumPy")),
    (b"PK\x05\x06", "ZIP", ("Excel", "NumPy")),
    (b"PAR1", "Parquet", ("Parquet",)),
    (b"\x89HDF\r\n\x1a\n", "HDF5", ("HDF5", "MATLAB")),
    (b"MATLAB ", "MATLAB", ("MATLAB",)),
    (b"\xd0\xcf\x11\xe0", "OLE", ()),
    (b"\x1f\x8b", "gzip", ()),
    (b"%PDF", "PDF", ()),
)
ENDINGS = {"Parquet": ".parquet", "HDF5": ".h5", "MATLAB": ".mat", "Excel": ".xlsx"}
SHEET_PEEK = 20  # rows that show whether a sheet holds anything


def read_tables(path: Path, variable: str | None = None) -> list[Table]:
    """The tables in a file.

    Args:
        path: CSV, TSV or other delimited text; Excel (.xlsx); Parquet; MATLAB (.mat); NumPy (.npz);
            HDF5.
        variable: which variable or struct of a MATLAB, NumPy or HDF5 file, or which sheet of a
            workbook.
    """
    kind = _kind(path)
    if variable is not None and kind in ("text", "Parquet"):
        raise SettingsError(
            f"{path}: `variable` is for sheets and variables; this file holds one table."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _reader(path, kind, variable)()
    except OccamidError:
        raise
    except MemoryError:
        raise FileError(f"{path}: the file is damaged or does not fit into memory.") from None
    except PermissionError:
        raise FileError(f"{path}: the file cannot be read: permission denied.") from None
    except Exception:  # a damaged file makes the libraries raise anything at all
        raise FileError(
            f"{path}: the file is damaged, cut short or no {kind} file; save or copy it again."
        ) from None


def read_excel(path: Path, sheet: str | None = None) -> Table:
    """A sheet of a workbook: the only one that holds anything, or the one named."""
    openpyxl = _library("openpyxl", path)
    check_workbook(path)
    with path.open("rb") as file:
        book = openpyxl.load_workbook(io.BytesIO(file.read()), read_only=True, data_only=True)
    sheets = {s.title: s for s in book.worksheets}
    for s in sheets.values():
        s.reset_dimensions()  # some programs state them wrongly
    if sheet is not None and sheet not in sheets:
        raise SettingsError(
            f"{path}: there is no sheet {sheet!r}.{closest(sheet, list(sheets))} "
            f"The workbook has {listed(list(sheets))}."
        )
    chosen = [sheet] if sheet is not None else [n for n, s in sheets.items() if _filled(s)]
    if len(chosen) > 1:
        raise DataError(
            f"{path}: several sheets hold data ({listed(chosen)}); name one with `variable`."
        )
    rows = _rows(path, sheets[chosen[0]]) if chosen else []
    book.close()
    return _sheet_table(path, rows)


def read_parquet(path: Path) -> Table:
    """A Parquet file; an index that pandas stored is a column."""
    _library("pyarrow", path)
    parquet = importlib.import_module("pyarrow.parquet")
    with path.open("rb") as file:
        table = parquet.ParquetFile(file)
        if 8 * table.metadata.num_rows * table.metadata.num_columns > MOST_BYTES:
            raise too_large(path)
        frame = table.read(use_threads=False).to_pandas(ignore_metadata=True)
    names = column_names(path, list(frame.columns), "the file")
    frame.columns = names
    if not len(frame.columns) or not len(frame):
        raise DataError(f"{path}: the file holds no rows of data.")
    return Table(path=path, columns={name: frame[name] for name in names})


def _reader(path: Path, kind: str, variable: str | None) -> Callable[[], list[Table]]:
    """The reader of a kind, with its optional library."""
    if kind == "text":
        return lambda: [read_text(path)]
    if kind == "Excel":
        return lambda: [read_excel(path, variable)]
    if kind == "Parquet":
        return lambda: [read_parquet(path)]
    if kind == "NumPy":
        return lambda: read_npz(path, variable)
    if kind == "MATLAB" and not _begins(path, b"\x89HDF") and not _begins(path, b"MATLAB 7.3"):
        return lambda: read_mat(path, variable)
    read = read_hdf5 if kind == "HDF5" else read_mat73
    return lambda: read(path, variable, _library("h5py", path))


def _kind(path: Path) -> str:
    """What the ending says a file is, after a look at its first bytes."""
    _check_readable(path)
    ending = path.suffix.lower()
    if ending == ".xls":
        raise FileError(
            f"{path}: the old .xls format cannot be read; save the workbook as .xlsx or CSV."
        )
    if ending not in KINDS:
        raise FileError(
            f"{path}: files ending in {ending or 'nothing'} are not known; give one of "
            f"{', '.join(KINDS)}."
        )
    for begin, content, allowed in SIGNATURES:
        if _begins(path, begin) and KINDS[ending] not in allowed:
            raise FileError(f"{path}: {_what_it_is(path, content)}.")
    return KINDS[ending]


def _what_it_is(path: Path, content: str) -> str:
    """A file whose content is not what its ending says, and the remedy."""
    if content == "OLE":
        return (
            "the workbook is protected by a password or in the old .xls format; save it without a "
            "password as .xlsx or CSV"
        )
    if content == "ZIP":
        content = _archive(path)
    if content in ENDINGS:
        ending = ENDINGS[content]
        return f"the file is {content}, not {path.suffix}; rename it to {path.stem}{ending}"
    if content == "PDF":
        return "the file is a PDF document; export the data as CSV"
    return f"the file is a compressed archive ({content}); unpack it first"


def _archive(path: Path) -> str:
    """Whether a ZIP archive is a workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "Excel" if "xl/workbook.xml" in archive.namelist() else "ZIP"
    except (zipfile.BadZipFile, OSError, ValueError):
        return "ZIP"


def _check_readable(path: Path) -> None:
    """Refuse what is no file, cannot be opened or is empty."""
    try:
        if path.is_dir():
            raise FileError(f"{path} is a folder; name the files in it, such as {path}/*.csv.")
        if not path.exists():
            there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            raise FileError(f"there is no file {path}.{closest(path.name, there[:1000])}")
        if not path.is_file():
            raise FileError(f"{path} is not an ordinary file.")
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty; export it again.")
        with path.open("rb") as file:
            file.read(1)
    except PermissionError:
        raise FileError(f"{path}: the file cannot be read: permission denied.") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OccamidError):
            raise
        raise FileError(f"{path}: the file cannot be opened ({error}).") from None


def _begins(path: Path, begin: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(begin)) == begin


def _library(name: str, path: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise FileError(
            f"{path}: reading {path.suffix} files needs {name}; "
            'install it with pip install "occamid[files]".'
        ) from None


def _rows(path: Path, sheet: Any) -> list[Sequence[Any]]:
    """The cells of a sheet, no more than a workbook can have: rows that are left out count too."""
    rows: list[Sequence[Any]] = []
    cells = 0
    for row in sheet.iter_rows(values_only=True):
        cells += len(row)
        rows.append(row)
        if len(rows) > MOST_ROWS or cells > MOST_CELLS:
            raise too_large(path)
    return rows


def _filled(sheet: Any) -> bool:
    rows = sheet.iter_rows(max_row=SHEET_PEEK, values_only=True)
    return any(cell is not None for row in rows for cell in row)


def _sheet_table(path: Path, rows: Sequence[Sequence[Any]]) -> Table:
    """The cells of a sheet as columns; row numbers are those of the sheet."""
    kept = list(enumerate(rows, 1))
    while kept and _skipped(kept[0][1]):
        kept = kept[1:]
    filled = [k for _, row in kept for k, cell in enumerate(row) if cell not in (None, "")]
    if not filled:
        raise DataError(f"{path}: the workbook holds no data.")
    left, right = min(filled), max(filled) + 1
    table = [
        (number, [*row[left:right], *[None] * (right - max(len(row), left))])
        for number, row in kept
    ]
    number, first = table[0]
    names: list[Any] = [""] * (right - left)
    units: list[str] = []
    if not all(is_data(cell) for cell in first):
        names, table = first, table[1:]
        _check_headings(path, number, names, table)
        units = units_row([row for _, row in table[:2]])
        table = table[1:] if units else table
    columns = column_names(path, names, f"row {number}")
    note = noted_units(columns, units, f"row {number + 1}", path) if units else None
    cells = list(zip(*(row for _, row in table), strict=True))
    series = {name: _cells(values) for name, values in zip(columns, cells, strict=True)}
    numbers = [number for number, _ in table]
    return Table(
        path=path,
        columns=without_empty_end(series),
        place=lambda row: f"row {numbers[row]}",
        units=dict(zip(columns, units, strict=False)),
        notes=(note,) if note else (),
    )


def _skipped(row: Sequence[Any]) -> bool:
    """Whether a row above the table is empty or a comment."""
    cells = [cell for cell in row if cell not in (None, "")]
    return not cells or (isinstance(cells[0], str) and cells[0].startswith(("#", "%")))


def _check_headings(
    path: Path, number: int, names: Sequence[Any], table: Sequence[tuple[int, Sequence[Any]]]
) -> None:
    """Refuse a title above the table, and names without data."""
    if not table:
        raise DataError(
            f"{path}: there is no row of data below the names in row {number}; export it again."
        )
    named = sum(name not in (None, "") for name in names)
    if 2 * named < len(names):
        raise DataError(
            f"{path}: row {number} names {named} of {len(names)} columns; remove the rows above "
            "the table."
        )


def _cells(values: Sequence[Any]) -> pd.Series:
    """One column of a sheet; times of day and durations become seconds."""
    return pd.Series([clock_seconds(v) for v in values], dtype=object).infer_objects()
