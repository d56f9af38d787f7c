"""Commands by name and place: listed and explained without an import, loaded when they are used.

Occamid's own stand in :data:`OWN`; those of other packages are found by their entry points.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from occamid.errors import SettingsError

GROUP = "occamid.commands"
OWN = {
    "identify": (
        "occamid.cli.identify",
        "Identify a dynamic system from logged inputs and outputs.",
    ),
    "fleet": (
        "occamid.cli.fleet",
        "One model for each of many logs of the same kind, and a page over all of them.",
    ),
    "search": (
        "occamid.cli.search",
        "Search settings on held-back data, and fit the simplest of the best.",
    ),
    "check": (
        "occamid.cli.check",
        "Find gaps, stuck sensors, spikes, delay, feedback and more in log files.",
    ),
    "prepare": ("occamid.cli.prepare", "Cut, fill, filter and resample log files."),
    "simulate": (
        "occamid.cli.use",
        "Free run of a model on a file's inputs, with bands; outputs only to start from.",
    ),
    "predict": (
        "occamid.cli.use",
        "Predict outputs a number of steps ahead of measurements, or beyond the end of a log.",
    ),
    "compare": ("occamid.cli.use", "Fit, error and size of one or more runs on one file."),
    "inspect": ("occamid.cli.use", "What a model is made of, and what it does."),
    "export": (
        "occamid.cli.export",
        "Write a model for C, ONNX, FMI, a PLC, CasADi or your own code.",
    ),
    "report": ("occamid.cli.use", "Write the report of a run again: one HTML file."),
}
# What the package of the paper's reproduction brings; listed and explained without it, too.
BENCHMARKS = {
    "benchmark": "Reproduce the paper's ten experiments and compare with baselines.",
    "data": "The five real benchmark records: list them, fetch them, or say where a file is.",
}
GET_BENCHMARKS = (
    "it is in the package occamid-benchmarks, which is on no index: run pip install ./benchmarks "
    "in a checkout of occamid."
)


class Commands(TyperGroup):
    """All commands: occamid's own, then those of other packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        others = entry_points(group=GROUP).names | set(BENCHMARKS)
        return [*OWN, *sorted(others - set(OWN))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What stands for a command until it is used."""
        if cmd_name in OWN:
            return Deferred(name=cmd_name, help=OWN[cmd_name][1])
        if cmd_name in self.list_commands(ctx):
            return Deferred(name=cmd_name, help=BENCHMARKS.get(cmd_name, "From another package."))
        return None


class Deferred(TyperGroup):
    """A command that is not loaded yet; parsing its arguments is what imports it."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the real command."""
        return self.real().make_context(info_name, args, parent, **extra)

    def real(self) -> Any:
        """The command itself."""
        name = str(self.name)
        return own_command(name) if name in OWN else _others(name)


def own_command(name: str) -> Any:
    """A command of occamid: the function of this name in its module."""
    alone = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    alone.command(name)(getattr(import_module(OWN[name][0]), name))
    return get_command(alone)


def _others(name: str) -> Any:
    """A command of another package."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise SettingsError(f"occamid {name} is not installed; {GET_BENCHMARKS}")
    try:
        return get_command(found[0].load())
    except ImportError as error:
        raise SettingsError(
            f"occamid {name} cannot be loaded ({error}); install its package again."
        ) from None
