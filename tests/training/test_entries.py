"""Compiled programs are kept as whole entries, whatever happens to a process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from occamid.training import entries

WRITER = """
import os, sys, time
from pathlib import Path
from occamid.training import entries
move = os.replace
def slow(part, path):  # a kill may find the part whole and not moved, or half of it
    print(path, flush=True)
    time.sleep(float(sys.argv[2]))
    move(part, path)
os.replace = slow
for k in range(int(sys.argv[1])):
    entries.write(entries.folder() / f"p{k}-cache", b"a" * 1000)
"""
WHOLE = b"a" * 1000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(entries.VARIABLE, raising=False)
    entries.tidy.cache_clear()
    found = entries.folder()
    assert found is not None
    return found


def writer(number: int, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(number), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    with process:
        return process.wait(60)


def kept(home: Path) -> dict[str, bytes | None]:
    return {path.name: entries.read(path) for path in home.glob(f"*{entries.ENTRY}")}


def test_an_entry_is_read_as_it_was_written_and_replaced(home: Path) -> None:
    assert entries.read(home / "one-cache") is None
    for content in (b"", b"one", WHOLE):
        entries.write(home / "one-cache", content)
        assert kept(home) == {"one-cache": content}
    assert len(list(home.iterdir())) == 1


def test_two_processes_at_once_leave_whole_entries(home: Path) -> None:
    running = [writer(20, 0.01) for _ in range(2)]
    assert [ended(process) for process in running] == [0, 0]
    assert kept(home) == {f"p{k}-cache": WHOLE for k in range(20)}
    assert len(list(home.iterdir())) == 20


def test_ten_kills_leave_no_part_of_an_entry(home: Path) -> None:
    running = [writer(1000, 0.02) for _ in range(10)]
    for k, process in enumerate(running):
        assert process.stdout is not None
        for _ in range(k + 1):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        ended(process)
    assert set(kept(home).values()) <= {WHOLE}
    assert "p0-cache" in kept(home)
    for part in home.glob(f"{entries.PART}*"):
        os.utime(part, (0, 0))
    entries.write(home / "new-cache", WHOLE)
    assert not list(home.glob(f"{entries.PART}*"))


def test_what_is_too_much_goes_the_oldest_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(("new-cache", "old-cache", "oldest-cache")):
        entries.write(home / name, WHOLE)
        os.utime(home / name, (time.time() - age, time.time() - age))
    entries.tidy.cache_clear()
    monkeypatch.setattr(entries, "LARGEST", 2500)
    entries.write(home / "last-cache", b"")
    assert set(kept(home)) == {"last-cache", "new-cache", "old-cache"}


def test_a_folder_that_the_user_names_is_never_tidied(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(entries.VARIABLE, str(tmp_path))
    monkeypatch.setattr(entries, "LARGEST", 0)
    (tmp_path / "mine-cache").write_bytes(WHOLE)
    (tmp_path / "part-mine").write_bytes(WHOLE)
    os.utime(tmp_path / "part-mine", (0, 0))
    assert entries.folder() == tmp_path
    entries.write(tmp_path / "one-cache", WHOLE)
    assert {p.name for p in tmp_path.iterdir()} == {"mine-cache", "part-mine", "one-cache"}


def test_nothing_is_kept_where_the_user_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(entries.VARIABLE, "")
    assert entries.folder() is None


def test_a_folder_that_cannot_be_made_is_no_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    place = entries.folder()
    assert place is not None
    entries.write(place / "one-cache", WHOLE)
    assert entries.read(place / "one-cache") is None


COMPILER = """
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


def test_a_process_finds_what_another_compiled(home: Path) -> None:
    traced, names = [], []
    for _ in range(2):
        command = [sys.executable, "-c", COMPILER]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        traced.append(int(done.stdout))
        names.append(set(kept(home)))
    assert traced == [1, 0]
    assert names[0] == names[1] != set()
