"""What the commands share: the console, names that are safe to print, the progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from occamid.errors import FileError
from occamid.files.plain import neutral as neutral

if TYPE_CHECKING:
    from occamid.identification.progress import Stage

console = Console()


def say(text: str) -> None:
    """Plain text: brackets in names are not markup, and names cannot reverse a sentence."""
    console.print(neutral(text), markup=False, highlight=False, soft_wrap=True)


def require_files(paths: Iterable[Path]) -> None:
    """Refuse a file that is not there before anything heavy is imported."""
    for path in paths:
        if not os.path.lexists(path):
            there = os.listdir(path.parent)[:1000] if path.parent.is_dir() else []
            like = get_close_matches(path.name, there, n=3)
            hint = f" Did you mean {' or '.join(like)}?" if like else ""
            raise FileError(f"there is no file {path}.{hint}")


def listed(values: Iterable[float | None], spec: str, unit: str = "") -> str:
    """Numbers of several outputs for people; a dash where a free run has none."""
    return ", ".join("–" if v is None else f"{v:{spec}}{unit}" for v in values)


def columns() -> tuple[Any, ...]:
    """What stands in a live bar."""
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

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
    from rich.progress import Progress

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
