"""Run folders on disk: never half a run, never a file lost that a run did not write."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path

from occamid.errors import FileError
from occamid.files import manifest
from occamid.files.atomic import replace_file, same_file
from occamid.files.lock import lock
from occamid.files.scratch import MARK, clear_scratch, make_scratch


class ElsewhereError(FileError):
    """The results are whole, but another folder than the one asked for holds them."""


@dataclass(frozen=True)
class Place:
    """A folder that this process alone writes, with the files of the run it may replace."""

    folder: Path  # as the user spells it
    target: Path  # where it really is
    old: dict[str, str]


@contextmanager
def claim(folder: Path, *, overwrite: bool = False, inputs: Iterable[Path] = ()) -> Iterator[Place]:
    """Keep a folder for this process, or say why it cannot be written, before any work.

    ``overwrite`` allows to replace a run, never one with a file that is among ``inputs`` or was
    changed since.  Nothing is written into the folder; parents that stay empty go again.
    """
    target = _real(folder)
    _check_possible(folder)
    with _parents(target.parent), _lock(folder, target):
        try:
            finish(target)
            old = _replaceable(folder, target, overwrite, inputs)
        except OSError as error:
            raise FileError(f"cannot read {folder}: {error.strerror}.") from None
        yield Place(folder, target, old)


def _check_possible(folder: Path) -> None:
    """Refuse a folder that can never be made; nothing is created."""
    try:
        problem = _problem(folder)
    except OSError as error:  # a name that is too long, a folder that cannot be read
        problem = f"cannot write to {folder}: {error.strerror}"
    if problem:
        raise FileError(f"{problem}; choose another `out`.")


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
    for each in (place, nearest):
        if not os.access(each, os.W_OK | os.X_OK):
            return f"cannot write to {each}: {os.strerror(errno.EACCES)}"
    return None


def _real(folder: Path) -> Path:
    """Where the folder really is; unlike ``Path.resolve`` this bears links that go in circles."""
    return Path(os.path.realpath(folder))


@contextmanager
def _parents(place: Path) -> Iterator[None]:
    """Folders above the new one; those that are made here and stay empty are removed again."""
    missing = [p for p in (place, *place.parents) if not p.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make {place}: {error.strerror}.") from None
    try:
        yield
    finally:
        with suppress(OSError):  # the first that is not empty ends it
            for path in missing:
                path.rmdir()


@contextmanager
def _lock(folder: Path, target: Path) -> Iterator[None]:
    """The lock of a run folder: the same file, however the folder is spelled."""
    with lock(target.with_name(f".{target.name}.lock"), folder):
        yield


def _replaceable(
    folder: Path, target: Path, overwrite: bool, inputs: Iterable[Path]
) -> dict[str, str]:
    """The files of the run in a folder, if they may be replaced; the reason, if not."""
    old = manifest.read(target)
    if old is None:
        raise FileError(f"{folder} holds files and is no run of occamid; choose another `out`.")
    if not (target / manifest.LIST).exists():
        return {}
    if not overwrite:
        raise FileError(f"{folder} already holds files; choose another `out`, or use `force`.")
    for path in inputs:
        if any(same_file(path, target / name) for name in (*old, manifest.LIST)):
            raise FileError(
                f"{path} is read by this command and a file of the run in {folder}, which would "
                "be replaced; choose another `out`."
            )
    if changed := manifest.changed(target, old):
        raise FileError(
            f"{changed[0]} was changed since its run was written, and would be replaced; move it "
            "away, or choose another `out`."
        )
    return old


@contextmanager
def new_folder(place: Place) -> Iterator[Path]:
    """A scratch folder whose files become the run of the place at the end, only on success."""
    try:
        clear_scratch(place.target)
        scratch = make_scratch(place.target)
        try:
            yield scratch
            names = [p.name for p in scratch.iterdir() if p.name != MARK]
            manifest.write(scratch, names)
            (scratch / MARK).unlink()
            scratch.chmod(0o755)  # mkdtemp makes private folders
            _put(scratch, place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise FileError(
            f"cannot write the results to {place.folder}: {error.strerror or error}."
        ) from error


def _put(scratch: Path, place: Place) -> None:
    """Make a whole new run the one of its place, if that is still as it was at the start."""
    target = place.target
    if manifest.read(target) not in ({}, place.old) or _in_the_way(scratch, target):
        left = next(p for k in count(1) if not os.path.lexists(p := Path(f"{target}-{k}")))
        os.rename(scratch, left)
        raise ElsewhereError(
            f"{place.folder} was changed by somebody else meanwhile and is left as it is; the "
            f"new results are in {left}."
        )
    if not target.exists():
        os.rename(scratch, target)
        return
    os.rename(scratch, target / manifest.NEXT)  # from here on the new run counts
    finish(target)


def finish(target: Path) -> None:
    """Move the files of a new run from its waiting folder into the run folder.

    Also after a process that was killed here: each file is moved or not, the list comes last.
    """
    waiting = target / manifest.NEXT
    if not os.path.lexists(waiting):
        return
    new, old = manifest.read(waiting), manifest.read(target) or {}
    if new is None or waiting.is_symlink():
        raise FileError(f"{waiting} is no folder of occamid; move it away.")
    if found := _in_the_way(waiting, target):
        raise FileError(f"{found[0]} is in the way of a file of the run; move it away.")
    for name in new:
        if (waiting / name).exists():
            os.replace(waiting / name, target / name)
    if (waiting / manifest.LIST).exists():
        for name in old.keys() - new.keys():
            if manifest.digest(target / name) == old[name]:
                (target / name).unlink()
        os.replace(waiting / manifest.LIST, target / manifest.LIST)
    with suppress(OSError):  # somebody may have put a file there
        waiting.rmdir()


def _in_the_way(scratch: Path, target: Path) -> list[Path]:
    """What a new run would replace although no run wrote it."""
    old, new = manifest.read(target), manifest.read(scratch) or {}
    taken = [target / name for name in new if (scratch / name).exists()]
    listed = target / manifest.LIST
    waiting = target / manifest.NEXT
    found = [
        path
        for path in taken
        if os.path.lexists(path) and manifest.digest(path) != (old or {}).get(path.name)
    ]
    found += [listed] if old is None and os.path.lexists(listed) else []
    return found + ([waiting] if scratch != waiting and os.path.lexists(waiting) else [])


def rewrite(folder: Path, name: str, content: bytes, *, overwrite: bool) -> None:
    """Write one file of a run again; one that the run did not write only with ``overwrite``."""
    target = _real(folder)
    with _lock(folder, target):
        try:
            finish(target)
            files, path = manifest.read(target), target / name
            ours = files is not None and manifest.digest(path) == files.get(name)
        except OSError as error:
            raise FileError(f"cannot read {folder}: {error.strerror}.") from None
        if os.path.lexists(path) and not ours and not overwrite:
            raise FileError(f"{folder / name} is not what its run wrote; move it, or use `force`.")
        replace_file(path, content)
        if files:
            entries = files | {name: sha256(content).hexdigest()}
            replace_file(target / manifest.LIST, manifest.text(entries).encode())
