"""``occamid benchmark suite``: the automatic mode on fifteen real records, beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from occamid.cli.arguments import Cluster, Processes
from occamid.cli.shared import console, say, stage_bar
from occamid.errors import DataError, OccamidError, check_choice
from occamid.files.atomic import replace_file
from occamid.identification import crew
from occamid.identification.crew import Workers
from occamid.identification.options import Effort
from occamid_benchmarks import RESULTS
from occamid_benchmarks.suite import measure, others, peers, records, table

DOCUMENT = "suite.md"


def suite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORDS",
            help=f"{', '.join(records.names())}; all if none is named.",
        ),
    ] = None,
    effort: Annotated[str, typer.Option(help="quick, standard or thorough.")] = "standard",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS / "suite",
    outside: Annotated[
        Path, typer.Option("--peers", help="Folder with the results of make peers.")
    ] = RESULTS / "peers",
    cluster: Cluster = None,
    workers: Processes = None,
    only_table: Annotated[
        bool, typer.Option("--table", help="Run nothing; make the table of what is finished.")
    ] = False,
) -> None:
    """Fifteen real records on their official splits: errors, bands and peers.

    Writes RECORD-EFFORT-SEED.json for each run and suite.md with the table of all that are in the
    folder. What is finished is not run again: give the same command to go on after a stop.

    Ten of the records are looked for in suite/ inside the folder that OCCAMID_DATA names. Peers
    are ARX, output error and subspace models, fitted to at most 10,000 of the same rows, and what
    make peers has measured of SysIdentPy, jax-sysid and a GRU.

    Example: [bold]occamid benchmark suite robot-arm ph --effort quick --seeds 1[/bold]
    """
    chosen = names or list(records.names())
    check_choice("effort", effort, get_args(Effort))
    for name in chosen:
        check_choice("record", name, records.names())
    who = Workers(cluster, workers)
    crew.check(who)
    failed = [] if only_table else _run_all(chosen, effort, range(seeds), out, who)
    if len(failed) < len(chosen) * seeds:  # else there may be nothing to show
        text = table.document(measure.read(out), others.read(outside))
        replace_file(out / DOCUMENT, text.encode())
        say(text)
        say(f"written to {out / DOCUMENT}")
    if failed:
        raise DataError(f"no result for {'; '.join(failed)}")


def _run_all(
    chosen: list[str], effort: str, seeds: range, out: Path, workers: Workers
) -> list[str]:
    """Run what is not finished; what fails is told and returned, and the others still run."""
    left = {name: measure.unfinished(out, name, effort, seeds) for name in chosen}
    cases = {name: records.load(name) for name in chosen if left[name]}  # missing files: at once
    failed: list[str] = []
    for name in chosen:
        if done := len(seeds) - len(left[name]):
            say(f"{name}: {done} of {len(seeds)} seeds finished before, in {out}")
        if name in cases:
            failed += _run_record(name, cases[name], effort, left[name], out, workers)
    return failed


def _run_record(
    name: str,
    case: records.Case,
    effort: str,
    seeds: list[int],
    out: Path,
    workers: Workers,
) -> list[str]:
    with console.status(f"peers on {name}"):
        fitted = peers.fit_peers(case.estimation)
    told = "; ".join(f"{n}: {p.about}, {p.seconds:.0f} s" for n, p in fitted.items())
    say(f"{name}, peers: {told}")
    failed = []
    for seed in seeds:
        try:
            with stage_bar() as progress:
                result = measure.run_seed(
                    name,
                    case,
                    fitted,
                    effort=effort,
                    seed=seed,
                    progress=progress,
                    workers=workers,
                )
        except OccamidError as error:
            failed.append(f"{name}, seed {seed}: {error}")
            say(failed[-1])
            continue
        measure.write(result, out)
        errors = ", ".join(
            f"{t['name']} {t['pooled']:.4g} {case.unit}".strip() for t in result["tests"]
        )
        say(f"{errors}, seed {seed}: {result['family']}, {result['seconds']:.0f} s")
    return failed
