"""Finished cycles on disk: a run that was cut off goes on to the same numbers."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from occamid import Batch, Record, Settings, train
from occamid.data.windows import Shape
from occamid.errors import FileError
from occamid.files.atomic import replace_file
from occamid.files.checkpoints import Checkpoints, digest_of
from tests.support.small import SMALL, small_record
from tests.support.trained import batch_of

CYCLES = SMALL.cycles


@dataclass(frozen=True)
class Watched(Checkpoints):
    """Remembers which cycles had to be run."""

    ran: list[tuple[str, int]] = field(default_factory=list)

    def save(self, key: str, cycle: int, tree: object) -> None:
        self.ran.append((key, cycle))
        super().save(key, cycle, tree)


def resume(
    folder: Path,
    settings: Settings = SMALL,
    record: Record | None = None,
    shape: Shape | None = None,
) -> tuple[Batch, list[tuple[str, int]]]:
    """An identification with checkpoints, and the cycles that it had to run."""
    watched = Watched(folder)
    result = train(record or small_record(), settings, shape=shape, checkpoints=watched)
    return result, sorted(watched.ran)


def same(a: Batch, b: Batch) -> None:
    for name, value in a.params.items():
        np.testing.assert_array_equal(value, b.params[name])
    for name, widths in a.psi.items():
        for one, other in zip(widths, b.psi[name], strict=True):
            np.testing.assert_array_equal(one, other)
    for name, column in a.table.items():
        np.testing.assert_array_equal(column, b.table[name])


@pytest.fixture(scope="module")
def plain() -> Batch:
    return batch_of("mlp")


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_checkpoints_change_nothing_and_spare_everything(plain: Batch, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kept"
    first, ran = resume(folder)
    same(first, plain)
    keys = {key for key, _ in ran}
    assert ran == sorted((key, cycle) for key in keys for cycle in range(CYCLES))
    before = content(folder)
    assert set(before) == {f"{key}-{cycle}.safetensors" for key, cycle in ran}
    again, ran = resume(folder)
    assert ran == []
    same(again, plain)
    assert content(folder) == before


@pytest.mark.parametrize("left", [0, 1])
def test_a_run_goes_on_after_its_last_whole_cycle(plain: Batch, tmp_path: Path, left: int) -> None:
    """Moments of the optimiser, masks and priors are those of an uninterrupted run."""
    _, all_cycles = resume(tmp_path)
    before = content(tmp_path)
    removed = [(key, cycle) for key, cycle in all_cycles if cycle > left]
    for key, cycle in removed:
        (tmp_path / f"{key}-{cycle}.safetensors").unlink()
    found, ran = resume(tmp_path)
    assert ran == removed
    same(found, plain)
    assert content(tmp_path) == before


def test_what_is_kept_is_what_is_used(plain: Batch, tmp_path: Path) -> None:
    """Guards the test above: other numbers in the file give other numbers at the end."""
    resume(tmp_path)
    for path in tmp_path.glob("*-0.safetensors"):
        arrays = load_file(path)
        save_file({n: v * 0.5 if v.dtype == float else v for n, v in arrays.items()}, path)
    for path in [*tmp_path.glob("*-1.safetensors"), *tmp_path.glob("*-2.safetensors")]:
        path.unlink()
    found, _ = resume(tmp_path)
    for name, value in plain.params.items():
        np.testing.assert_array_equal(found.params[name][:, :, 0], 0.5 * value[:, :, 0])
    assert np.max(np.abs(found.params["layer0.W"] - plain.params["layer0.W"])[:, :, 2]) > 1e-3


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "other arrays", "other shape"])
def test_a_damaged_file_is_made_again(plain: Batch, tmp_path: Path, damage: str) -> None:
    _, all_cycles = resume(tmp_path)
    before = content(tmp_path)
    key, cycle = all_cycles[1]
    path = tmp_path / f"{key}-{cycle}.safetensors"
    whole = path.read_bytes()
    if damage == "other arrays":
        save_file({"0": np.zeros(3)}, path)
    elif damage == "other shape":
        save_file({n: np.concatenate([v, v]) for n, v in load_file(path).items()}, path)
    else:
        broken = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"not arrays" * 9}
        path.write_bytes(broken[damage])
    found, ran = resume(tmp_path)
    assert ran == [(key, cycle)]
    same(found, plain)
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"lam": (3e-3,)}, {"epochs": 31}, {"prune_psi": 2e-3}, {"activation": "relu"}],
)
def test_other_settings_reuse_nothing(
    plain: Batch, tmp_path: Path, change: dict[str, object]
) -> None:
    resume(tmp_path)
    settings = SMALL.replace(**change)
    found, ran = resume(tmp_path, settings)
    assert len(ran) == len({key for key, _ in ran}) * CYCLES
    same(found, train(small_record(), settings))


def test_other_data_reuse_nothing(tmp_path: Path) -> None:
    resume(tmp_path)
    other = small_record(seed=1)
    found, ran = resume(tmp_path, record=other)
    assert ran
    same(found, train(other, SMALL))
    short = small_record()[:100]
    found, ran = resume(tmp_path, record=short)
    assert ran
    same(found, train(short, SMALL))


def test_a_digest_sees_values_shapes_and_types() -> None:
    a = np.arange(6.0)
    digests = [
        digest_of("s", a),
        digest_of("t", a),
        digest_of("s", a + 1e-12),
        digest_of("s", a.reshape(2, 3)),
        digest_of("s", a.astype(np.float32)),
        digest_of("s", {"x": a, "y": a}),
    ]
    assert len(set(digests)) == len(digests)
    assert digest_of("s", a.copy()) == digests[0]


def test_clearing_removes_the_folder(tmp_path: Path) -> None:
    folder, key = tmp_path / "kept", digest_of("key")
    checkpoints = Checkpoints(folder)
    checkpoints.clear()  # nothing is there yet
    checkpoints.save(key, 0, (np.arange(3.0), {"b": np.array(True)}))
    (folder / f".{key}-1.safetensors-ab_12xyz").write_bytes(b"half")
    checkpoints.clear()
    assert not folder.exists()
    checkpoints.save(key, 1, (np.arange(3.0),))
    (folder / "mine.txt").write_text("keep me", encoding="utf-8")
    checkpoints.clear()
    assert content(folder) == {"mine.txt": b"keep me"}


@pytest.mark.parametrize(
    "name",
    ["weights.safetensors", "layer-0.safetensors", ".layer-0.safetensors-old", f"{'a' * 24}-0.txt"],
)
def test_clearing_leaves_what_is_not_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"mine")
    Checkpoints(tmp_path).clear()
    assert content(tmp_path) == {name: b"mine"}


def test_clearing_leaves_links_and_empty_folders(tmp_path: Path) -> None:
    name = f"{'a' * 24}-0.safetensors"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "empty").mkdir()
    for folder in ("link", "empty"):
        Checkpoints(tmp_path / folder).clear()
    assert content(tmp_path / "mine") == {name: b"mine"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "link", "mine"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(FileError) as caught:
        Checkpoints(tmp_path / "file").save("key", 0, (np.arange(3.0),))
    assert str(caught.value) == f"cannot make {tmp_path / 'file'}: File exists."


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree = {"b": (np.arange(3), np.array([2.5])), "a": np.array([[True, False]])}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("key", 4, tree)
    found = checkpoints.load("key", 4, tree)
    assert found is not None
    assert found["a"].tolist() == [[True, False]]
    np.testing.assert_array_equal(found["b"][0], [0, 1, 2])
    assert found["b"][1].tolist() == [2.5]
    assert checkpoints.load("key", 5, tree) is None
    assert checkpoints.load("other", 4, tree) is None
    like = {**tree, "a": np.zeros((1, 2), np.int32)}
    assert checkpoints.load("key", 4, like) is None


def test_a_scalar_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("key", 0, (np.array(2.5),))
    found = checkpoints.load("key", 0, (np.array(0.0),))
    assert found is not None
    assert (found[0].shape, float(found[0])) == ((), 2.5)


# --- files that are whole or not there ----------------------------------------------------------


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_bytes(b"old")
    replace_file(path, b"new")
    assert content(tmp_path) == {"table.md": b"new"}
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.md"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError) as caught:
        replace_file(path, b"new")
    assert str(caught.value) == f"cannot write {path}: No space left on device."
    assert content(tmp_path) == {"table.md": b"old"}


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        replace_file(tmp_path / "none" / "table.md", b"new")
    assert str(caught.value) == (
        f"cannot write {tmp_path / 'none' / 'table.md'}: No such file or directory."
    )
