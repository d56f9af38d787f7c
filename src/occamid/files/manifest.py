"""Which files of a folder a run wrote: a list that stays in the folder, with a digest of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from hashlib import file_digest
from pathlib import Path

LIST = "run.json"
MODEL, CONTENT = "model.safetensors", "report.json"
NEXT = ".occamid-next"  # in a run folder: the files of the next run that are still to be moved
DIGITS = 64  # of a SHA-256 in hexadecimal


def digest(path: Path) -> str | None:
    """SHA-256 of a plain file; None for a link, a folder or nothing: no run wrote those."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def write(folder: Path, names: Iterable[str]) -> None:
    """List files of the folder as written by a run."""
    found = {}
    for name in names:
        if (value := digest(folder / name)) is None:
            raise ValueError(f"{name} is no plain file, and a run has no others.")
        found[name] = value
    (folder / LIST).write_text(text(found), encoding="utf-8")


def text(files: Mapping[str, str]) -> str:
    """The list as it is written; one that reads otherwise was changed by somebody."""
    return json.dumps({"occamid": "run", "files": dict(sorted(files.items()))}, indent=1) + "\n"


def read(folder: Path) -> dict[str, str] | None:
    """Names and digests of what the run in a folder wrote; None where no run is to be seen.

    An empty folder, or none at all, has an empty list.
    """
    path = folder / LIST
    if not os.path.lexists(path):
        empty = not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir()))
        return {} if empty else None
    if path.is_symlink() or not path.is_file():
        return None
    try:
        raw = path.read_bytes()
        files = json.loads(raw)["files"]
        whole = isinstance(files, dict) and text(files).encode() == raw
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return files if whole and all(map(_plausible, files, files.values())) else None


def _plausible(name: str, value: object) -> bool:
    """Whether an entry can be ours."""
    return plain_name(name) and isinstance(value, str) and len(value) == DIGITS


def plain_name(name: str) -> bool:
    """Whether a file of a run can have this name: none leads out of its folder."""
    plain = name == os.path.basename(name) and name not in ("", ".", "..", LIST, NEXT)
    return plain and "\0" not in name


def changed(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """What bears the name of a listed file but is no longer what the run wrote."""
    paths = {name: folder / name for name in files}
    return [p for n, p in paths.items() if os.path.lexists(p) and digest(p) != files[n]]


def current(folder: Path, name: str) -> Path:
    """A file of a run, also while (or after a kill when) its replacement is half moved in."""
    waiting = folder / NEXT
    moving = (waiting / LIST).is_file() and (waiting / name).is_file()
    return waiting / name if moving else folder / name


def model_file(path: str | Path) -> Path:
    """The model file of a run folder, or the path itself."""
    return current(Path(path), MODEL) if Path(path).is_dir() else Path(path)
