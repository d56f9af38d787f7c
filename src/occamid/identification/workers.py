"""Cores: how many this process may use, and independent jobs on them side by side.

Jobs are threads: compiling and running programs lets go of Python's lock, and what one thread has
compiled serves the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from occamid.errors import SettingsError

T = TypeVar("T")
VARIABLE = "OCCAMID_THREADS"
QUOTA = Path(
    "/sys/fs/cgroup/cpu.max"
)  # microseconds of a period, and the period; "max" is no limit


def cores() -> int:
    """What the affinity and the quota of a container allow, or what OCCAMID_THREADS says."""
    asked = os.environ.get(VARIABLE)
    if asked is not None:
        if not asked.isdecimal() or int(asked) < 1:
            raise SettingsError(f"{VARIABLE} is {asked!r}; it must be a number of threads.")
        return int(asked)
    affinity = getattr(os, "sched_getaffinity", None)
    most = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(most, _quota(QUOTA)))


def _quota(path: Path) -> int:
    """Cores that a container may use, rounded up; very many where nothing is said."""
    try:
        allowed, period = path.read_text("ascii").split()
        return -(-int(allowed) // int(period))
    except (OSError, ValueError):
        return 1_000_000


def side_by_side(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """The results of independent jobs, in their order; as many at a time as there are cores.

    The first job that fails, or Ctrl-C, ends it: what has not begun is not begun.
    """
    threads = min(len(jobs), cores())
    if threads < 2:
        return [job() for job in jobs]
    pool = ThreadPoolExecutor(threads)
    try:
        return [result.result() for result in [pool.submit(job) for job in jobs]]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
