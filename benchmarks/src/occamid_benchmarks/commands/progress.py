"""A live bar of one training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import Progress

from occamid.cli.shared import columns, console
from occamid.training.train import Progress as Step


@contextmanager
def training_bar(what: str = "compiling") -> Iterator[Callable[[Step], None]]:
    """A live bar: cycles done, time so far, time left, best error so far."""
    with Progress(*columns(), console=console) as bar:
        task = bar.add_task(what, total=None, state="", left="")

        def progress(p: Step) -> None:
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
