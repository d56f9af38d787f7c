"""``occamid check`` and ``occamid prepare``: exit codes, lists, files, and what they never do."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from occamid.reading.files import read
from tests.support.commands import Runner
from tests.support.faults import FAULTS, good
from tests.support.historian import INPUTS, OUTPUTS, write_export


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    return Runner(monkeypatch, capsys, tmp_path)


def table(fault: str | None = None, **columns: object) -> pd.DataFrame:
    record = good() if fault is None else FAULTS[fault]()
    time = np.arange(len(record)) * record.sampling_time
    return pd.DataFrame({"time": time, "u": record.u[:, 0], "y": record.y[:, 0]} | columns)


def test_exit_codes(run: Runner) -> None:
    table().to_csv("good.csv", index=False)
    table("stuck").to_csv("stuck.csv", index=False)
    clean = run("check", "good.csv")
    assert (clean.code, clean.err) == (0, "")
    assert "delay" not in clean.err
    assert clean.out.splitlines()[-1].endswith(" findings about the data, 0 to look at")
    stuck = run("check", "stuck.csv")
    assert stuck.code == 1
    assert stuck.out.startswith("advice: output y stands still 1 time")
    assert run("check", "none.csv").code == 2


def test_findings_as_json_and_as_a_plot(run: Runner) -> None:
    table("stuck").to_csv("log.csv", index=False)
    outcome = run("check", "log.csv", "--json", "--out", "page.png")
    found = json.loads(outcome.out)
    assert (outcome.code, found[0]["kind"], found[0]["rows"]) == (1, "stuck", [[1000, 1149]])
    assert Path("page.png").read_bytes()[:4] == b"\x89PNG"
    assert "already exists" in run.fails("check", "log.csv", "--out", "page.png")
    assert ".png or .svg" in run.fails("check", "log.csv", "--out", "page.csv")


def test_a_dead_column_and_uneven_times_are_findings_and_no_errors(run: Runner) -> None:
    frame = table()
    frame["time"] += 0.1 * np.sin(np.arange(len(frame)))
    frame["y"] = 7.0
    frame.to_csv("log.csv", index=False)
    outcome = run("check", "log.csv", "--json")
    assert {"uneven", "dead"} <= {f["kind"] for f in json.loads(outcome.out)}


def test_test_data_is_compared(run: Runner) -> None:
    frame = table()
    frame.to_csv("log.csv", index=False)
    frame.assign(u=5 * frame["u"]).to_csv("other.csv", index=False)
    outcome = run("check", "log.csv", "--test", "other.csv", "--json")
    assert "range" in {f["kind"] for f in json.loads(outcome.out)}
    assert run("check", "log.csv", "--split", "0.7").code == 0


def test_prepare_writes_a_table_and_its_steps(run: Runner) -> None:
    frame = table("outlier").drop(index=[100, 101])
    frame.to_csv("log.csv", index=False)
    steps = ("--fill", 5, "--mask-outliers", "--drop-rows", "0:9", "--remove", "means")
    outcome = run("prepare", "log.csv", *steps, "--out", "ready.csv")
    assert outcome.code == 0
    (record,) = read("ready.csv")
    assert (len(record), record.sampling_time) == (2990, 0.5)
    assert abs(record.y.mean()) < 1e-6
    assert np.abs(record.y).max() < 50
    told = tomllib.loads(Path("ready.toml").read_text("utf-8"))
    assert told["fill"] == 5
    assert set(told["offsets"]) == {"u", "y"}
    again = run("prepare", "log.csv", "--steps", "ready.toml", "--out", "again.csv")
    assert again.code == 0
    assert Path("again.csv").read_bytes() == Path("ready.csv").read_bytes()


def test_prepare_replaces_nothing_unasked(run: Runner) -> None:
    table().to_csv("log.csv", index=False)
    Path("ready.toml").write_text("mine", encoding="utf-8")
    assert "ready.toml already exists" in run.fails("prepare", "log.csv", "--out", "ready.csv")
    assert "read by this command" in run.fails("prepare", "log.csv", "--out", "log.csv", "--force")
    assert run("prepare", "log.csv", "--out", "ready.csv", "--force").code == 0
    assert "--keep-rows takes FIRST:LAST, not 'x'" in run.fails(
        "prepare", "log.csv", "--out", "b.csv", "--keep-rows", "x"
    )


def test_a_heading_that_spreadsheets_would_run_is_written_as_text(run: Runner) -> None:
    name = '=HYPERLINK("http://x")'
    table().rename(columns={"u": name}).to_csv("log.csv", index=False)
    assert run("prepare", "log.csv", "-u", name, "--out", "ready.csv").code == 0
    head = Path("ready.csv").read_text("utf-8").splitlines()[0]
    assert "'=HYPERLINK" in head
    assert ",=" not in head
    (record,) = read("ready.csv", inputs=[name])
    assert record.input_names == (name,)


def test_the_historians_export_is_prepared_with_units_and_split(run: Runner) -> None:
    write_export(Path("export.csv"))
    columns = [x for n in INPUTS for x in ("-u", n)] + [x for n in OUTPUTS for x in ("-y", n)]
    steps = ("--fill", 3, "--decimate", 10, "--split", 0.7)
    assert run("prepare", "export.csv", *columns, *steps, "--out", "ready.csv").code == 0
    records = read("ready.csv", inputs=INPUTS, outputs=OUTPUTS)
    tests = read("ready-test.csv", inputs=INPUTS, outputs=OUTPUTS)
    assert records[0].output_units == ("degC", "m")
    assert len(records) + len(tests) == 3  # cut at the gap, and at the clock change in the end
    share = sum(map(len, records)) / sum(map(len, (*records, *tests)))
    assert share == pytest.approx(0.7, abs=0.02)
