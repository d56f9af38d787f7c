"""Tables in text files: any usual delimiter, decimal sign and encoding, with or without names."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from occamid.errors import DataError, FileError
from occamid.reading.columns import (
    Table,
    column_names,
    counted,
    is_data,
    is_date,
    noted_units,
    units_row,
    without_empty_end,
)

SNIFFED = 65536  # characters that decide on delimiter, decimal sign and names
WIDEST = 64 * SNIFFED  # characters of a line
HEADING = 20  # lines that a quoted heading may go on for
ANY_SPACE = " "
# The first of those that fit equally well is taken; "," is last of the marks because it may be a
# decimal sign.
LAYOUTS = (
    *((mark, decimal) for mark in ("\t", ";", "|") for decimal in (".", ",")),
    (",", "."),
    (ANY_SPACE, "."),
    (ANY_SPACE, ","),
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE_END = re.compile(r"\r\n|\n|\r")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x19\x1b-\x1f\x7f]")
# A cell such as #N/A or #DIV/0! that a spreadsheet left at the start of a line is no comment.
_ERROR_CELL = r"(?!N/A|NA\b|DIV/0!|VALUE!|REF!|NUM!|NAME\?|NULL!)"
_COMMENT = re.compile(rf"^[ \t]*(?:%|#{_ERROR_CELL})[^\r\n]*", re.MULTILINE)
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")


class Layout(NamedTuple):
    """How a text file is laid out."""

    delimiter: str
    decimal: str
    names: tuple[str, ...]
    start: int  # lines before the first row of data
    units: tuple[str, ...] = ()


def read_text(path: Path) -> Table:
    """A delimited text file as a table; its rows are placed by their line in the file."""
    text = _decoded(path)
    layout = _sniff(path, text)
    frame = _parsed(path, text, layout)
    if layout.decimal == "." and layout.delimiter != "," and _has_decimal_commas(frame):
        layout = layout._replace(decimal=",")  # the first comma comes late in the file
        frame = _parsed(path, text, layout)
    columns = {name: frame[k] for k, name in enumerate(layout.names)}
    units = layout.units
    note = noted_units(layout.names, units, f"line {layout.start}", path) if units else None
    return Table(
        path=path,
        columns=without_empty_end(columns),
        place=lambda row: _place(path, layout, row),
        decimal=layout.decimal,
        units=dict(zip(layout.names, units, strict=False)),
        notes=(note,) if note else (),
    )


def _decoded(path: Path) -> str:
    """The text of a file in UTF-8, UTF-16, UTF-32 or Latin-1."""
    raw = path.read_bytes()
    encoding = next((name for bom, name in _BOMS if raw.startswith(bom)), "")
    if not encoding:
        even, odd = raw[:1000:2].count(0), raw[1:1000:2].count(0)
        limit = 0.4 * len(raw[:1000:2])
        encoding = "utf-16-le" if odd > limit else "utf-16-be" if even > limit else "utf-8"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise FileError(
                f"{path}: the text is damaged or cut short ({encoding}); save it again as UTF-8."
            ) from None
        text = raw.decode("latin-1")
    if _CONTROL.search(text[:SNIFFED]) or "\0" in text:
        raise FileError(
            f"{path}: the file holds binary data, not a table of text; export it as CSV."
        )
    if re.match(r"\s*<(?:!doctype|html)", text[:200], re.IGNORECASE):
        raise FileError(
            f"{path}: the file is a web page, not data; download the data itself again."
        )
    return text


def _lines(text: str, delimiter: str = ANY_SPACE) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, without comments and empty lines."""
    for number, line in enumerate(_LINE_END.split(text), 1):
        empty = not line.strip() and (delimiter == ANY_SPACE or delimiter not in line)
        if not (empty or _COMMENT.match(line)):
            yield number, line


def _split(line: str, delimiter: str) -> list[str]:
    """The cells of one line."""
    if delimiter == ANY_SPACE:
        if '"' not in line:
            return line.split()
        line = re.sub(r"\s+", " ", line.strip())
    try:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        cells = line.split(delimiter)
    return [cell.strip() for cell in cells]


def _sniff(path: Path, text: str) -> Layout:
    """Delimiter, decimal sign and names from the beginning of a file."""
    lines = _whole_headings([(n, x) for n, x in _lines(_head(path, text)) if x.strip(" \t\x1a")])
    if not lines:
        raise DataError(f"{path}: the file holds no data.")
    body = _sample([line for _, line in lines[1:]]) or [lines[0][1]]
    scores = {layout: _score(body, *layout) for layout in LAYOUTS}
    delimiter, decimal = max(LAYOUTS, key=lambda layout: scores[layout][:2])
    width = scores[delimiter, decimal][2]
    rows = [(number, _split(line, delimiter)) for number, line in lines[:200]]
    units: list[str] = []
    if not all(is_data(cell, decimal) for cell in rows[0][1]):
        names = _headings(path, rows, width)
        units = units_row([cells for _, cells in rows[1:3]], decimal)
        start = rows[1 if units else 0][0]
        where = f"line {rows[0][0]}"
    else:
        start = rows[0][0] - 1
        names = _names_in_comment(_head(path, text), start, delimiter, width) or [""] * width
        where = f"line {start}" if any(names) else "the file"
    found = tuple(column_names(path, names, where))
    return Layout(delimiter, decimal, found, start, tuple(units))


