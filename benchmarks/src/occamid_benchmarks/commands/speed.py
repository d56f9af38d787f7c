"""``occamid benchmark speed``: seconds of the automatic mode, first and again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.table import Table

from occamid.cli.shared import console, say
from occamid.errors import check_choice
from occamid.identification.options import Effort
from occamid_benchmarks import RESULTS
from occamid_benchmarks import speed as measured
from occamid_benchmarks.registry import BENCHMARKS
from occamid_benchmarks.suite.records import names


def speed(
    records: Annotated[
        list[str] | None,
        typer.Argument(help="Records of the suite; the five of the paper if none."),
    ] = None,
    effort: Annotated[str, typer.Option(help="quick, standard or thorough.")] = "standard",
    out: Annotated[Path | None, typer.Option(help=f"Folder; default {RESULTS}/speed.")] = None,
) -> None:
    """Seconds, processor seconds and memory of whole identifications, each in its own process.

    Cold: nothing is compiled yet.  Warm: again, with what the first run compiled.  Measure when
    nothing else runs; OCCAMID_THREADS says how many cores may be used.

    Example: [bold]occamid benchmark speed hairdryer --effort quick[/bold]
    """
    check_choice("effort", effort, get_args(Effort))
    chosen = records or list(BENCHMARKS)
    for record in chosen:
        check_choice("record", record, names())
    grid = Table(box=None)
    headings = ("record", "rows", "cold s", "warm s", "cold CPU s", "warm CPU s", "GiB", "family")
    for heading in headings:
        left = heading in ("record", "family")
        grid.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for record in chosen:
        with console.status(f"{record}, cold and warm"):
            found = measured.measure(record, effort)
        path = measured.write(found, out or RESULTS / "speed")
        cold, warm = (found[kind] for kind in measured.KINDS)
        numbers = [f"{x[k]:.1f}" for k in ("seconds", "processor_seconds") for x in (cold, warm)]
        memory = f"{max(cold['peak_gib'], warm['peak_gib']):.2f}"
        grid.add_row(record, str(cold["rows"]), *numbers, memory, cold["family"])
        say(f"{record}: {cold['seconds']:.1f} s cold, {warm['seconds']:.1f} s warm; {path}")
    console.print(grid)
