"""How long an identification takes, in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from occamid.errors import FileError
from occamid.training.entries import VARIABLE as PROGRAMS
from occamid_benchmarks import speed
from occamid_benchmarks.suite import records
from tests.support.commands import call_main
from tests.support.small import small_record

TOLD = {"processor_seconds": 3.5, "peak_gib": 0.5, "rows": 90, "family": "arx"}


def answer(monkeypatch: pytest.MonkeyPatch, code: int = 0, error: str = "") -> list[dict[str, Any]]:
    """Processes that end at once; what each was given."""
    seen: list[dict[str, Any]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> SimpleNamespace:
        seen.append({"command": command, "cache": env[PROGRAMS], "left": os.listdir(env[PROGRAMS])})
        Path(env[PROGRAMS], f"program{len(seen)}-cache").write_text("")
        said = "a warning\n" + json.dumps(TOLD) + "\n"
        return SimpleNamespace(returncode=code, stdout=said, stderr=error)

    monkeypatch.setattr("subprocess.run", run)
    return seen


def test_the_second_run_finds_what_the_first_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = answer(monkeypatch)
    folder = tmp_path / "results"
    assert call_main(monkeypatch, "benchmark", "speed", "ph", "--out", folder) == 0
    assert [one["command"][-2:] for one in seen] == [["ph", "standard"]] * 2
    assert [one["left"] for one in seen] == [[], ["program1-cache"]]
    assert not Path(seen[0]["cache"]).exists()
    result = json.loads((folder / "ph-standard.json").read_text())
    assert result["cold"]["processor_seconds"] == result["warm"]["processor_seconds"] == 3.5
    assert {"version", "machine", "jax"} <= set(result)
    assert "0.50" in capsys.readouterr().out


def test_a_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 1, "Traceback\nDataError: too few rows")
    with pytest.raises(FileError, match="ph: the identification ended with 1: DataError: too few"):
        speed.measure("ph", "quick")


def test_the_process_says_what_it_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = SimpleNamespace(estimation=(small_record(70), small_record(50)))
    monkeypatch.setattr(records, "load", lambda _: case)
    fit = SimpleNamespace(family=SimpleNamespace(name="arx"))
    monkeypatch.setattr(speed, "identify", lambda *_, **__: fit)
    speed.main("any", "quick")
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["family"]) == (120, "arx")
    assert told["processor_seconds"] > 0
    assert 0.05 < told["peak_gib"] < 24
