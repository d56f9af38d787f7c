"""Commands answer before anything heavy is imported, and names cannot disturb a terminal."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import pytest

from occamid.cli.shared import neutral

# Not pydantic: recent versions of Typer import it themselves.
HEAVY = ["jax", "numpy", "scipy", "pandas", "plotly", "safetensors", "optax", "jinja2"]
PROGRAM = f"""
import json, sys
from occamid import cli
found = []
for line in sys.argv[1:]:
    code = cli._run(line.split())
    found.append([code, sorted(set({HEAVY!r}) & set(sys.modules))])
print(json.dumps(found))
"""
COMMANDS = {
    "--help": 0,
    "--version": 0,
    "--wrong": 2,
    "wrong": 2,
    **{f"{name} --help": 0 for name in ("identify", "simulate", "predict", "compare", "inspect")},
    **{f"{name} --help": 0 for name in ("report", "export", "check", "prepare", "fleet", "search")},
    "search nothing.csv": 2,
    "identify --wrong": 2,
    "identify nothing.csv": 2,
    "simulate no-run log.csv": 2,
    "simulate model nothing.csv": 2,
    "simulate model log.csv --initial nothing.csv": 2,
    "predict model log.csv --future nothing.csv": 2,
    "compare no-run log.csv": 2,
    "inspect no-run": 2,
    "export no-run": 2,
    "check nothing.csv": 2,
    "fleet nothing.csv": 2,
    "prepare nothing.csv --out new.csv": 2,
    "report no-run": 2,
}
LIBRARIES = "import pydantic, typer.rich_utils"  # what a command cannot do without
MOST = 2.5  # times what these take


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Codes of all commands, one after the other in a new process, and what was there after each.

    What is heavy and once imported stays, so the first that has it is to blame.
    """
    here = tmp_path_factory.mktemp("started")
    for name in ("model", "log.csv"):
        (here / name).write_bytes(b"")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *COMMANDS], capture_output=True, text=True, cwd=here
    )
    assert "Traceback" not in ran.stderr
    return dict(zip(COMMANDS, json.loads(ran.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_heavy_is_imported(command: str, answers: dict[str, list[Any]]) -> None:
    assert answers[command] == [COMMANDS[command], []]


def seconds(*arguments: str) -> float:
    """Of the processor, whatever else the machine does; the least of several times."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", *arguments], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def test_commands_start_about_as_fast_as_the_libraries_they_need() -> None:
    """Measured on the same machine at the same time: slow ones are slow for both."""
    least = seconds(LIBRARIES)
    for command in ("--help", "identify --help", "identify nothing.csv"):
        assert seconds(PROGRAM, command) < MOST * least, command


def test_commands_are_explained_alike_in_the_list_and_in_their_help() -> None:
    from occamid.cli.plugins import OWN, own_command

    for name, (_, said) in OWN.items():
        assert own_command(name).help.split("\n")[0].startswith(said.split(",")[0].rstrip(".")), (
            name
        )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("level", "level"),
        ("Füllstand °C", "Füllstand °C"),
        ("a\x1b[31mb\tc", "a\\x1b[31mb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("a\u2066b", "a\\u2066b"),
        ("the input מפלס acts", "the input \u2068מפלס\u2069 acts"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_names_cannot_move_the_cursor_or_turn_a_sentence(name: str, shown: str) -> None:
    assert neutral(name) == shown
