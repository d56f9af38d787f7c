"""How many cores this process may use (asked for, allowed, paid for), and jobs on them.

Jobs are threads: compiling and running programs lets go of Python's lock, and what one thread has
compiled serves the others.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
VARIABLE = "OCCAMID_THREADS"
QUOTA = Path("/sys/fs/cgroup/cpu.max")
_inside = threading.local()  # ``share`` of the cores that a job of several has for itself


def cores() -> int:
    """The variable's number if it is set, else what affinity and the control group allow.

    Inside a job of :func:`side_by_side` it is the job's share.
    """
    share: int | None = getattr(_inside, "share", None)
    if share is not None:
        return share
    asked = os.environ.get(VARIABLE, "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, _quota()))


def _quota() -> int:
    """Whole cores that the control group pays for; very many where it says nothing."""
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
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
    share = cores() // threads
    try:
        begun = [pool.submit(partial(_alone, share, job)) for job in jobs]
        return [future.result() for future in begun]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _alone(share: int, job: Callable[[], T]) -> T:
    """A job in a thread of its own, which uses no more than its share."""
    _inside.share = share
    return job()
