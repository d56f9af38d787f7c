"""The files of a run folder as one piece of bytes, for a store."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from occamid.files import manifest

LARGEST = 1_000_000_000  # bytes of all files together: no run writes more
FIRST = (1980, 1, 1, 0, 0, 0)  # the time of every file: equal files make equal parcels


def pack(folder: Path) -> bytes:
    """What the run in a folder wrote; other files that lie there stay out."""
    names = sorted(manifest.read(folder) or {})
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as parcel:
        for name in names:
            parcel.writestr(ZipInfo(name, FIRST), (folder / name).read_bytes(), ZIP_DEFLATED)
    return out.getvalue()


def unpack(content: bytes) -> dict[str, bytes] | None:
    """The files by their names; None for what is no parcel, or leads out of its folder."""
    try:
        with ZipFile(io.BytesIO(content)) as parcel:
            found = parcel.infolist()
            plain = all(manifest.plain_name(info.filename) for info in found)
            if not plain or sum(info.file_size for info in found) > LARGEST:
                return None
            return {info.filename: parcel.read(info) for info in found}
    except (BadZipFile, OSError, ValueError, RuntimeError, EOFError, zlib.error):
        return None
