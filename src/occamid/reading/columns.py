"""A table as it stands in a file: named columns of numbers or text, and where each row is."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import pandas as pd
from jaxtyping import Float

from occamid.data.findings import Finding
from occamid.errors import DataError

LISTED = 20  # names in a message
FORMULA = tuple("=+-@")  # what starts a formula in a spreadsheet
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_NUMBERS = {
    ".": re.compile(rf"[+-]?(?:\d+\.?\d*|\.\d+){_EXPONENT}"),
    ",": re.compile(rf"[+-]?(?:\d+|\d*,\d+){_EXPONENT}"),
}
_NO_NUMBER = {"", "nan", "-nan", "na", "n/a", "<na>", "#n/a", "null", "none", "inf", "-inf", "+inf"}
_DATE = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}"
    r"(?:[T ]+\d{1,2}:\d{2}\S*(?: [AaPp]\.?[Mm]\.?)?(?: [+-]\d{2}:?\d{2})?)?"
    r"|\d{8}T\d{4,6}\S*"
    r"|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?"
)


def _counted_from_one(row: int) -> str:
    return f"row {row + 1}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of a file.  They may differ in length where the format lets them.

    Args:
        path: the file.
        columns: by name, in the order of the file.
        place: where a row is, in the words of the format: ``line 17``, ``row 17``.
        decimal: the decimal sign of columns that were read as text.
        sampling_time: where the file states one.
        groups: names of matrices, each with the names of its columns.
        refused: names of what cannot be a column, each with the reason.
        units: of columns, from a row of units below the names.
        notes: what was noticed in reading, for a list of findings.
        part: which one of several tables in the file; the name of a record ends with it.
    """

    path: Path
    columns: Mapping[str, pd.Series]
    place: Callable[[int], str] = _counted_from_one
    decimal: str = "."
    sampling_time: float | None = None
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Finding, ...] = ()
    part: str = ""

    def known(self) -> str:
        """The columns with their positions, for messages."""
        return listed([f"{name} ({k})" for k, name in enumerate(self.columns, 1)])


def numbers(table: Table, name: str) -> Float[np.ndarray, " N"]:
    """A column as numbers, NaN where a cell is empty; text that is no number is refused."""
    column = table.columns[name]
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if pd.api.types.is_datetime64_any_dtype(column):
        raise DataError(
            f"{table.path}: column {name} holds dates, not numbers; if it is the time, name it "
            "with `time`."
        )
    values = np.empty(len(column))
    for row, cell in enumerate(column):
        value = _number(cell, table.decimal)
        if value is None:
            comma = " with a decimal comma" if table.decimal == "," else ""
            raise DataError(
                f"{table.path}: {table.place(row)}, column {name}: {shown(cell)} is not a "
                f'number{comma}; correct it, or leave the cell empty and use `gaps="split"`.'
            )
        values[row] = value
    return values


def is_data(cell: Any, decimal: str = ".") -> bool:
    """Whether a cell holds a number, a date, a time or nothing, so that it is not a heading."""
    if not isinstance(cell, str):
        return True
    text = cell.strip()
    return bool(
        _NUMBERS[decimal].fullmatch(text)
        or text.lower() in _NO_NUMBER
        or is_date(text)
        or text.lower() in ("true", "false")
    )


def is_date(text: str) -> bool:
    """Whether a text looks like a date, a time of day or both."""
    return bool(_DATE.fullmatch(text.strip()))


def column_names(path: Path, cells: Sequence[Any], where: str) -> list[str]:
    """Names from a row of headings; a column without one is called after its position."""
    names = [tidy_name(str(cell)) if cell is not None else "" for cell in cells]
    names = [name or f"column {k}" for k, name in enumerate(names, 1)]
    for name, count in Counter(names).items():
        if count > 1:
            places = [str(k) for k, other in enumerate(names, 1) if other == name]
            raise DataError(
                f"{path}: {where} gives the name {name} to columns {' and '.join(places[:LISTED])};"
                " give each column a name of its own."
            )
    return names


def tidy_name(name: str) -> str:
    """A name on one line; characters that cannot be seen or turn the text around are escapes.

    The mark that keeps spreadsheets from running ``'=A1`` as a formula is taken off again.
    """
    text = " ".join(name.split())
    text = "".join(ascii(c)[1:-1] if category(c) in _HIDDEN else c for c in text)
    return text[1:] if text[:1] == "'" and text[1:2] in FORMULA else text


def units_row(rows: Sequence[Sequence[Any]], decimal: str = ".") -> list[str]:
    """The units in the first of the two rows that follow the headings; nothing if it has none."""
    if len(rows) < 2:
        return []
    text = [c for c in rows[0] if not is_data(c, decimal)]
    values = [c for c in rows[0] if is_data(c, decimal) and not _blank(c)]
    below = [c for c in rows[1] if is_data(c, decimal) and not _blank(c)]
    if not text or values or not below:
        return []
    return ["" if _blank(c) else tidy_name(str(c)).strip("[]()") for c in rows[0]]


def noted_units(names: Sequence[str], units: Sequence[str], where: str, path: Path) -> Finding:
    """The note that a row was taken for units."""
    found = [f"{name} {unit}" for name, unit in zip(names, units, strict=False) if unit]
    return Finding(
        kind="units",
        severity="note",
        channel="",
        what=f"a row of units stands below the names ({listed(found)})",
        why="it is not data, and is kept for the axes of plots",
        place=f"{path.name}: {where}",
    )


def without_empty_end(columns: Mapping[str, pd.Series]) -> dict[str, pd.Series]:
    """The columns without nameless empty columns and without empty rows at the end."""
    kept = {
        name: column
        for k, (name, column) in enumerate(columns.items(), 1)
        if name != f"column {k}" or column.notna().any()
    }
    length = max((_last_filled(column) for column in kept.values()), default=0)
    return {name: column.iloc[:length] for name, column in kept.items()}


def closest(name: str, known: Sequence[str]) -> str:
    """A half-sentence that names the most similar of the known names, or nothing."""
    by_lower = {other.lower(): other for other in known}
    found = get_close_matches(name.lower(), by_lower, n=3)
    return f" Did you mean {' or '.join(by_lower[key] for key in found)}?" if found else ""


def listed(names: Sequence[str]) -> str:
    """Names separated by commas; long lists are cut."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, word: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def shown(value: Any) -> str:
    """A value in a message: quoted, on one line, not longer than a line."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[0]}"


def _number(cell: Any, decimal: str) -> float | None:
    """One cell as a number, NaN where it is empty, None where it is something else."""
    if cell is None or cell is pd.NA or cell is pd.NaT:
        return np.nan
    if isinstance(cell, str):
        text = cell.strip()
        if text.lower() in _NO_NUMBER:
            return float(text) if text.lower().endswith("inf") else np.nan
        if not _NUMBERS[decimal].fullmatch(text):
            return None
        return float(text.replace(",", "."))
    if isinstance(cell, Real) or hasattr(cell, "as_tuple"):  # also decimal.Decimal
        try:
            return float(cell)
        except (OverflowError, ValueError):
            return None
    return None


def _blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _last_filled(column: pd.Series) -> int:
    filled = np.flatnonzero(column.notna().to_numpy())
    return int(filled[-1]) + 1 if len(filled) else 0


def clock_seconds(cell: Any) -> Any:
    """A time of day or a duration in seconds; anything else as it is."""
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    if isinstance(cell, datetime.time):
        return cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond * 1e-6
    return cell
