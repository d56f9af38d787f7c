"""Who does the units: this process, processes of this machine, or a cluster of dask.

There is no scheduler of our own: dask sends units to workers, and again where a worker is lost.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from occamid.errors import FileError, SettingsError
from occamid.fleets.units import Row, Unit, failure
from occamid.training.cores import VARIABLE, cores

PATIENCE = 15  # seconds for a scheduler to answer
# Each local worker has one core, so none of the libraries below may start threads for all of them.
SINGLE = (VARIABLE, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
XLA = "xla_cpu_multi_thread_eigen=false"


class Workers(NamedTuple):
    """Who does the work: a cluster by its address, or so many processes of this machine."""

    cluster: str | None = None
    number: int | None = None

    def processes(self, units: int) -> int:
        """How many local processes there will be; one is this process itself."""
        wanted = self.number
        if wanted is None:
            wanted = cores() if available() else 1
        return max(1, min(wanted, units))


def available() -> bool:
    """Whether more than one process can be used."""
    return find_spec("distributed") is not None


def check(workers: Workers) -> None:
    """Refuse what cannot be, before anything is written."""
    if workers.cluster is not None and workers.number is not None:
        raise SettingsError("give `cluster` or `workers`, not both; a cluster has its own workers.")
    if workers.number is not None and workers.number < 1:
        raise SettingsError(f"`workers` takes a number of processes from 1, not {workers.number}.")
    if workers.cluster is not None:
        with _client(_distributed(), workers, 0):  # nothing is begun where nobody answers
            pass
    elif (workers.number or 1) > 1:
        _distributed()


def dispatch(
    do: Callable[[Unit], Row], units: Sequence[Unit], workers: Workers
) -> Iterator[tuple[Unit, Row]]:
    """Every unit with its row, as they are done."""
    count = workers.processes(len(units))
    if workers.cluster is None and count == 1:
        yield from ((unit, do(unit)) for unit in units)
        return
    distributed = _distributed()
    with _client(distributed, workers, count) as client:
        by_key = {f"occamid-fleet-{unit.key}": unit for unit in units}
        futures = client.map(do, list(by_key.values()), key=list(by_key))
        for future in distributed.as_completed(futures):
            yield by_key[future.key], _row(distributed, future, by_key[future.key])


def _row(distributed: Any, future: Any, unit: Unit) -> Row:
    """The row of a unit that came back, or why it did not."""
    if future.status == "finished":
        row: Row = future.result()
        return row
    if future.status in ("cancelled", "lost"):
        raise FileError("the cluster went away; go on with `resume` when it is back.")
    error = future.exception()
    if isinstance(error, distributed.scheduler.KilledWorker):
        return failure(
            unit, "its workers were killed again and again; give each of them more memory."
        )
    return failure(unit, f"the worker failed with {type(error).__name__}: {error}")


@contextmanager
def _client(distributed: Any, workers: Workers, count: int) -> Iterator[Any]:
    """A connection to the cluster that was named, or to processes that go when this one does."""
    with ExitStack() as stack:
        address: Any = workers.cluster
        if address is None:
            address = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    memory_limit=None,  # the system's own will do
                    dashboard_address=None,  # no port but the workers'
                    silence_logs=logging.CRITICAL,
                    env=_environment(),
                )
            )
        try:
            client = stack.enter_context(distributed.Client(address, timeout=PATIENCE))
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"no cluster answers at {address} ({_short(error)}); `cluster` takes the address "
                "that its scheduler shows, such as tcp://10.0.0.1:8786."
            ) from None
        yield client


def _environment() -> dict[str, str]:
    """What local workers are told; flags for XLA that are there already stay."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--" + XLA]).strip()
    return dict.fromkeys(SINGLE, "1") | {"XLA_FLAGS": flags}


def _short(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise SettingsError(
            "more than one process needs the package distributed, which is not installed: "
            'pip install "occamid[cluster]"; or use `workers=1`.'
        ) from None
