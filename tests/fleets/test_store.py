"""A fleet whose finished assets are in a store, too: fetched where the folder lacks them."""

from __future__ import annotations

import io
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import occamid
from occamid.errors import FileError
from occamid.files.parcel import pack, unpack
from occamid.files.store import Store
from occamid.fleets import fleet as fleets
from occamid.fleets import units
from occamid.identification.job import Job
from tests.support.commands import listing
from tests.support.fleet_cases import CHEAP, COLUMNS, logs, same_models

TOLD: dict[str, Any] = {**COLUMNS, **CHEAP, "workers": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two assets and a file that cannot be read, with a store beside them."""
    home = tmp_path_factory.mktemp("stored")
    files = logs(home / "logs", 2, bad=True)
    occamid.fleet(files, home / "out", store=f"file://{home}/store", **TOLD)
    return home


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Assets that were really identified, not found."""
    seen: list[str] = []
    real = units._identified

    def identified(unit: units.Unit, place: Any) -> units.Row:
        seen.append(unit.asset)
        return real(unit, place)

    monkeypatch.setattr(units, "_identified", identified)
    return seen


def again(home: Path, **told: Any) -> occamid.Fleet:
    return occamid.fleet(logs(home / "logs", 2, bad=True), home / "out", **told, **TOLD)


@pytest.mark.parametrize("lost", ["out/assets/pump1", "out"])
def test_what_the_folder_lacks_is_fetched(home: Path, counted: list[str], lost: str) -> None:
    before, kept = listing(home / "out/assets"), listing(home / "store")
    assert len(kept) == 2
    shutil.rmtree(home / lost)
    found = again(home, resume=True, store=home / "store")
    assert counted == ["bad"]  # failures are tried again, and not kept
    assert [row["asset"] for row in found.rows] == ["pump0", "pump1"]
    assert listing(home / "out/assets") == before
    assert listing(home / "store") == kept


def test_a_torn_entry_and_a_changed_log_are_identified_again(
    home: Path, counted: list[str]
) -> None:
    (first, *_) = sorted((home / "store").iterdir())
    first.write_bytes(first.read_bytes()[:-9])
    shutil.rmtree(home / "out/assets")
    again(home, resume=True, store=home / "store")
    assert len(counted) == 2
    log = home / "logs/pump0.csv"
    log.write_text(log.read_text("utf-8") + "99,0,0\n", "utf-8")
    del counted[:]
    try:
        files = [log, home / "logs/pump1.csv"]
        occamid.fleet(files, home / "out", resume=True, store=home / "store", **TOLD)
    finally:
        logs(home / "logs", 2)
    assert counted == ["pump0"]


def test_workers_that_do_not_see_the_folder_use_the_store(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is the same, and the client brings it home."""
    pytest.importorskip("fsspec")
    seen: list[Path] = []
    real = units.do

    def do(unit: units.Unit) -> units.Row:
        hidden = unit.folder.parents[1].rename(tmp_path / "hidden")
        try:
            row = real(unit)
            seen.append(unit.folder.parents[1])
            assert not unit.folder.parents[1].exists()
        finally:
            hidden.rename(unit.folder.parents[1])
        return row

    monkeypatch.setattr(fleets, "do", do)
    files = sorted((home / "logs").glob("pump*.csv"))
    found = occamid.fleet(files, tmp_path / "out", store="memory://fleet", **TOLD)
    assert len(seen) == len(found.rows) == 2
    assert same_models(home / "out", tmp_path / "out")

    monkeypatch.setattr(Store, "put", lambda *_: None)
    lost = occamid.fleet(files[:1], tmp_path / "out", force=True, store=tmp_path / "no", **TOLD)
    assert "a worker has done it, but nothing of it is in" in lost.failures[0]["message"]


def test_without_a_store_a_worker_says_what_it_does_not_see(home: Path, tmp_path: Path) -> None:
    job = Job(files=(str(home / "logs/pump0.csv"),))
    unit = units.Unit("pump0", job, tmp_path / "nowhere/assets/pump0", 1)
    assert "or name a `store` that all can reach" in units.do(unit)["message"]
    assert replace(unit, store=Store.of(tmp_path)).key == unit.key


def test_a_parcel_leads_nowhere_else(home: Path) -> None:
    folder = home / "out/assets/pump0"
    content = pack(folder)
    found = unpack(content)
    assert found is not None
    assert found == {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "run.json"}
    assert pack(folder) == content
    assert unpack(content[:-30]) is None
    assert unpack(b"") is None
    for k in range(60, 600, 13):  # a byte of its first file
        assert unpack(content[:k] + bytes([content[k] ^ 0xFF]) + content[k + 1 :]) is None
    for name in ("../out", "/etc/passwd", "run.json", "a/b", "..", "."):
        bad = io.BytesIO()
        with zipfile.ZipFile(bad, "w") as parcel:
            parcel.writestr(name, b"")
        assert unpack(bad.getvalue()) is None


def test_an_asset_that_the_store_refuses_is_there_all_the_same(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FileError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", full)
        files = logs(tmp_path / "logs", 1)
        found = occamid.fleet(files, tmp_path / "out", store=tmp_path / "store", **TOLD)
    assert [row["asset"] for row in found.rows] == ["pump0"]
    assert not (tmp_path / "store").exists()
    occamid.fleet(files, tmp_path / "out", store=tmp_path / "store", resume=True, **TOLD)
    assert len(listing(tmp_path / "store")) == 1  # it was done before; now it is kept
