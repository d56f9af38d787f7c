"""One writer at a time: a lock beside a folder, which goes when its process goes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from occamid.errors import FileError

try:
    import fcntl
except ImportError:  # not POSIX: whoever replaces a folder still looks whether it has changed
    fcntl = None  # type: ignore[assignment]

SIGNED = b"occamid "  # how a lock file begins; the process follows
UNKNOWN = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without locks


class BusyError(FileError):
    """Another process writes to the folder."""


@contextmanager
def lock(path: Path, folder: Path) -> Iterator[None]:
    """Hold the lock file ``path`` for the folder, or say at once who holds it.

    The system drops the lock of a killed process; the file it leaves is taken over.  A file of
    this name that somebody else wrote is locked too, but neither changed nor removed.
    """
    if fcntl is None:
        yield
        return
    try:
        handle, ours = _take(path, folder)
    except OSError as error:
        raise FileError(f"cannot lock {folder} with {path}: {error.strerror}.") from None
    try:
        yield
    finally:
        if ours:
            path.unlink(missing_ok=True)
        os.close(handle)


def _take(path: Path, folder: Path) -> tuple[int, bool]:
    """The locked file, and whether it is one of ours."""
    while True:
        handle, made = _open(path)
        try:
            if _locked(handle, folder) and _is(handle, path):
                return handle, _sign(handle, made)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it between opening and locking: once more


def _open(path: Path) -> tuple[int, bool]:
    """The lock file, and whether it was made here; links are not followed."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
        except FileExistsError:
            try:
                return os.open(path, flags), False
            except FileNotFoundError:  # just removed by its holder
                continue


def _locked(handle: int, folder: Path) -> bool:
    """Lock an open file; the reason, if another process has done so."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = os.pread(handle, 40, 0).removeprefix(SIGNED).strip()
        process = f" (process {int(who)})" if who.isdigit() else ""
        raise BusyError(
            f"another run{process} is writing to {folder}; wait for it, or choose another `out`."
        ) from None
    except OSError as error:
        if error.errno not in UNKNOWN:
            raise
    return True


def _is(handle: int, path: Path) -> bool:
    """Whether the open file is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _sign(handle: int, made: bool) -> bool:
    """Write the process into a lock file of ours; anybody else's stays as it is."""
    ours = made or (
        stat.S_ISREG(os.fstat(handle).st_mode) and os.pread(handle, 40, 0).startswith(SIGNED)
    )
    if ours:
        os.ftruncate(handle, 0)
        os.pwrite(handle, SIGNED + f"{os.getpid()}\n".encode(), 0)
    return ours
