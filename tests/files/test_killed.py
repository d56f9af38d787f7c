"""Kill -9 at every operation of a writer: the old run or the new one, and nothing else is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from occamid.files import manifest
from tests.support.folders import holds, write

ROOT = Path(__file__).parents[2]
KINDS = ("run", "shared", "empty", "nothing")
POINTS = 100  # more than there are operations
OLD, NEW = {"old.txt": b"old", "both.txt": b"1"}, {"new.txt": b"new", "both.txt": b"2"}
AGAIN = {"both.txt": b"3"}
INSIDE = {"mine.txt": b"mine", "kept/deep/log.csv": b"t,u,y"}
DEAD = ".out.new-99999999-x"  # named like a folder of a process that is gone
BESIDE = {"log.csv": b"t,u,y", ".out.partial/mine.safetensors": b"mine", DEAD + "/a": b"a"}


def put(base: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(content)


def make(base: Path, kind: str) -> None:
    """A world with other people's files, and a run with or without some among its own."""
    put(base, BESIDE)
    if kind in ("run", "shared"):
        write(base / "out", OLD)
    if kind == "shared":
        put(base / "out", INSIDE)
    if kind == "empty":
        (base / "out").mkdir()


def foreign(base: Path, kind: str) -> bool:
    """Whether everything that no run wrote is there as it was."""
    files = BESIDE | {f"out/{k}": v for k, v in INSIDE.items() if kind == "shared"}
    return all((base / name).read_bytes() == content for name, content in files.items())


def seen(out: Path) -> dict[str, bytes] | None:
    """The run as its readers see it; None for none."""
    if not out.exists() or not any(out.iterdir()):
        return None
    files = manifest.read(manifest.current(out, manifest.LIST).parent) or {}
    return {name: manifest.current(out, name).read_bytes() for name in files}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Of each kind the worlds in which a writer was killed, and a last one where it was not."""
    root = tmp_path_factory.mktemp("killed")
    for kind in KINDS:
        for point in range(POINTS):
            make(root / kind / str(point), kind)
    files = json.dumps({k: v.decode() for k, v in NEW.items()})
    said = subprocess.run(
        [sys.executable, "-m", "tests.support.folders", files, *(str(root / k) for k in KINDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},  # JAX does not like forks
        capture_output=True,
        check=True,
        text=True,
    )
    found = {}
    for kind, line in zip(KINDS, said.stdout.splitlines(), strict=True):
        codes = [int(code) for code in line.split()]
        assert codes == [-signal.SIGKILL] * (len(codes) - 1) + [0]
        found[kind] = [root / kind / str(point) for point in range(len(codes))]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_operation(kind: str, killed: dict[str, list[Path]]) -> None:
    assert len(killed[kind]) > 20
    runs = []
    for base in killed[kind]:
        assert foreign(base, kind)
        runs.append(seen(base / "out"))
        write(base / "out", AGAIN)  # the next run works, and tidies up
        assert foreign(base, kind)
        mine = {k: v for k, v in holds(base / "out").items() if v is not None}
        assert mine == {**AGAIN, **(INSIDE if kind == "shared" else {})}
        left = [p.name for p in base.iterdir() if p.name.startswith(".out.new-")]
        assert left == [DEAD]
    switch = runs.index(NEW)
    first = OLD if kind in ("run", "shared") else None
    assert runs == [first] * switch + [NEW] * (len(runs) - switch)
    assert switch > 0
