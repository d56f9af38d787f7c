"""The work of ``occamid fleet``: units, a bar, and what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from occamid.cli.flags import as_flags
from occamid.cli.shared import columns, console, neutral, say
from occamid.errors import DataError
from occamid.fleets.fleet import PAGE, TABLE, Done, Fleet, Target, run_fleet
from occamid.identification.crew import HERE, Workers, available
from occamid.identification.job import Job
from occamid.training.cores import cores

RESUME = "Finished assets are kept: the same command with --resume goes on from there."
LISTED = 20  # failures and odd ones that are printed; all are in the table


def run(job: Job, files: Sequence[Path], to: Target, workers: Workers, *, quiet: bool) -> None:
    """A fleet with a bar; ``quiet`` prints its summary as JSON only."""
    if not quiet and workers == HERE and cores() > 1 and not available():
        say(f'one process; all {cores()} cores with pip install "occamid[cluster]"')
    try:
        with _bar(quiet) as progress:
            fleet = run_fleet(job, files, to, workers, progress)
    except (KeyboardInterrupt, typer.Abort):
        print(RESUME, file=sys.stderr)
        raise
    if quiet:
        print(json.dumps(_told(fleet)))
    else:
        _show(fleet)
    if not fleet.rows:
        first = fleet.failures[0]
        raise DataError(
            f"none of {len(fleet.failures)} assets could be identified; the first, "
            f"{first['asset']}: {' '.join(first['message'].split())}"
        )


def _told(fleet: Fleet) -> dict[str, Any]:
    return {
        "out": str(fleet.folder),
        "identified": len(fleet.rows),
        "failed": {row["asset"]: row["message"] for row in fleet.failures},
        "summary": fleet.summary,
    }


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[Done], None]]:
    """A live bar: assets so far, time so far, time left."""
    from rich.progress import Progress

    with Progress(*columns(), console=console, disable=quiet) as bar:
        task = bar.add_task("reading", total=None, state="", left="")
        before: int | None = None  # done by an earlier run
        failed = 0

        def progress(done: Done) -> None:
            nonlocal before, failed
            before = done.done - 1 if before is None else before
            failed += not done.good
            left = done.seconds / (done.done - before) * (done.total - done.done)
            bar.update(
                task,
                description=neutral(done.asset)[:40],
                completed=done.done,
                total=done.total,
                state=f"{done.done}/{done.total}" + (f", {failed} failed" if failed else ""),
                left=f"{left:.0f} s left",
            )

        yield progress


def _show(fleet: Fleet) -> None:
    """The fleet in a few lines; the page has the rest."""
    count = len(fleet.rows)
    say(f"{count} of {count + len(fleet.failures)} assets identified")
    if fleet.rows:
        each = [sorted(row[k] for row in fleet.rows) for k in ("seconds", "processor_seconds")]
        wall, processor = (
            f"median {times[count // 2]:.3g}, {sum(times):.4g} in all" for times in each
        )
        say(f"  seconds for each asset: {wall}; of a processor: {processor}")
    for measure in fleet.summary.get("measures", []):
        low, middle, high = (measure[k] for k in ("low", "median", "high"))
        say(f"  {measure['name']}: median {middle:.3g}, from {low:.3g} to {high:.3g}")
    for found in fleet.summary.get("odd", [])[:LISTED]:
        say(f"odd: {found['asset']}: {'; '.join(found['reasons'])}")
    for row in fleet.failures[:LISTED]:
        say(f"failed: {row['asset']}: {as_flags(row['message'])}")
    if len(fleet.failures) > LISTED:
        say(f"failed: {len(fleet.failures) - LISTED} more, see {fleet.folder / TABLE}")
    say(f"open {fleet.folder / PAGE} in a browser")
