"""Commands answer before anything heavy is imported, and names cannot disturb a terminal."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from occamid.cli.shared import neutral

# Not pydantic: recent versions of Typer import it themselves.
HEAVY = ["jax", "numpy", "scipy", "pandas", "plotly", "safetensors", "optax", "jinja2"]
PROGRAM = f"""
import json, sys
from occamid import cli
code = cli._run(sys.argv[1:])
print(json.dumps([code, sorted(set({HEAVY!r}) & set(sys.modules))]))
"""
MOST_SECONDS = 0.6


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["--wrong"], 2),
        (["wrong"], 2),
        *[([name, "--help"], 0) for name in ("identify", "simulate", "predict", "compare")],
        *[
            ([name, "--help"], 0)
            for name in ("inspect", "report", "export", "check", "prepare", "fleet")
        ],
        (["search", "--help"], 0),
        (["search", "nothing.csv"], 2),
        (["identify", "--wrong"], 2),
        (["identify", "nothing.csv"], 2),
        (["simulate", "no-run", "log.csv"], 2),
        (["simulate", "model", "nothing.csv"], 2),
        (["simulate", "model", "log.csv", "--initial", "nothing.csv"], 2),
        (["predict", "model", "log.csv", "--future", "nothing.csv"], 2),
        (["compare", "no-run", "log.csv"], 2),
        (["inspect", "no-run"], 2),
        (["export", "no-run"], 2),
        (["check", "nothing.csv"], 2),
        (["fleet", "nothing.csv"], 2),
        (["prepare", "nothing.csv", "--out", "new.csv"], 2),
        (["report", "no-run"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_heavy_is_imported(arguments: list[str], code: int, tmp_path: Path) -> None:
    for name in ("model", "log.csv"):
        (tmp_path / name).write_bytes(b"")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert json.loads(ran.stdout.splitlines()[-1]) == [code, []], ran.stderr
    assert spent < MOST_SECONDS  # of the processor, whatever else the machine does
    assert "Traceback" not in ran.stderr


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
