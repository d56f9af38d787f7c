"""``occamid data``: the real benchmark records, where they are and how to get them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from occamid.cli.shared import console, say
from occamid.errors import FileError
from occamid_benchmarks import registry

app = typer.Typer(
    help="The five real benchmark records: list them, fetch them, or say where a file is.",
    no_args_is_help=True,
)
Names = Annotated[
    list[str] | None,
    typer.Argument(help=f"{', '.join(registry.BENCHMARKS)}; all if none is named."),
]


@app.command("list")
def show() -> None:
    """Every record with its sampling time, what it is, and whether it is on this machine."""
    table = Table()
    for heading in ("record", "sampling", "what", "on this machine"):
        table.add_column(heading)
    for name, benchmark in registry.BENCHMARKS.items():
        found = registry.find(name)
        where = str(found.parent) if found else "no; occamid data fetch"
        table.add_row(name, f"{benchmark.sampling_time:g} s", benchmark.about, where)
    console.print(table)


@app.command()
def fetch(names: Names = None) -> None:
    """Bring records to this machine, each checked by its SHA-256; what is there is not fetched."""
    for name in names or registry.BENCHMARKS:
        say(f"{name}: {registry.path(name)}")


@app.command()
def path(name: Annotated[str, typer.Argument(help="One of the records.")]) -> None:
    """Print the path of a record's file, for scripts; nothing is downloaded."""
    found = registry.find(name)
    if found is None:
        raise FileError(
            f"{name} is not on this machine; run occamid data fetch {name}, or name its folder "
            f"in {registry.VARIABLE}."
        )
    say(str(found))
