"""An identification that is killed goes on to the same model; nothing is heard twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from occamid.cli.identify import identify
from occamid.identification.answers import Answers
from occamid.identification.court import Court
from occamid.identification.folds import Fold
from tests.support.jobs import TINY

KILLED = """
import os, signal, sys
from occamid.cli import main
from occamid.identification.court import Court
hear, calls = Court.answers, []
def answers(*case):
    calls.append(case)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return hear(*case)
Court.answers = answers
main()
"""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    home = tmp_path_factory.mktemp("calm")
    (home / "job.toml").write_text(TINY, "utf-8")
    identify(config=home / "job.toml", out=home / "run", as_json=True)
    return home


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folds that were really heard, not found."""
    seen: list[str] = []
    real = Court.answers

    def answers(self: Court, fold: Fold, where: str, names: Sequence[str]) -> Answers:
        seen.append(where)
        return real(self, fold, where, names)

    monkeypatch.setattr(Court, "answers", answers)
    return seen


@pytest.mark.parametrize("named", [False, True])
def test_a_killed_command_goes_on(
    named: bool, calm: Path, tmp_path: Path, heard: list[str]
) -> None:
    job, out, place = calm / "job.toml", tmp_path / "run", tmp_path / "store"
    store = f"file://{place}" if named else None
    told = ["identify", "--config", str(job), "--out", str(out), *(["--store", store] * named)]
    ran = subprocess.run([sys.executable, "-c", KILLED, *map(str, told)], capture_output=True)
    assert ran.returncode == -9, ran.stderr
    assert not out.exists()
    kept = place if named else tmp_path / ".run.partial"
    entries = {p.name: p.read_bytes() for p in kept.glob("*.unit")}
    assert len(entries) == 2

    identify(config=job, out=out, resume=True, store=store, as_json=True)
    assert heard == ["fold 3 of 3"]
    one, other = (load_file(home / "run" / "model.safetensors") for home in (calm, tmp_path))
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value)
    assert not (tmp_path / ".run.partial").exists()
    if named:  # the user's own, and stays
        assert {name: (place / name).read_bytes() for name in entries} == entries
        assert len(list(place.iterdir())) == 3


def test_without_resume_a_store_is_not_used(calm: Path, tmp_path: Path, heard: list[str]) -> None:
    for force in (False, True):
        store = str(tmp_path / "store")
        identify(config=calm / "job.toml", out=tmp_path / "run", store=store, force=force)
    assert heard == [f"fold {k} of 3" for k in (1, 2, 3)] * 2
    assert len(list((tmp_path / "store").iterdir())) == 3
