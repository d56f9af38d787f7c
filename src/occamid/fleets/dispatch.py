"""Who does the units of a fleet: this process, processes of this machine, or a cluster of dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from occamid.errors import FileError
from occamid.fleets.units import Row, Unit, failure
from occamid.identification.crew import (
    AWAY,
    KILLED,
    Workers,
    available,
    client_of,
    distributed,
    is_killed,
)
from occamid.training.cores import cores


def processes(workers: Workers, units: int) -> int:
    """How many local processes there will be; one is this process itself."""
    wanted = workers.number
    if wanted is None:
        wanted = cores() if available() else 1
    return max(1, min(wanted, units))


def dispatch(
    do: Callable[[Unit], Row], units: Sequence[Unit], workers: Workers
) -> Iterator[tuple[Unit, Row]]:
    """Every unit with its row, as they are done."""
    count = processes(workers, len(units))
    if workers.cluster is None and count == 1:
        yield from ((unit, do(unit)) for unit in units)
        return
    with client_of(workers, count) as client:
        by_key = {f"occamid-fleet-{unit.key}": unit for unit in units}
        futures = client.map(do, list(by_key.values()), key=list(by_key))
        for future in distributed().as_completed(futures):
            yield by_key[future.key], _row(future, by_key[future.key])


def _row(future: Any, unit: Unit) -> Row:
    """The row of a unit that came back, or why it did not."""
    if future.status == "finished":
        row: Row = future.result()
        return row
    if future.status in ("cancelled", "lost"):
        raise FileError(AWAY)
    error = future.exception()
    if is_killed(error):
        return failure(unit, KILLED)
    return failure(unit, f"the worker failed with {type(error).__name__}: {error}")
