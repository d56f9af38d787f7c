"""Results on disk: JSON and TOML for people, safetensors for arrays, never half a folder."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from occamid.errors import FileError


def check_writable(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is taken or cannot be made, before any work; nothing is created."""
    try:
        problem = _problem(folder)
        taken = not problem and folder.exists() and any(folder.iterdir())
    except OSError as error:  # a name that is too long, a folder that cannot be read
        problem, taken = f"cannot write to {folder}: {error.strerror}", False
    if problem:
        raise FileError(f"{problem}; choose another --out.")
    if taken and not overwrite:
        raise FileError(f"{folder} already holds files; choose another --out, or use --force.")


def _problem(folder: Path) -> str | None:
    """What stands in the way of a new folder here, whatever it may hold already."""
    target, here = _real(folder), Path.cwd()
    nearest = next(p for p in (target, *target.parents) if p.exists())
    shown, place = (folder, target.parent) if nearest == target else (nearest, nearest)
    if folder.is_symlink() and nearest != target:
        return f"{folder} is a link to a folder that does not exist"
    if not nearest.is_dir():
        return f"{shown} is a file, not a folder"
    if target == here or target in here.parents:
        return f"{folder} is the current folder or holds it"
    if os.path.ismount(target):
        return f"{folder} is a mount point, which cannot be replaced"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"cannot write to {place}: {os.strerror(errno.EACCES)}"
    return None


def _real(folder: Path) -> Path:
    """Where the folder really is; unlike ``Path.resolve`` this bears links that go in circles."""
    return Path(os.path.realpath(folder))


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder that takes the place of ``folder`` at the end, and only on success."""
    target = _real(folder)
    try:
        if problem := _problem(folder):
            raise FileError(f"{problem}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear_scratch(target)
        scratch = _scratch(target)
        try:
            yield scratch
            scratch.chmod(0o755)  # mkdtemp makes private folders
            _swap(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise FileError(
            f"cannot write the results to {folder}: {error.strerror or error}."
        ) from error


def _scratch(target: Path) -> Path:
    """A new folder beside the target that tells for what and by which process it was made."""
    prefix = f".{target.name[:100]}.new-{os.getpid()}-"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))


def _clear_scratch(target: Path) -> None:
    """Remove what processes that were killed while they wrote this target have left."""
    start = f".{target.name[:100]}.new-"
    for path in target.parent.iterdir():
        pid = path.name.removeprefix(start).partition("-")[0]
        if path.name.startswith(start) and pid.isdigit() and not _runs(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


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


def _swap(scratch: Path, target: Path) -> None:
    """Put ``scratch`` in the place of ``target``; if that fails, ``target`` is as before."""
    if not target.exists():
        os.replace(scratch, target)
        return
    old = _scratch(target)
    try:
        os.replace(target, old / "was")
        os.replace(scratch, target)
    finally:
        if not target.exists():
            os.replace(old / "was", target)
        shutil.rmtree(old, ignore_errors=True)
