"""Run folders: new ones, replaced ones, and those that may not be replaced."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from occamid.errors import FileError
from occamid.files import folder as folders
from occamid.files import lock as locks
from occamid.files import manifest
from occamid.files.folder import ElsewhereError, claim, new_folder, rewrite
from occamid.files.lock import SIGNED
from occamid.files.scratch import MARK
from tests.support.commands import listing
from tests.support.folders import holds, write

OLD, NEW = {"old.txt": b"old", "both.txt": b"1"}, {"new.txt": b"new", "both.txt": b"2"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of a finished run."""
    write(tmp_path / "out", OLD)
    return tmp_path / "out"


# --- new and replaced ---------------------------------------------------------------------------


def test_a_run_lists_its_files(out: Path) -> None:
    assert holds(out) == OLD
    assert list(manifest.read(out) or {}) == sorted(OLD)
    assert manifest.changed(out, manifest.read(out) or {}) == []
    assert [p.name for p in out.parent.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == 0o755


def test_a_new_run_takes_the_place_of_the_old(out: Path) -> None:
    (out / "report").mkdir()
    (out / "report" / "mine.txt").write_bytes(b"mine")
    with claim(out, overwrite=True) as place, new_folder(place) as scratch:
        for name, content in NEW.items():
            (scratch / name).write_bytes(content)
        assert (out / "both.txt").read_bytes() == b"1"  # until the end
    assert holds(out) == {**NEW, "report": None, "report/mine.txt": b"mine"}
    write(out, OLD)
    assert holds(out) == {**OLD, "report": None, "report/mine.txt": b"mine"}
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_what_was_removed_from_a_run_is_not_missed(out: Path) -> None:
    (out / "both.txt").unlink()
    write(out, NEW)
    assert holds(out) == NEW


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "runs").mkdir(parents=True)
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "disk" / "runs")
    for files in (OLD, NEW):
        write(link, files)
        assert link.is_symlink()
        assert holds(link) == files
        assert [p.name for p in (tmp_path / "disk").iterdir()] == ["runs"]


@pytest.mark.parametrize("failure", [ZeroDivisionError, KeyboardInterrupt])
def test_a_failure_while_writing_leaves_everything_as_before(
    failure: type[BaseException], out: Path
) -> None:
    before = listing(out.parent)

    def fail(folder: Path) -> None:
        with claim(folder, overwrite=True) as place, new_folder(place) as scratch:
            (scratch / "half.json").write_text("{", encoding="utf-8")
            raise failure

    for folder in (out, out.parent / "deep" / "down"):
        with pytest.raises(failure):
            fail(folder)
        assert listing(out.parent) == before


