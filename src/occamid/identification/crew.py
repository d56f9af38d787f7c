"""Who does independent jobs: threads of this process, processes of this machine, or a cluster.

There is no scheduler of our own: dask sends jobs to workers, and again where a worker is lost.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from occamid.errors import FileError, SettingsError
from occamid.training.cores import VARIABLE, cores, limited, side_by_side, small_algebra
from occamid.training.room import make_room

T = TypeVar("T")
PATIENCE = 15  # seconds for a scheduler to answer
WAIT = 600  # and for its first worker to come
# Each local worker has one core, so none of the libraries below may start threads for all of them.
SINGLE = (VARIABLE, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
XLA = "xla_cpu_multi_thread_eigen=false"
AWAY = "the cluster went away; go on with `resume` when it is back."
KILLED = "its workers were killed again and again; give each of them more memory."


class Workers(NamedTuple):
    """Who does the work: a cluster by its address, or so many processes of this machine."""

    cluster: str | None = None
    number: int | None = None

    @classmethod
    def of(cls, told: int | str | None) -> Workers:
        """From a number of processes, or the address of a scheduler."""
        return cls(told) if isinstance(told, str) else cls(None, told)

    @property
    def told(self) -> int | str | None:
        """What :meth:`of` takes."""
        return self.number if self.cluster is None else self.cluster


HERE = Workers()


def available() -> bool:
    """Whether more than one process can be used."""
    return find_spec("distributed") is not None


def check(workers: Workers) -> None:
    """Refuse what cannot be, before anything is written."""
    _check_numbers(workers)
    if workers.cluster is not None:
        with client_of(workers, 0):  # nothing is begun where nobody answers
            pass
    elif (workers.number or 1) > 1:
        distributed()


def _check_numbers(workers: Workers) -> None:
    if workers.cluster is not None and workers.number is not None:
        raise SettingsError("give `cluster` or `workers`, not both; a cluster has its own workers.")
    if workers.number is not None and workers.number < 1:
        raise SettingsError(f"`workers` takes a number of processes from 1, not {workers.number}.")


@dataclass(frozen=True)
class Crew:
    """Jobs side by side: on threads of this process, or on the workers that a client knows."""

    client: Any = None

    @property
    def size(self) -> int:
        """How many jobs can go on at once."""
        return cores() if self.client is None else max(1, sum(self.client.nthreads().values()))

    def do(
        self, jobs: Sequence[Callable[[], T]], done: Callable[[int, T], None] | None = None
    ) -> list[T]:
        """The results of independent jobs, in their order.

        Workers get jobs as pickles, and ``done`` is called here with the number and the result of
        each that has ended; threads tell for themselves how far they are.
        """
        if self.client is None:
            return side_by_side(jobs)
        futures = self.client.map(_alone, list(jobs), pure=False)
        number = {future.key: k for k, future in enumerate(futures)}
        found: dict[int, T] = {}
        try:
            for future in distributed().as_completed(futures):
                k = number[future.key]
                found[k] = _result(future)
                if done:
                    done(k, found[k])
        except BaseException:  # a job that fails, or Ctrl-C, ends the others
            self.client.cancel(futures)
            raise
        return [found[k] for k in range(len(futures))]


def _alone(job: Callable[[], T]) -> T:
    """A job on a worker, which has one core and does one job at a time."""
    make_room()
    with limited(1), small_algebra():
        return job()


def _result(future: Any) -> Any:
    if future.status in ("cancelled", "lost"):
        raise FileError("the cluster went away before all was done.")
    if future.status == "error" and is_killed(future.exception()):
        raise FileError(f"a job could not be done: {KILLED}")
    return future.result()


def is_killed(error: Any) -> bool:
    """Whether a job failed because its workers did, several times."""
    return isinstance(error, distributed().scheduler.KilledWorker)


@contextmanager
def crew_of(workers: Workers) -> Iterator[Crew]:
    """Threads of this process where neither a cluster nor several processes are asked for."""
    _check_numbers(workers)
    if workers.cluster is None and (workers.number or 1) == 1:
        yield Crew()
        return
    with client_of(workers, workers.number or 0) as client:
        try:
            client.wait_for_workers(1, timeout=WAIT)
        except TimeoutError:
            raise SettingsError(
                f"the cluster at {workers.cluster} has no worker after {WAIT} s; start some, or "
                "leave out `cluster`."
            ) from None
        yield Crew(client)


@contextmanager
def client_of(workers: Workers, count: int) -> Iterator[Any]:
    """A connection to the cluster that was named, or to processes that go when this one does."""
    library = distributed()
    with ExitStack() as stack:
        address: Any = workers.cluster
        if address is None:
            address = stack.enter_context(
                library.LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    memory_limit=None,  # the system's own will do
                    dashboard_address=None,  # no port but the workers'
                    silence_logs=logging.CRITICAL,
                    env=_environment(),
                )
            )
        try:
            client = stack.enter_context(library.Client(address, timeout=PATIENCE))
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"no cluster answers at {address} ({_short(error)}); `cluster` takes the address "
                "that its scheduler shows, such as tcp://10.0.0.1:8786."
            ) from None
        yield client


def _environment() -> dict[str, str]:
    """What local workers are told; flags for XLA that are there already stay.

    Several processes share a GPU only where none takes all of its memory beforehand.
    """
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--" + XLA]).strip()
    shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return dict.fromkeys(SINGLE, "1") | shared | {"XLA_FLAGS": flags}


def _short(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def distributed() -> Any:
    """The library, or what to install."""
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise SettingsError(
            "more than one process needs the package distributed, which is not installed: "
            'pip install "occamid[cluster]"; or use `workers=1`.'
        ) from None
