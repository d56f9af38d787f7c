"""The store of finished work: written once, whole or absent, in a folder or at an address."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from occamid.errors import FileError, SettingsError
from occamid.files.checkpoints import Checkpoints, digest_of
from occamid.files.store import ENDING, Store

KEY = digest_of("a unit")


@pytest.fixture(params=["folder", "file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        pytest.importorskip("fsspec")
        return Store.of(f"memory://{uuid.uuid4()}/deep")
    place = tmp_path / "deep" / "store"
    return Store.of(place if request.param == "folder" else f"file://{place}")


def raw(store: Store) -> bytes:
    found = store._read(KEY)
    assert found is not None
    return found


def test_an_entry_comes_back(store: Store, tmp_path: Path) -> None:
    store.check(tmp_path / "run")
    assert store.get(KEY) is None
    for content in (b"", b"\0\n" * 1000):
        key = digest_of(str(content))
        store.put(key, content)
        assert store.get(key) == content
    assert Store(store.address).get(digest_of(str(b""))) == b""
    assert store.get(KEY) is None


def test_an_entry_is_written_once(store: Store) -> None:
    store.put(KEY, b"first")
    before = raw(store)
    store.put(KEY, b"second")
    assert raw(store) == before
    assert store.get(KEY) == b"first"


@pytest.mark.parametrize("keep", [0, 7, 20, 47, 50])
def test_a_torn_entry_is_absent_and_written_again(store: Store, keep: int) -> None:
    store.put(KEY, b"whole work")
    store._write(KEY, raw(store)[:keep])
    assert store.get(KEY) is None
    store.put(KEY, b"whole work")
    assert store.get(KEY) == b"whole work"


def test_an_entry_of_which_one_bit_changed_is_absent(store: Store) -> None:
    store.put(KEY, b"whole work")
    whole = raw(store)
    for at in range(len(whole)):
        store._write(KEY, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert store.get(KEY) is None


def test_who_begins_anew_uses_nothing_and_changes_nothing(store: Store) -> None:
    store.put(KEY, b"old")
    anew = Store.of(store.address, reads=False)
    assert anew.get(KEY) is None
    anew.put(KEY, b"new")
    assert store.get(KEY) == b"old"


def test_a_folder_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.of("here")
    monkeypatch.chdir("/")
    store.put(KEY, b"work")
    assert [p.name for p in (tmp_path / "here").iterdir()] == [KEY + ENDING]
    assert Store.of(f"file://{tmp_path}/here") == store


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is no folder; name another `store`"):
        Store.of(tmp_path / "file").check(Path("run"))
    for inside in ("", "deep"):
        with pytest.raises(FileError, match=r"is in the folder .* itself; name another `store`"):
            Store.of(tmp_path / "run" / inside).check(tmp_path / "run")
    (tmp_path / ".run.partial").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / ".run.partial")
    for name in (".run.partial", "link", "link/deep"):  # what ends with the run is no place
        with pytest.raises(FileError, match=r"is in the folder .* itself; name another `store`"):
            Store.of(tmp_path / name).check(tmp_path / "run", tmp_path / ".run.partial")
    with pytest.raises(FileError, match="cannot make"):
        Store.of(tmp_path / "file" / "deeper").put(KEY, b"")
    assert (tmp_path / "file").read_text() == "mine"


def test_without_fsspec_a_folder_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsspec", "fsspec.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match=r'fsspec.*pip install "occamid\[cluster\]"'):
        Store.of("memory://anywhere").check(Path("run"))
    Store.of(f"file://{tmp_path}").put(KEY, b"work")
    assert Store.of(tmp_path).get(KEY) == b"work"


def test_a_protocol_without_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(SettingsError, match=r"s3://bucket/runs needs another package .*s3fs"):
        Store.of("s3://bucket/runs").check(Path("run"))
    with pytest.raises(SettingsError, match=r"cannot be opened \(Protocol not known: nowhere\)"):
        Store.of("nowhere://bucket").check(Path("run"))


def test_a_system_that_fails_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials.\nmore")

    store = Store.of(f"memory://{uuid.uuid4()}")
    monkeypatch.setattr(memory, "pipe_file", fail)
    with pytest.raises(FileError, match=r"^cannot write to memory://[^ ]+: no credentials\.$"):
        store.put(KEY, b"")
    monkeypatch.setattr(memory, "cat_file", fail)
    with pytest.raises(FileError, match=r"^cannot read from memory://[^ ]+: no credentials\.$"):
        store.check(Path("run"))


def test_checkpoints_clear_their_own_entries_and_nobody_elses(tmp_path: Path) -> None:
    named = Store.of(tmp_path / "named")
    own, other = Checkpoints(tmp_path / "own"), Checkpoints(tmp_path / "other", named)
    for checkpoints in (own, other):
        checkpoints.store.put(KEY, b"work")
    (tmp_path / "own" / f".{KEY}{ENDING}-abcdefgh").write_bytes(b"half")
    mine = tmp_path / "own" / f"notes{ENDING}"
    mine.write_text("mine")
    assert len(own.kept()) == 2
    own.clear()
    other.clear()
    assert list((tmp_path / "own").iterdir()) == [mine]
    assert named.get(KEY) == b"work"
    assert not (tmp_path / "other").exists()
