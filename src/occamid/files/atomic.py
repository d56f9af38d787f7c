"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from occamid.errors import FileError
from occamid.files import manifest


def replace_file(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Write beside the target and move into place, so that a reader never sees half a file."""
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(scratch).chmod(0o644)
        if not overwrite and os.path.lexists(path):  # it was not there when the work began
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.replace(scratch, path)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror}.") from None
    finally:
        Path(scratch).unlink(missing_ok=True)


def same_file(one: Path, other: Path) -> bool:
    """Whether two names lead to one file, through whatever links; one that is missing does not."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def check_new_file(path: Path, *, overwrite: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that cannot be written or is somebody else's, before any work.

    A file of a run is its run's, whatever may be overwritten.
    """
    if path.is_dir():
        raise FileError(f"{path} is a folder; name a file in it with `out`.")
    if not path.absolute().parent.is_dir():
        raise FileError(
            f"{path}: there is no folder {path.parent}; make it, or choose another `out`."
        )
    if any(same_file(path, other) for other in inputs):
        raise FileError(f"{path} is read by this command; choose another `out`.")
    if path.name in (manifest.LIST, *(manifest.read(path.absolute().parent) or ())):
        raise FileError(f"{path} is a file of the run in {path.parent}; choose another `out`.")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is no plain file; choose another `out`.")
    if os.path.lexists(path) and not overwrite:
        raise FileError(f"{path} already exists; choose another `out`, or use `force`.")
