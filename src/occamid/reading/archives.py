"""Archives that unpack to far more than they seem: refused before anything is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

from occamid.errors import FileError

MOST_BYTES = 2**30  # that a file may unpack to
MOST_ROWS = 2**20  # of a sheet, as in Excel
MOST_CELLS = 10_000_000  # of a sheet; each takes some hundred bytes while it is read
_CHUNK = 2**22


def too_large(path: Path) -> FileError:
    """The error for a file that would fill the memory."""
    return FileError(
        f"{path}: the file unpacks to more than can be read (at most {MOST_ROWS} rows and "
        f"{MOST_CELLS} cells of a sheet, {MOST_BYTES // 2**20} MiB in all); export it as CSV, in "
        "parts if need be."
    )


def check_workbook(path: Path) -> None:
    """Refuse a workbook by its stated size, then by the rows and cells in its sheets.

    What is unpacked never exceeds the size that an archive states.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if sum(part.file_size for part in parts) > MOST_BYTES // 2:
            raise too_large(path)
        for part in parts:
            if part.filename.startswith("xl/worksheets/"):
                _check_sheet(path, archive, part)


def _check_sheet(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> None:
    rows = cells = 0
    with archive.open(part) as sheet:
        while chunk := sheet.read(_CHUNK):
            rows += chunk.count(b"<row")
            cells += chunk.count(b"<c ") + chunk.count(b"<c>")
            if rows > MOST_ROWS or cells > MOST_CELLS:
                raise too_large(path)
