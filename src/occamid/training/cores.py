"""How many cores this process may use (asked for, allowed, paid for), jobs on them; GPUs or not.

Jobs are threads: compiling and running programs lets go of Python's lock, and what one thread has
compiled serves the others.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import jax
from threadpoolctl import threadpool_limits

from occamid.training.quota import paid_for

T = TypeVar("T")
VARIABLE = "OCCAMID_THREADS"
JOB = "occamid-job"  # how names of threads begin
SMALL = 20_000  # rows up to which cores end sooner than a GPU, which waits for every small step
_inside = threading.local()  # ``share`` of the cores that work in this thread has for itself


def cores() -> int:
    """The variable's number if it is set, else what affinity and control groups allow.

    Inside :func:`limited`, and so in a job of :func:`side_by_side`, it is the share.
    """
    share: int | None = getattr(_inside, "share", None)
    if share is not None:
        return share
    asked = os.environ.get(VARIABLE, "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, math.ceil(min(allowed or 1, paid_for())))


def side_by_side(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """The results of independent jobs, in their order; as many at a time as there are cores.

    Where there are several GPUs, the jobs take turns on them.
    The first job that fails, or Ctrl-C, ends it: what has not begun is not begun.
    """
    threads = min(len(jobs), cores())
    if threads < 2:
        return [job() for job in jobs]
    pool = ThreadPoolExecutor(threads, thread_name_prefix=JOB)
    share = cores() // threads
    try:
        turns = zip(in_turn(len(jobs)), jobs, strict=True)
        begun = [pool.submit(partial(_alone, share, place, job)) for place, job in turns]
        found = [future.result() for future in begun]
    except BaseException:  # what runs is not waited for
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


def jobs_left() -> bool:
    """Whether a job that was begun side by side with others still runs, as after Ctrl-C."""
    return any(thread.name.startswith(JOB) for thread in threading.enumerate())


def _alone(share: int, place: Any, job: Callable[[], T]) -> T:
    """A job in a thread of its own, on one device, which uses no more than its share."""
    with limited(share), jax.default_device(place):
        return job()


def devices() -> list[Any]:
    """Where jobs may run: on all GPUs, unless JAX was told one of them; cores are one device."""
    told = jax.config.jax_default_device  # type: ignore[attr-defined]
    return [told] if told is not None or on_cpu() else jax.local_devices()


def in_turn(jobs: int) -> list[Any]:
    """A device for each of so many jobs, to be JAX's default in its thread; none is JAX's own."""
    each = devices()
    return [each[k % len(each)] for k in range(jobs)]


def device() -> Any:
    """Where programs run: on JAX's default device, which may be told by its platform's name."""
    told = jax.config.jax_default_device  # type: ignore[attr-defined]
    return told if hasattr(told, "platform") else jax.devices(told)[0]


def on_cpu() -> bool:
    """Whether programs run on cores, not on a GPU."""
    return bool(device().platform == "cpu")


@contextmanager
def suited_to(rows: int) -> Iterator[None]:
    """Short records stay on the cores beside a GPU, unless JAX was told where to run."""
    told = jax.config.jax_default_device  # type: ignore[attr-defined]
    if rows > SMALL or told is not None or jax.default_backend() == "cpu":
        yield
        return
    try:
        place = jax.devices("cpu")[0]
    except RuntimeError:  # JAX was told to know the GPU alone
        place = None
    with jax.default_device(place):
        yield


@contextmanager
def small_algebra() -> Iterator[None]:
    """One thread for each call of LAPACK: more wait for each other longer than they work.

    Matrices here have tens or hundreds of rows, and several jobs run side by side.
    """
    with threadpool_limits(1, "blas"):
        yield


@contextmanager
def limited(share: int) -> Iterator[None]:
    """So many cores, whatever there are, for what this thread does meanwhile."""
    before = getattr(_inside, "share", None)
    _inside.share = share
    try:
        yield
    finally:
        _inside.share = before
