"""Files of compiled programs: in a folder of the user's cache, or in one that a variable names.

An entry is written beside its place and moved there, with a digest in front.  So processes share
the folder as they come, and one that is killed leaves nothing that another would take for whole.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from occamid.training.xla import processor

VARIABLE = "OCCAMID_PROGRAMS"  # names another folder; set to nothing, nothing is kept
ENTRY, PART = "-cache", "part-"  # how names of entries end, and how those of parts begin
LARGEST = 1_000_000_000  # bytes of the user's cache; the oldest entries beyond are removed
OLDEST = 24 * 3600  # seconds after which a part is nobody's any more
DIGEST = 32  # bytes


def folder() -> Path | None:
    """Where entries are kept, for this version of JAX and this kind of processor."""
    told = os.environ.get(VARIABLE)
    if told is not None:
        return Path(told) if told else None
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # this user has no home
        return None
    return home / "occamid" / f"jaxlib-{version('jaxlib')}-{processor()}"


def read(path: Path) -> bytes | None:
    """The content of an entry, if there is one that is whole."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    digest, content = found[:DIGEST], found[DIGEST:]
    return content if sha256(content).digest() == digest else None


def write(path: Path, content: bytes) -> None:
    """Put an entry there as a whole, or none where that cannot be done."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if VARIABLE not in os.environ:
            tidy(path.parent)
        number, name = tempfile.mkstemp(prefix=PART, dir=path.parent)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(sha256(content).digest() + content)
            os.replace(name, path)
        finally:
            with suppress(FileNotFoundError):  # a disk that is full leaves no part
                os.unlink(name)


@cache
def tidy(place: Path) -> None:
    """Remove the oldest entries beyond the limit and parts of killed processes, once a process."""
    for part in place.glob(f"{PART}*"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > OLDEST:
                part.unlink()
    size = 0
    for stat, path in sorted(_entries(place), key=lambda pair: -pair[0].st_mtime):
        size += stat.st_size
        with suppress(OSError):  # another process may have removed it
            if size > LARGEST:
                path.unlink()


def _entries(place: Path) -> list[tuple[os.stat_result, Path]]:
    found = []
    for path in place.glob(f"*{ENTRY}"):
        with suppress(OSError):
            found.append((path.stat(), path))
    return found
