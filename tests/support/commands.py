"""The command line in this process: what it prints, its exit code, and what it leaves behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from occamid import cli


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def call_main(patch: pytest.MonkeyPatch, *args: object) -> int:
    """``occamid ARGS`` in this process: the exit code."""
    patch.setattr(sys, "argv", ["occamid", *map(str, args)])
    patch.setattr(sys, "excepthook", sys.excepthook)  # Typer sets its own
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code is None or isinstance(caught.value.code, int)
    return caught.value.code or 0


class Runner:
    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Path
    ) -> None:
        self._patch, self._capsys, self._here = monkeypatch, capsys, here

    def __call__(self, *args: object) -> Outcome:
        code = call_main(self._patch, *args)
        return Outcome(code, *self._capsys.readouterr())

    def fails(self, *args: object) -> str:
        """The one line of an error; afterwards the folder is as it was before."""
        before = listing(self._here)
        outcome = self(*args)
        assert outcome.code == 2
        assert outcome.out == ""
        line, end, rest = outcome.err.partition("\n")
        assert (end, rest) == ("\n", "")
        assert line.startswith("error: ")
        assert listing(self._here) == before
        return line.removeprefix("error: ")


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, hidden ones too, with the contents of files."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def strict_json(path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert isinstance(found, dict)
    return found
