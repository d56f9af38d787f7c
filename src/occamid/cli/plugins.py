"""Commands of other packages: found by their entry points, imported only when they are used."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from occamid.errors import SettingsError

GROUP = "occamid.commands"
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
        return [*super().list_commands(ctx), *sorted(others - set(self.commands))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of its own, or one that stands for another package's until it is used."""
        if cmd_name in self.commands or cmd_name not in self.list_commands(ctx):
            return super().get_command(ctx, cmd_name)
        return Deferred(name=cmd_name, help=BENCHMARKS.get(cmd_name, "From another package."))


class Deferred(TyperGroup):
    """A command of another package; parsing its arguments is what imports it."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """The context of the real command."""
        found = list(entry_points(group=GROUP, name=str(self.name)))
        if not found:
            raise SettingsError(f"occamid {self.name} is not installed; {GET_BENCHMARKS}")
        try:
            real = get_command(found[0].load())
        except ImportError as error:
            raise SettingsError(
                f"occamid {self.name} cannot be loaded ({error}); install its package again."
            ) from None
        return real.make_context(info_name, args, parent, **extra)
