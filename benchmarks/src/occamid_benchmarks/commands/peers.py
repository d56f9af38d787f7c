"""``occamid benchmark peers``: other people's models on the records of the suite."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from occamid.cli.shared import say
from occamid.errors import FileError, check_choice
from occamid_benchmarks import RESULTS
from occamid_benchmarks.peers import NAMES
from occamid_benchmarks.suite import others, records

FOLDER = RESULTS / "peers"


def peers(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECORDS",
            help=f"{', '.join(records.names())}; all if none is named.",
        ),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(NAMES)}; all if none is named.")
    ] = None,
    python: Annotated[
        Path, typer.Option(help="Python of the peers' environment, which make peers sets up.")
    ] = Path(".venv-peers/bin/python"),
    seconds: Annotated[
        int, typer.Option(min=1, help="Of the processor, after which no further fit begins.")
    ] = 120,
    limit: Annotated[
        int, typer.Option(min=1, help="Seconds of the processor after which a peer is ended.")
    ] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Fixes their random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = FOLDER,
) -> None:
    """SysIdentPy, jax-sysid and a GRU on the records of the suite, one record at a time.

    Each runs on one core in an environment of its own and is told the estimation data (at most
    the first 20,000 rows), and of a test its inputs and first outputs. Writes RECORD-PEER.json;
    failures and time limits are results too. What is measured is not measured again: give the
    same command to go on after a stop. occamid benchmark suite reads the results.

    Example: [bold]make peers[/bold], or [bold]occamid benchmark peers ph --peer gru[/bold]
    """
    chosen, wanted = names or list(records.names()), peer or list(NAMES)
    for name in chosen:
        check_choice("record", name, records.names())
    for name in wanted:
        check_choice("peer", name, tuple(NAMES))
    if not python.exists():
        raise FileError(f"{python} is not there; make peers sets the peers' environment up.")
    settings = others.Settings(python, seconds, limit, seed)
    work = [(name, p) for name in chosen for p in _unmeasured(name, wanted, out)]
    if done := len(chosen) * len(wanted) - len(work):
        say(f"{done} of {len(chosen) * len(wanted)} results were there before, in {out}")
    began = time.perf_counter()
    for count, (name, p) in enumerate(work, 1):
        result = others.run_peer(name, p, records.load(name), settings)
        others.write(result, out)
        left = (time.perf_counter() - began) / count * (len(work) - count)
        say(f"[{count} of {len(work)}] {told(result)}; about {left / 60:.0f} min left")


def _unmeasured(name: str, wanted: list[str], out: Path) -> list[str]:
    digest = others.problem_of(records.load(name)).digest
    return [p for p in wanted if not others.finished(out, name, p, digest)]


def told(result: others.Json) -> str:
    """One line on what came out."""
    tests = ", ".join(
        t["failure"] or f"{t['pooled']:.4g} {result['unit']}".strip() for t in result["tests"]
    )
    about = f" ({result['model']})" if result["model"] else ""
    return f"{result['record']}, {result['peer']}: {tests}{about}, {result['seconds']:.0f} s"
