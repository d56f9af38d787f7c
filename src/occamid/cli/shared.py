"""What the commands share: the console, the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from occamid.identification.progress import Stage

console = Console()


def say(text: str) -> None:
    """Plain text: brackets in names are not markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def listed(values: Iterable[float | None], spec: str, unit: str = "") -> str:
    """Numbers of several outputs for people; a dash where a free run has none."""
    return ", ".join("–" if v is None else f"{v:{spec}}{unit}" for v in values)


def columns() -> tuple[Any, ...]:
    """What stands in a live bar."""
    return (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )


@contextmanager
def stage_bar(quiet: bool = False) -> Iterator[Callable[[Stage], None]]:
    """A live bar of the automatic mode: what goes on, time so far, time left."""
    with Progress(*columns(), console=console, disable=quiet) as bar:
        task = bar.add_task("reading", total=1.0, state="", left="")

        def progress(stage: Stage) -> None:
            left = stage.seconds * (1 - stage.share) / stage.share if stage.share > 0.02 else None
            bar.update(
                task,
                description=stage.what,
                completed=stage.share,
                left="" if left is None else f"{left:.0f} s left",
            )

        yield progress