def _head(path: Path, text: str) -> str:
    """Whole lines from the beginning: some thousands of characters, or three lines if longer."""
    if len(text) <= SNIFFED:
        return text
    ends = [m.start() for m in _LINE_END.finditer(text[:SNIFFED])]
    if len(ends) < 3:
        ends = [m.start() for m in islice(_LINE_END.finditer(text[:WIDEST]), 4)]
    if not ends:
        raise FileError(f"{path}: the first line is longer than {WIDEST} characters.")
    return text[: ends[-1]]


def _whole_headings(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines, with the first one whole where a quoted heading goes on in the next."""
    for count in range(1, min(HEADING, len(lines)) + 1):
        first = " ".join(line for _, line in lines[:count])
        if first.count('"') % 2 == 0:
            return [(lines[count - 1][0], first), *lines[count:]]
    return lines


def _sample(lines: Sequence[str]) -> list[str]:
    """The last lines, no more than decide on the layout."""
    kept: list[str] = []
    for line in reversed(lines[-200:]):
        kept.append(line)
        if sum(map(len, kept)) > SNIFFED:
            break
    return kept[::-1]


def _score(lines: Sequence[str], delimiter: str, decimal: str) -> tuple[bool, float, int]:
    """Whether there are columns, how well the layout fits, and the number of columns."""
    rows = [_split(line, delimiter) for line in lines]
    width, count = Counter(len(row) for row in rows).most_common(1)[0]
    cells = [cell for row in rows if len(row) == width for cell in row]
    good = sum(is_data(cell, decimal) for cell in cells) / max(len(cells), 1)
    return width > 1, round(good * count / len(rows), 6), width


def _headings(path: Path, rows: Sequence[tuple[int, list[str]]], width: int) -> list[str]:
    """The cells of the first line as names of ``width`` columns."""
    number, names = rows[0]
    if len(rows) == 1:
        raise DataError(
            f"{path}: there is no row of data below the names in line {number}; export it again."
        )
    if len(names) == width + 1 and not names[-1]:
        return names[:-1]
    ends = {cells[-1] for _, cells in rows[1:] if len(cells) == width}
    if len(names) == width - 1 and ends == {""}:  # each line of data ends with a delimiter
        return [*names, ""]
    if len(names) != width:
        table = next((n for n, cells in rows[1:] if len(cells) == width), number)
        raise DataError(
            f"{path}: line {number} has {counted(len(names), 'cell')}, but the rows from "
            f"line {table} on have {width}; lines above the table must be removed or start "
            "with #, and a decimal comma needs another mark between the columns."
        )
    return names


def _names_in_comment(head: str, start: int, delimiter: str, width: int) -> list[str]:
    """Names from the comment right above the data, as ``numpy.savetxt`` writes them."""
    above = _LINE_END.split(head)[:start]
    if not above or not _COMMENT.match(above[-1]):
        return []
    names = _split(above[-1].strip().lstrip("#% \t"), delimiter)
    return names if len(names) == width and not any(is_data(name) for name in names) else []


def _parsed(path: Path, text: str, layout: Layout) -> pd.DataFrame:
    """The rows below the names, read by pandas' C engine."""
    begin = 0
    for number, end in enumerate(_LINE_END.finditer(text), 1):
        if number > layout.start:
            break
        begin = end.end() if number == layout.start else begin
    body = _COMMENT.sub("", text[begin:]).rstrip("\x1a")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(body.encode("utf-8", "replace")),
                sep=r"\s+" if layout.delimiter == ANY_SPACE else layout.delimiter,
                header=None,
                names=list(range(len(layout.names))),
                index_col=False,
                decimal=layout.decimal,
                skipinitialspace=True,
                na_values=["NAN", "#N/A", "#NA"],
                float_precision="round_trip",
                low_memory=False,
            )
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: the file holds no rows of data.") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _refuse_long_rows(path, text, layout)
        why = (str(error).splitlines() or ["no reason given"])[0]
        raise DataError(f"{path}: the file cannot be cut into columns ({why}).") from None


def _refuse_long_rows(path: Path, text: str, layout: Layout) -> None:
    """Name the row that has more cells than there are columns, or an open quotation mark."""
    for number, line in _lines(text, layout.delimiter):
        cells = _split(line, layout.delimiter)
        if number <= layout.start:
            continue
        if line.count('"') % 2:
            raise DataError(f"{path}: line {number} opens a quotation mark that is never closed.")
        if len(cells) > len(layout.names):
            raise DataError(
                f"{path}: line {number} has {counted(len(cells), 'cell')}, but the table has "
                f"{counted(len(layout.names), 'column')}."
            )


def _has_decimal_commas(frame: pd.DataFrame) -> bool:
    """Whether a column of text holds numbers with a decimal comma."""
    for _, column in frame.items():
        if column.dtype.kind in "fiub" or column.isna().all():
            continue
        texts = column.dropna().astype(str)
        if not is_date(texts.iloc[0]) and texts.str.fullmatch(_COMMA_NUMBER).any():
            return True
    return False


def _place(path: Path, layout: Layout, row: int) -> str:
    """The line of a row; the file is read once more, because only messages need it."""
    count = -1
    for number, _ in _lines(_decoded(path), layout.delimiter):
        count += number > layout.start
        if count == row:
            return f"line {number}"
    return f"row {row + 1}"
