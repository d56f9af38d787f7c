"""Compiled programs are kept as whole entries, whatever happens to a command."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from occamid.cli import compiled
from occamid.training import xla
from occamid.training.cores import side_by_side
from occamid.training.xla import PROGRAMS

WRITER = """
import os, sys, time
from pathlib import Path
from occamid.cli.compiled import kept_programs
from occamid.training.xla import PROGRAMS
with kept_programs():
    own = Path(os.environ[PROGRAMS])
    for k in range(int(sys.argv[1])):
        with open(own / f"p{k}-cache", "wb") as file:  # in two parts, as a kill may find it
            file.write(b"a" * 1000)
            file.flush()
            print(k, flush=True)
            time.sleep(float(sys.argv[2]))
            file.write(b"b" * 1000)
"""
WHOLE = b"a" * 1000 + b"b" * 1000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(PROGRAMS, raising=False)
    deadline = time.monotonic() + 60
    while compiled.jobs_left() and time.monotonic() < deadline:  # of tests before
        time.sleep(0.01)
    return compiled.folder()


def writer(entries: int, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(entries), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    with process:
        return process.wait(60)


def entries(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.glob("*")}


def test_entries_of_one_command_serve_the_next(home: Path) -> None:
    for name in ("one-cache", "two-cache"):
        with compiled.kept_programs():
            own = Path(os.environ[PROGRAMS])
            assert {p.name for p in own.iterdir()} == set(entries(home))
            (own / name).write_bytes(name.encode())
        assert PROGRAMS not in os.environ
        assert not own.exists()
    assert entries(home) == {"one-cache": b"one-cache", "two-cache": b"two-cache"}


def test_what_could_not_be_used_is_replaced(home: Path) -> None:
    for content in (b"spoilt", b"whole"):
        with compiled.kept_programs():
            entry = Path(os.environ[PROGRAMS]) / "one-cache"
            new = entry.with_name("new")
            new.write_bytes(content)
            new.replace(entry)  # as programs are written
    assert entries(home) == {"one-cache": b"whole"}


def test_two_commands_at_once_leave_whole_entries(home: Path) -> None:
    running = [writer(20, 0.01) for _ in range(2)]
    assert [ended(process) for process in running] == [0, 0]
    assert set(entries(home)) == {f"p{k}-cache" for k in range(20)}
    assert set(entries(home).values()) == {WHOLE}


def test_ten_kills_leave_no_part_of_an_entry(home: Path) -> None:
    with compiled.kept_programs():
        (Path(os.environ[PROGRAMS]) / "old-cache").write_bytes(WHOLE)
    running = [writer(1000, 0.02) for _ in range(10)]
    for k, process in enumerate(running):
        assert process.stdout is not None
        while int(process.stdout.readline()) < k:
            pass
        process.send_signal(signal.SIGKILL)
        ended(process)
    assert entries(home) == {"old-cache": WHOLE}
    with compiled.kept_programs():  # and the next command is not disturbed
        assert [p.name for p in Path(os.environ[PROGRAMS]).iterdir()] == ["old-cache"]


def test_what_is_old_or_too_much_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(parents=True)
    for age, name in enumerate(("new-cache", "old-cache")):
        (home / name).write_bytes(WHOLE)
        os.utime(home / name, (time.time() - age, time.time() - age))
    left = home.parent / "run-left"
    left.mkdir()
    os.utime(left, (0, 0))
    monkeypatch.setattr(compiled, "LARGEST", 3000)
    with compiled.kept_programs():
        pass
    assert set(entries(home)) == {"new-cache"}
    assert not left.exists()


def test_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.delenv(PROGRAMS, raising=False)
    with compiled.kept_programs():
        assert PROGRAMS not in os.environ


def test_a_folder_of_the_users_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    with compiled.kept_programs():
        assert os.environ[PROGRAMS] == str(tmp_path)
    assert os.environ[PROGRAMS] == str(tmp_path)


COMPILER = """
from occamid.cli.compiled import kept_programs
with kept_programs():
    import numpy
    from occamid.training import programs
    programs.LEAST = 0.0
    traced = []
    def double(x):
        traced.append(x)
        return 2 * x
    assert programs.kept()(double)(numpy.ones(3)).tolist() == [2, 2, 2]
    print(len(traced))
"""


def test_a_command_finds_what_another_compiled(home: Path) -> None:
    traced, kept = [], []
    for _ in range(2):
        command = [sys.executable, "-c", COMPILER]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        traced.append(int(done.stdout))
        kept.append(set(entries(home)))
    assert traced == [1, 0]
    assert kept[0] == kept[1] != set()


def test_what_may_still_be_written_is_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C a training that nobody waits for may be at work on an entry."""
    monkeypatch.setenv("OCCAMID_THREADS", "2")
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.wait(10)
        raise KeyboardInterrupt

    def stay() -> None:
        begun.set()
        go_on.wait(10)

    with compiled.kept_programs():
        own = Path(os.environ[PROGRAMS])
        (own / "half-cache").write_bytes(b"a")
        with pytest.raises(KeyboardInterrupt):
            side_by_side([fail, stay])
    assert compiled.jobs_left()
    go_on.set()
    assert entries(home) == {}
    assert not own.exists()


@pytest.mark.usefixtures("home")
def test_what_xla_is_told_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.FLAGS, "--xla_a=1")
    monkeypatch.setattr(xla, "version", lambda _: "0.10.2")
    for _ in range(2):
        with compiled.kept_programs():
            assert os.environ[compiled.FLAGS] == f"--xla_a=1 --{xla.NEWER}=false"