def test_a_disk_that_fails_before_the_new_run_counts(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(out.parent)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(FileError) as caught:
        write(out, NEW)
    assert str(caught.value) == f"cannot write the results to {out}: Input/output error."
    assert listing(out.parent) == before


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_disk_that_fails_after_it(moved: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers see the new run; the next writer moves the rest."""
    replace, done = os.replace, list[Path]()

    def fails(source: Path, target: Path) -> None:
        if len(done) == moved:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(FileError, match="Input/output error"):
            write(out, NEW)
    assert {n: manifest.current(out, n).read_bytes() for n in NEW} == NEW
    with pytest.raises(FileError, match="already holds files"), claim(out):
        pass
    assert holds(out) == NEW
    write(out, OLD)
    assert holds(out) == OLD


# --- what may not be replaced -------------------------------------------------------------------


def refused(folder: Path, inputs: tuple[Path, ...] = (), files: Mapping[str, bytes] = NEW) -> str:
    """The reason; everything around the folder is as before."""
    before = listing(folder.parent)
    with pytest.raises(FileError) as caught:
        write(folder, files, inputs)
    assert listing(folder.parent) == before
    return str(caught.value)


def link_list(out: Path) -> None:
    (out / manifest.LIST).rename(out.parent / "elsewhere.json")
    (out / manifest.LIST).symlink_to(out.parent / "elsewhere.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda out: (out / manifest.LIST).unlink(),
        lambda out: (out / manifest.LIST).write_text("{}"),
        lambda out: (out / manifest.LIST).write_text('{"files": {"old.txt": ""}}'),
        lambda out: (out / manifest.LIST).write_bytes(b"\xff"),
        lambda out: (out / manifest.LIST).write_text("[" * 100_000),
        lambda out: (out / manifest.LIST).write_text("[1]"),
        lambda out: (out / manifest.LIST).write_text(manifest.text({"../x": "0" * 64})),
        lambda out: (out / manifest.LIST).write_text(manifest.text({"": "0" * 64})),
        lambda out: (out / manifest.LIST).write_text(manifest.text({"..": "0" * 64})),
        lambda out: (out / manifest.LIST).write_text((out / manifest.LIST).read_text() + "\n"),
        link_list,
    ],
)
def test_a_folder_without_the_list_of_a_run(change: Callable[[Path], object], out: Path) -> None:
    change(out)
    assert refused(out) == f"{out} holds files and is no run of occamid; choose another `out`."


@pytest.mark.parametrize("kind", ["edited", "link", "folder"])
def test_a_file_of_a_run_that_was_changed(kind: str, out: Path) -> None:
    path = out / "old.txt"
    path.unlink()
    if kind == "edited":
        path.write_bytes(b"with my notes")
    elif kind == "folder":
        path.mkdir()
    else:
        (out.parent / "moved.txt").write_bytes(b"old")  # the content is the same
        path.symlink_to(out.parent / "moved.txt")
    assert refused(out) == (
        f"{path} was changed since its run was written, and would be replaced; move it away, or "
        "choose another `out`."
    )


@pytest.mark.parametrize("spelling", ["plain", "dots", "link", "folder link", "hard link", "list"])
def test_an_input_that_is_a_file_of_the_run(spelling: str, out: Path) -> None:
    beside = out.parent
    (beside / "link.txt").symlink_to(out / "old.txt")
    (beside / "same").symlink_to(out)
    (beside / "hard.txt").hardlink_to(out / "old.txt")
    path = {
        "plain": out / "old.txt",
        "dots": out / ".." / "out" / "old.txt",
        "link": beside / "link.txt",
        "folder link": beside / "same" / "old.txt",
        "hard link": beside / "hard.txt",
        "list": out / manifest.LIST,
    }[spelling]
    assert refused(out, (beside / "none.txt", path)) == (
        f"{path} is read by this command and a file of the run in {out}, which would be replaced; "
        "choose another `out`."
    )


def test_an_input_beside_the_files_of_the_run_stays(out: Path) -> None:
    (out / "log.csv").write_bytes(b"t,u,y")
    write(out, NEW, (out / "log.csv",))
    assert holds(out) == {**NEW, "log.csv": b"t,u,y"}


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_waiting_folder_of_somebody_else(kind: str, out: Path) -> None:
    path = out / manifest.NEXT
    if kind == "file":
        path.write_bytes(b"mine")
    elif kind == "link":
        (out.parent / "empty").mkdir()
        path.symlink_to(out.parent / "empty")
    else:
        path.mkdir()
        (path / "mine.txt").write_bytes(b"mine")
    assert refused(out) == f"{path} is no folder of occamid; move it away."


def test_a_run_of_folders_is_refused(out: Path) -> None:
    before = listing(out.parent)
    with (
        pytest.raises(ValueError, match="no plain file"),
        claim(out, overwrite=True) as place,
        new_folder(place) as scratch,
    ):
        (scratch / "inner").mkdir()
    assert listing(out.parent) == before


# --- two at a time ------------------------------------------------------------------------------


def test_the_second_writer_is_told_at_once(out: Path) -> None:
    (out.parent / "link").symlink_to(out)
    with claim(out, overwrite=True):
        for spelling in (out, out.parent / "link", out / ".." / "out"):
            with pytest.raises(FileError) as caught, claim(spelling, overwrite=True):
                pass
            assert str(caught.value) == (
                f"another run (process {os.getpid()}) is writing to {spelling}; wait for it, or "
                "choose another `out`."
            )
        write(out.parent / "other", NEW)
    write(out, NEW)
    assert sorted(p.name for p in out.parent.iterdir()) == ["link", "other", "out"]


def test_the_lock_of_a_killed_process_is_taken_over(out: Path) -> None:
    """Its file stays, but the system has dropped the lock."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from occamid.files.folder import claim\n"
        "with claim(Path(sys.argv[1]), overwrite=True): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(out)], check=False)
    assert killed.returncode < 0
    assert (out.parent / ".out.lock").read_bytes().startswith(SIGNED)
    write(out, NEW)
    assert [p.name for p in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("content", [b"", b"mine", b"occam"])
def test_a_lock_file_of_somebody_else_stays(content: bytes, out: Path) -> None:
    path = out.parent / ".out.lock"
    path.write_bytes(content)
    write(out, NEW)
    assert path.read_bytes() == content


def test_a_link_or_folder_in_the_place_of_the_lock(out: Path) -> None:
    path = out.parent / ".out.lock"
    (out.parent / "mine.txt").write_bytes(b"occamid 1\n")
    path.symlink_to(out.parent / "mine.txt")
    assert refused(out).startswith(f"cannot lock {out} with {path}: ")
    path.unlink()
    path.mkdir()
    assert refused(out).startswith(f"cannot lock {out} with {path}: ")


@pytest.mark.parametrize("change", ["another run", "a file", "same name", "the list"])
@pytest.mark.parametrize("start", ["run", "nothing", "empty"])
def test_what_changed_meanwhile_is_left_and_the_results_are_beside_it(
    start: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no lock can be had."""
    monkeypatch.setattr(locks, "fcntl", None)
    out = tmp_path / "out"
    if start == "run":
        write(out, OLD)
    elif start == "empty":
        out.mkdir()
    changed = {}

    def disturb() -> None:
        if change == "another run":
            write(out, {"third.txt": b"3"})
        else:
            names = {"a file": "mine.txt", "same name": "new.txt", "the list": manifest.LIST}
            out.mkdir(exist_ok=True)
            (out / names[change]).write_bytes(b"mine")
        changed.update(listing(out))

    def both() -> None:
        with claim(out, overwrite=True) as place, new_folder(place) as scratch:
            for name, content in NEW.items():
                (scratch / name).write_bytes(content)
            disturb()

    (tmp_path / "out-1").write_bytes(b"mine")
    if (start, change) == ("run", "a file"):  # it may stay where it is
        both()
        assert holds(out) == {**NEW, "mine.txt": b"mine"}
        return
    with pytest.raises(ElsewhereError) as caught:
        both()
    assert str(caught.value) == (
        f"{out} was changed by somebody else meanwhile and is left as it is; the new results are "
        f"in {tmp_path / 'out-2'}."
    )
    assert listing(out) == changed
    assert holds(tmp_path / "out-2") == NEW
    write(tmp_path / "out-2", OLD)  # it is a run like any other


# --- scratch folders ----------------------------------------------------------------------------


def test_scratch_folders_go_only_if_they_are_ours(out: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    ours, theirs = (out.parent / f".out.new-{gone.pid}-{k}" for k in ("ours", "theirs"))
    theirs.mkdir()
    (theirs / "mine.txt").write_bytes(b"mine")
    ours.mkdir()
    (ours / MARK).touch()
    (ours / "half.json").write_bytes(b"{")
    write(out.parent / f".out.new-{gone.pid}-whole", OLD)
    (out.parent / f".out.new-{gone.pid}-link").symlink_to(theirs)
    (out.parent / f".out.new-{gone.pid}-file").write_bytes(b"mine")
    (out.parent / f".out.new-{os.getpid()}-runs").mkdir()
    write(out, NEW)
    left = {p.name for p in out.parent.iterdir()}
    dead = {f".out.new-{gone.pid}-{k}" for k in ("theirs", "link", "file")}
    assert left == {"out", f".out.new-{os.getpid()}-runs", *dead}
    assert listing(theirs) == {"mine.txt": b"mine"}


# --- one file of a run --------------------------------------------------------------------------


def test_a_file_of_a_run_is_written_again(out: Path) -> None:
    rewrite(out, "old.txt", b"again", overwrite=False)
    rewrite(out, "more.txt", b"more", overwrite=False)
    assert holds(out) == {**OLD, "old.txt": b"again", "more.txt": b"more"}
    write(out, NEW)  # they are all of the run
    assert holds(out) == NEW


def test_a_file_that_is_not_of_the_run_is_not(out: Path) -> None:
    for name in ("old.txt", "mine.txt"):
        (out / name).write_bytes(b"mine")
        with pytest.raises(FileError) as caught:
            rewrite(out, name, b"again", overwrite=False)
        said = f"{out / name} is not what its run wrote; move it, or use `force`."
        assert str(caught.value) == said
        assert (out / name).read_bytes() == b"mine"
        rewrite(out, name, b"again", overwrite=True)
        assert (out / name).read_bytes() == b"again"


def test_the_folder_is_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = r"^\. is the current folder or holds it; choose another `out`\.$"
    with pytest.raises(FileError, match=said), folders.claim(Path(".")):
        pass
    assert listing(tmp_path) == {}
