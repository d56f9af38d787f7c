"""Folders for work in progress, beside the folder that is written; removed if surely ours."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from occamid.files import manifest

MARK = ".occamid-scratch"  # an empty file in a folder that may be removed when its process is gone


def make_scratch(target: Path) -> Path:
    """A new folder beside the target that tells for what and by which process it was made."""
    prefix = f".{target.name[:100]}.new-{os.getpid()}-"
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    (scratch / MARK).touch()
    return scratch


def clear_scratch(target: Path) -> None:
    """Remove what processes that were killed while they wrote this target have left."""
    start = f".{target.name[:100]}.new-"
    for path in target.parent.iterdir():
        pid = path.name.removeprefix(start).partition("-")[0]
        if path.name.startswith(start) and pid.isdigit() and not _runs(int(pid)) and _ours(path):
            shutil.rmtree(path, ignore_errors=True)


def _ours(path: Path) -> bool:
    """Whether a folder with the name of a scratch folder is one: marked, or a run and no more."""
    if path.is_symlink() or not path.is_dir():
        return False
    mark, files = path / MARK, manifest.read(path)
    if mark.is_file() and not mark.is_symlink() and mark.stat().st_size == 0:
        return True
    there = {p.name for p in path.iterdir()} - {manifest.LIST}
    return files is not None and there <= files.keys() and not manifest.changed(path, files)


def _runs(pid: int) -> bool:
    """Whether a process is still there; where that cannot be asked, it is taken to be."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
