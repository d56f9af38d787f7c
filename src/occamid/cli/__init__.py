"""The command line.  It alone prints and turns errors into code 2.

Nothing heavy (JAX, NumPy, pandas, …) is imported before a command needs it: modules here import
Typer and Rich, and the work is done by modules that are imported inside functions.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import warnings
from importlib.metadata import version
from typing import Annotated, Any

import typer

from occamid.cli.flags import as_flags as as_flags
from occamid.cli.plugins import Commands
from occamid.cli.shared import neutral, say
from occamid.errors import OccamidError

app = typer.Typer(
    cls=Commands,
    help="Identify dynamic systems: small neural models from logged inputs and outputs.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
STOPPED = 130  # the exit code of Ctrl-C
AGAIN = 0.05  # seconds after which a lost Ctrl-C is repeated
_warned = warnings.showwarning
UsageError: Any = typer.BadParameter.__base__  # not exported; its home differs by version


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"occamid {version('occamid')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Identify dynamic systems: small neural models from logged inputs and outputs."""


def main() -> None:
    """Entry point: errors of the user end with one line and code 2, Ctrl-C with code 130.

    Warnings are a line, too; Ctrl-C in a place that cannot be left at once is not forgotten.
    """
    warnings.showwarning = _note
    sys.unraisablehook = _not_lost
    code = _run(sys.argv[1:] or ["--help"])
    if code == STOPPED and _jobs_left():  # nobody waits for them
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning of ours as a line for people; others as usual."""
    if category.__module__.startswith("occamid."):
        print(f"note: {neutral(as_flags(str(message)))}", file=sys.stderr)
    else:
        _warned(message, category, *place, **more)


def _not_lost(found: Any) -> None:
    """Press Ctrl-C again a moment later, where a destructor or callback has swallowed it."""
    if issubclass(found.exc_type, KeyboardInterrupt):
        threading.Timer(AGAIN, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(found)


def _jobs_left() -> bool:
    """Whether jobs side by side that were stopped are still at work."""
    at_work = sys.modules.get("occamid.training.cores")  # not imported for a command without any
    return at_work is not None and at_work.jobs_left()


def _run(arguments: list[str]) -> int:
    """The exit code of a command; what it has to say about a failure is one line."""
    try:
        code = app(arguments, standalone_mode=False) or 0
    except typer.Abort:  # Ctrl-C, which newer versions of Typer return as a code
        code = STOPPED
    except OccamidError as error:
        return _fail(str(error))
    except UsageError as error:
        return _fail(error.format_message())
    if code == STOPPED:
        print("stopped", file=sys.stderr)
    return int(code)


def _fail(message: str) -> int:
    print(f"error: {neutral(as_flags(message))}", file=sys.stderr)
    return 2
