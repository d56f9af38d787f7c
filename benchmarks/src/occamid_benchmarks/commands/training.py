"""``occamid benchmark training``: models × epochs a second, beside a plain PyTorch loop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from occamid.cli.shared import console, say
from occamid.errors import FileError, check_choice
from occamid_benchmarks import RESULTS, experiments, throughput
from occamid_benchmarks.suite.measure import put

HEADINGS = (
    "experiment", "restarts", "epochs", "compile s", "run s", "models × epochs/s", "of peak",
    "PyTorch loop", "times",
)  # fmt: skip


def training(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPERIMENTS", help="As in list; four usual ones if none."),
    ] = None,
    restarts: Annotated[
        int | None, typer.Option(min=1, help="Networks trained together; as usual if not given.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="A Python with torch, for a plain loop on the same rows.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = RESULTS / "speed",
) -> None:
    """How fast batches of the paper's networks train on this machine.

    The share of the peak is that of the matrix products of an epoch against a large product in
    single precision, timed in the same run. Measure when nothing else runs.

    Example: [bold]occamid benchmark training hairdryer-lstm --restarts 20[/bold]
    """
    chosen = names or list(throughput.CASES)
    for name in chosen:
        check_choice("experiment", name, tuple(experiments.experiments()))
    if python is not None and not python.exists():
        raise FileError(f"{python} is not there; --python takes the path of a Python with torch.")
    grid = Table(box=None)
    for heading in HEADINGS:
        grid.add_column(heading, justify="left" if heading == "experiment" else "right")
    for name in chosen:
        count = restarts or throughput.CASES.get(
            name, experiments.experiments()[name].settings.restarts
        )
        with console.status(f"{name}, {count} restarts"):
            found = throughput.measure(name, count, python)
        device = found["device"].replace(" ", "-")
        put(found, out / f"training-{name}-{count}-{device}.json")
        grid.add_row(*line(found))
    console.print(grid)
    if python is None:
        say("PyTorch loop: not measured; --python names a Python that has torch")


def line(found: dict[str, Any]) -> list[str]:
    """A row of the table."""
    rate, loop = found["models_epochs_per_second"], found["torch"]
    own = loop["models_epochs_per_second"] if loop else None
    return [
        found["experiment"],
        str(found["restarts"]),
        str(found["epochs"]),
        f"{found['compile_seconds']:.1f}",
        f"{found['run_seconds']:.1f}",
        f"{rate:,.0f}",
        f"{found['share_of_peak']:.1%}",
        f"{own:,.0f}" if own else "-",
        f"{rate / own:.0f}" if own else "-",
    ]
