"""``occamid benchmark profile``: where the seconds of one identification go."""

from __future__ import annotations

from typing import Annotated, get_args

import typer
from rich.table import Table

from occamid.cli.shared import console, say
from occamid.errors import check_choice
from occamid.identification.options import Effort
from occamid_benchmarks import profile as measured
from occamid_benchmarks.suite.records import names


def profile(
    record: Annotated[str, typer.Argument(help=f"{', '.join(names())}.")],
    effort: Annotated[str, typer.Option(help="quick, standard or thorough.")] = "standard",
) -> None:
    """Processor seconds of the automatic mode on one core, by family, and what compiling takes.

    What was compiled by earlier commands is not compiled again; to see all of it, set
    OCCAMID_PROGRAMS to nothing.

    Example: [bold]occamid benchmark profile hairdryer --effort quick[/bold]
    """
    check_choice("effort", effort, get_args(Effort))
    check_choice("record", record, names())
    with console.status(f"identifying {record}"):
        shares = measured.profile(record, effort)
    grid = Table(box=None)
    for heading in ("stage", "seconds", "compiling", "programs"):
        grid.add_column(heading, justify="left" if heading == "stage" else "right", no_wrap=True)
    for share in shares:
        if share.seconds >= 0.05:
            row = (f"{share.seconds:.1f}", f"{share.compiling:.1f}", str(share.programs))
            grid.add_row(share.what, *row)
    console.print(grid)
    total = sum(share.seconds for share in shares)
    compiling = sum(share.compiling for share in shares)
    say(f"{total:.0f} processor seconds in all, {compiling:.0f} of them compiling")
