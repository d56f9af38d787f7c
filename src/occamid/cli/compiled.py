"""Compiled programs are kept from one command to the next, and never half of one.

Each command works in a folder of its own, which begins with links to all finished entries; what it
adds is moved to the others when it ends.  A command that is killed leaves nothing among them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from occamid.training.xla import ENTRY, PROGRAMS, processor, with_older

FLAGS = "XLA_FLAGS"
LARGEST = 1_000_000_000  # bytes; the oldest entries beyond are removed
OLDEST = 7 * 24 * 3600  # seconds after which a folder that a killed command left is removed


@contextmanager
def kept_programs() -> Iterator[None]:
    """The environment of a command, set before JAX is imported.

    Where nothing can be written, or where the user has named a folder, nothing is kept here.
    """
    os.environ[FLAGS] = with_older(os.environ.get(FLAGS, ""))
    if PROGRAMS in os.environ:
        yield
        return
    try:
        shared = folder()
        shared.mkdir(parents=True, exist_ok=True)
        own = Path(tempfile.mkdtemp(prefix="run-", dir=shared.parent))
        tidy(shared, own)
    except OSError:
        yield
        return
    os.environ[PROGRAMS] = str(own)
    try:
        yield
    finally:
        os.environ.pop(PROGRAMS, None)
        if not jobs_left():  # else one that was stopped may still write
            publish(own, shared)
        shutil.rmtree(own, ignore_errors=True)


def jobs_left() -> bool:
    """Whether a job that was begun side by side with others still runs, as after Ctrl-C."""
    return any(thread.name.startswith("occamid-job") for thread in threading.enumerate())


def folder() -> Path:
    """Where entries are kept for this version of JAX and this kind of processor."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return cache / "occamid" / f"jaxlib-{version('jaxlib')}-{processor()}"


def tidy(shared: Path, own: Path) -> None:
    """Links to all entries in ``own``; the oldest ones, and folders left behind, are removed."""
    entries = [(path.stat(), path) for path in shared.glob(f"*{ENTRY}")]
    size = 0
    for stat, path in sorted(entries, key=lambda pair: -pair[0].st_mtime):
        size += stat.st_size
        with suppress(OSError):  # another command may have removed it
            if size > LARGEST:
                path.unlink()
            else:
                os.link(path, own / path.name)
    for left in shared.parent.glob("run-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > OLDEST:
                shutil.rmtree(left)


def publish(own: Path, shared: Path) -> None:
    """Move what is new to the others, or takes the place of what could not be used there."""
    for path in own.glob(f"*{ENTRY}"):
        there = shared / path.name
        with suppress(OSError):
            if not there.exists() or not there.samefile(path):
                path.replace(there)
