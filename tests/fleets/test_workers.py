"""Workers and clients that are killed, and clusters: the same models as undisturbed, none twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import occamid
from occamid.training.entries import VARIABLE as PROGRAMS
from tests.support.fleet_cases import CHEAP, COLUMNS, CONFIG, logs, same_models
from tests.support.places import CACHE

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow
COUNT = 3
PATIENCE = 400  # seconds, on a machine that does other things too
MAIN = ("-c", "from occamid.cli import main; main()")
CHILD = {PROGRAMS: str(CACHE), "OCCAMID_THREADS": "2"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs, a cheap job, and an undisturbed fleet in one process."""
    home = tmp_path_factory.mktemp("workers")
    (home / "job.toml").write_text(CONFIG, "utf-8")
    files = logs(home / "logs", COUNT, bad=True)
    occamid.fleet(files, home / "calm", workers=1, **COLUMNS, **CHEAP)
    return home


def command(home: Path, out: str, *more: str) -> list[str]:
    files = [str(path) for path in sorted((home / "logs").iterdir())]
    columns = ("--input", "valve", "--output", "level")
    told = ("--config", str(home / "job.toml"), "--out", str(home / out), "--json")
    return [sys.executable, *MAIN, "fleet", *files, *columns, *told, *more]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards."""
    process = subprocess.Popen(
        arguments, env={**os.environ, **CHILD}, stdout=-1, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def soon(what: Callable[[], object]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def workers_of(out: Path) -> list[int]:
    """The processes that are at work, as the locks of the assets' folders tell."""
    found = []
    for path in out.glob("assets/.*.lock"):
        try:
            found.append(int(path.read_text().split()[1]))
        except (OSError, IndexError):  # just made, or just gone
            continue
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits for its parent to notice has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def check_whole(home: Path, out: str) -> None:
    """All assets, each once, as if nothing had happened, and nothing left behind."""
    assert same_models(home / "calm", home / out)
    found = json.loads((home / out / "fleet.json").read_text("utf-8"))
    names = [row["asset"] for row in found["assets"]]
    assert names == [f"pump{k}" for k in range(COUNT)]
    assert [row["asset"] for row in found["failures"]] == ["bad"]
    assert sorted(p.name for p in (home / out / "assets").iterdir()) == names


def test_a_killed_worker_is_replaced(home: Path) -> None:
    out = home / "worker"
    with started(*command(home, "worker", "--workers", "2")) as client:
        soon(lambda: workers_of(out))
        victim = workers_of(out)[0]
        assert victim != client.pid
        os.kill(victim, signal.SIGKILL)
        said, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0, errors
    assert json.loads(said)["identified"] == COUNT
    check_whole(home, "worker")


def test_a_killed_client_is_resumed(home: Path) -> None:
    out = home / "client"
    with started(*command(home, "client", "--workers", "2")) as client:
        soon(lambda: any(out.glob("assets/*/asset.json")))
        workers = workers_of(out)
        client.kill()
        client.wait()
    soon(lambda: all(map(gone, workers)))  # they do not outlive it
    done = {path: path.stat().st_mtime_ns for path in out.glob("assets/*/asset.json")}
    assert 0 < len(done) < COUNT
    assert not (out / "fleet.csv").exists()
    with started(*command(home, "client", "--workers", "2", "--resume")) as client:
        _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0, errors
    check_whole(home, "client")
    assert {path: path.stat().st_mtime_ns for path in done} == done


@pytest.mark.study
def test_a_cluster_does_the_work(home: Path) -> None:
    place = home / "scheduler.json"
    dask = (sys.executable, "-m", "dask")
    local = ("--host", "127.0.0.1", "--scheduler-file", str(place))
    with (
        started(*dask, "scheduler", *local, "--port", "0", "--no-dashboard"),
        started(*dask, "worker", *local, "--nthreads", "1", "--no-dashboard"),
    ):
        soon(place.is_file)
        address = json.loads(place.read_text())["address"]
        with started(*command(home, "cluster", "--cluster", address)) as client:
            _, errors = client.communicate(timeout=PATIENCE)
    assert client.returncode == 0, errors
    check_whole(home, "cluster")


def test_nobody_answers(home: Path) -> None:
    with started(*command(home, "nobody", "--cluster", "tcp://127.0.0.1:1")) as client:
        said, errors = client.communicate(timeout=PATIENCE)
    assert (client.returncode, said) == (2, "")
    assert "error: no cluster answers at tcp://127.0.0.1:1" in errors
    assert "--cluster takes the address that its scheduler shows" in errors
    assert not (home / "nobody").exists()
