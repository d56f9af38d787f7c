"""What the commands share: the console, options with several numbers, the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from occamid import driver
from occamid.errors import SettingsError

console = Console()


def say(text: str) -> None:
    """Plain text: brackets in names are not markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def numbers(text: str | None, kind: type, name: str) -> tuple[Any, ...] | None:
    """Comma-separated numbers of an option."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"--{name} takes {'whole ' if kind is int else ''}numbers separated by commas, "
            f"not {text!r}."
        ) from None


@contextmanager
def training_bar(what: str = "compiling") -> Iterator[Callable[[driver.Progress], None]]:
    """A live bar: cycles done, time so far, time left, best error so far."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None, state="", left="")

        def progress(p: driver.Progress) -> None:
            left = p.seconds / p.done * (p.total - p.done)
            bar.update(
                task,
                description=f"training {p.models} models",
                total=p.total,
                completed=p.done,
                state=f"free run {p.best_free_run:.3f} σ, sparsity {p.sparsity:.0%}",
                left=f"{left:.0f} s left",
            )

        yield progress
