"""A fleet in one process: the function, the command, resuming, and whose files are whose."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamid
from occamid.errors import FileError, SettingsError
from occamid.fleets import units
from occamid.identification.job import Job
from occamid.reading.assets import Asset
from occamid.reading.files import examine, read
from tests.support.commands import Runner, listing
from tests.support.fleet_cases import (
    CHEAP,
    COLUMNS,
    CONFIG,
    HOSTILE,
    logs,
    same_models,
    together,
)

TOLD: dict[str, Any] = {**COLUMNS, **CHEAP, "workers": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def done(home: Path) -> occamid.Fleet:
    """Three assets and a file that cannot be read."""
    return occamid.fleet(logs(home / "logs", 3, bad=True), home / "out", **TOLD)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path) -> Runner:
    monkeypatch.chdir(home)
    (home / "job.toml").write_text(CONFIG, "utf-8")
    return Runner(monkeypatch, capsys, home)


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


def test_every_asset_has_a_row_and_a_model(done: occamid.Fleet, home: Path) -> None:
    assert [row["asset"] for row in done.rows] == ["pump0", "pump1", "pump2"]
    assert all(0 <= row["outputs"][0]["coverage"] <= 1 for row in done.rows)
    (record,) = read(home / "logs/pump1.csv", inputs=["valve"], outputs=["level"])
    assert done.load("pump1").simulate(record).mean.shape == record.y.shape
    names = {p.name for p in (home / "out/assets/pump1").iterdir()}
    assert names == {
        *("asset.json", "model.safetensors", "report.json", "result.json", "run.json"),
        "settings.toml",
    }
    assert sorted(p.name for p in (home / "out").iterdir()) == [
        *("assets", "fleet.csv", "fleet.html", "fleet.json", "fleet.toml", "run.json")
    ]
    assert sorted(p.name for p in (home / "out/assets").iterdir()) == ["pump0", "pump1", "pump2"]


def test_a_bad_file_is_listed_with_its_place(done: occamid.Fleet, home: Path) -> None:
    (bad,) = done.failures
    assert bad["asset"] == "bad"
    assert bad["message"].startswith(f"{home / 'logs/bad.csv'}: line 8, column level: 'oops'")
    table = list(csv.DictReader((home / "out/fleet.csv").read_text("utf-8").splitlines()))
    assert [line["state"] for line in table] == ["identified"] * 3 + ["failed"]
    assert "oops" in (home / "out/fleet.html").read_text("utf-8")


def test_an_asset_is_identified_as_if_it_were_alone(done: occamid.Fleet, home: Path) -> None:
    """The settings in its folder repeat it, and its neighbours change nothing."""
    toml = home / "out/assets/pump2/settings.toml"
    alone = occamid.fleet([home / "logs/pump2.csv"], home / "alone", **TOLD)
    assert alone.rows[0]["outputs"] == done.rows[2]["outputs"]
    assert toml.read_text("utf-8") == (home / "alone/assets/pump2/settings.toml").read_text("utf-8")
    assert len({row["outputs"][0]["rmse"] for row in done.rows}) == 3


def test_resuming_finds_what_is_done(
    done: occamid.Fleet, home: Path, counted: list[str], run: Runner
) -> None:
    files = sorted((home / "logs").iterdir())
    before = listing(home / "out/assets")
    again = occamid.fleet(files, home / "out", resume=True, **TOLD)
    assert counted == ["bad"]  # tried again
    assert again.rows == tuple(sorted(done.rows, key=lambda row: row["asset"]))
    assert listing(home / "out/assets") == before


def test_a_file_that_changed_is_read_again(tmp_path: Path, counted: list[str]) -> None:
    files = logs(tmp_path / "logs", 2)
    occamid.fleet(files, tmp_path / "out", **TOLD)
    files[1].write_text(files[0].read_text("utf-8"), "utf-8")
    (tmp_path / "out/assets/pump0/notes.txt").write_text("mine")
    del counted[:]
    occamid.fleet(files, tmp_path / "out", resume=True, **TOLD)
    assert counted == ["pump1"]
    del counted[:]
    occamid.fleet(files[:1], tmp_path / "out", force=True, **TOLD)
    assert counted == ["pump0"]
    assert (tmp_path / "out/assets/pump0/notes.txt").read_text() == "mine"


def test_what_is_there_is_not_replaced(done: occamid.Fleet, home: Path) -> None:
    files = [home / "logs/pump0.csv"]
    before = listing(home / "out")
    with pytest.raises(FileError, match="already holds a fleet; go on with it with `resume`"):
        occamid.fleet(files, home / "out", **TOLD)
    with pytest.raises(SettingsError, match="was begun with another epochs, seed; `resume`"):
        occamid.fleet(files, home / "out", resume=True, **TOLD | {"seed": 1, "epochs": 6})
    with pytest.raises(FileError, match="holds a run and no fleet"):
        occamid.fleet(files, home / "out/assets/pump0", force=True, **TOLD)
    with pytest.raises(FileError, match="is no run of occamid"):
        occamid.fleet(files, home / "logs", force=True, **TOLD)
    assert listing(home / "out") == before


def test_a_model_that_was_changed_by_hand_stays(tmp_path: Path) -> None:
    files = logs(tmp_path / "logs", 2)
    occamid.fleet(files, tmp_path / "out", **TOLD)
    mine = tmp_path / "out/assets/pump1/settings.toml"
    mine.write_text("mine")
    again = occamid.fleet(files, tmp_path / "out", resume=True, **TOLD)
    assert mine.read_text() == "mine"
    assert [row["asset"] for row in again.failures] == ["pump1"]
    assert "was changed since its run was written" in again.failures[0]["message"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"cluster": "tcp://localhost:1", "workers": 2}, "`cluster` or `workers`, not both"),
        ({"workers": 0}, "a number of processes from 1"),
        ({"resume": True, "force": True}, "`resume` to go on or `force`"),
        ({"example": "hairdryer-twin"}, "a fleet has no setting example"),
        ({"wrong": 1}, "setting wrong is unknown"),
    ],
)
def test_impossible_settings(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=said):
        occamid.fleet(tmp_path / "log.csv", tmp_path / "out", **TOLD | told)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SettingsError, match=r'install "occamid\[cluster\]"; or use `workers=1`'):
        occamid.fleet(tmp_path / "log.csv", tmp_path / "out", workers=2)


# --- one file with many assets -------------------------------------------------------------------


def test_rows_of_an_asset_are_read_wherever_they_stand(tmp_path: Path) -> None:
    names = ("7", "pump b")
    path = together(tmp_path / "all.csv", names)
    for k, alone in enumerate(logs(tmp_path / "logs", 2)):
        (mine,) = examine(path, asset=Asset("asset", names[k]), **COLUMNS).records
        (other,) = examine(alone, **COLUMNS).records
        np.testing.assert_array_equal(mine.u, other.u)
        np.testing.assert_array_equal(mine.y, other.y)
        assert mine.sampling_time == other.sampling_time
        assert mine.name == f"all {names[k]}"


def test_a_row_without_an_asset_is_refused(tmp_path: Path) -> None:
    path = together(tmp_path / "all.csv", ("a", "b"))
    path.write_text(path.read_text("utf-8").replace('"b",0.3', ",0.3"), "utf-8")
    with pytest.raises(occamid.DataError, match="column asset has no value at line 9; each row"):
        occamid.fleet(path, tmp_path / "out", by="asset", **TOLD)
    with pytest.raises(occamid.DataError, match="`by`: no column is called 'pump'"):
        occamid.fleet(path, tmp_path / "out", by="pump", **TOLD)


def test_a_place_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = together(tmp_path / "all.csv", ("a", "b"))
    lines = path.read_text("utf-8").splitlines()
    lines[30] = '"a",1.4,1,'
    path.write_text("\n".join(lines), "utf-8")
    job = Job(files=(str(path),), by="asset", asset="a", **COLUMNS)
    with pytest.raises(occamid.DataError, match="level has no value at line 31"):
        job.read()


def test_the_command_on_hostile_names(run: Runner, home: Path) -> None:
    together(home / "all.csv", HOSTILE[:3])
    before = listing(home)
    outcome = run(
        *("fleet", "all.csv", "--by", "asset", "--input", "valve", "--output", "level"),
        *("--config", "job.toml", "--workers", 1, "--out", "names", "--json"),
    )
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    assert (told["identified"], told["failed"]) == (3, {})
    new = listing(home).keys() - before.keys()
    assert all(path == "names" or path.startswith("names/") for path in new)
    assert len(list((home / "names/assets").iterdir())) == 3
    text = (home / "names/fleet.csv").read_text("utf-8")
    cells = [cell for line in csv.reader(text.splitlines()) for cell in line]
    assert not any(cell.startswith(("=", "+", "@")) for cell in cells)  # numbers may be negative
    assert "\u202e" not in text
    found = json.loads((home / "names/fleet.json").read_text("utf-8"))
    assert [row["asset"] for row in found["assets"]] == list(HOSTILE[:3])


def test_if_all_fail_the_command_does(run: Runner, home: Path) -> None:
    logs(home / "poor", 0, bad=False)
    (home / "poor/a.csv").write_text("time,valve,level\n0,1,2\n")
    columns = ("--input", "valve", "--output", "level")
    outcome = run("fleet", "poor/a.csv", *columns, "--out", "none", "--workers", 1)
    assert outcome.code == 2
    assert "error: none of 1 assets could be identified; the first, a: " in outcome.err
    assert "at least 10 are needed" in outcome.err
    assert (home / "none/fleet.csv").is_file()
    assert "there is no file poor/b.csv" in run.fails("fleet", "poor/b.csv", *columns)


def test_order_changes_nothing(done: occamid.Fleet, home: Path) -> None:
    files = sorted((home / "logs").glob("pump*.csv"), reverse=True)
    occamid.fleet(files, home / "reverse", **TOLD)
    assert same_models(home / "reverse", home / "out")
