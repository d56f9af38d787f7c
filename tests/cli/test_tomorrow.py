"""Files with inputs only, or with outputs at their head: simulated, forecast, with their times."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from occamid import DataError, load
from occamid.cli.simulation import _goes_on
from occamid.reading.log import Log
from tests.support.commands import Runner
from tests.support.used import STEP, plant, stamps, used, write_log


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.chdir(tmp_path)
    used().save(tmp_path / "m.safetensors")
    return Runner(monkeypatch, capsys, tmp_path)


def simulated(name: str = "sim.csv") -> pd.DataFrame:
    return pd.read_csv(name)


# --- simulate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("initial", ["last", "steady"])
@pytest.mark.parametrize("measured", [None, 0], ids=["no column", "blank column"])
def test_inputs_only(run: Runner, initial: str, measured: int | None) -> None:
    write_log(Path("tomorrow.csv"), plant(24, 1), measured)
    outcome = run("simulate", "m.safetensors", "tomorrow.csv", "--initial", initial, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = simulated()
    assert found["time"].tolist() == stamps(24)  # the file's own
    expected = load("m.safetensors").simulate(plant(24, 1).u, initial=initial)  # type: ignore[arg-type]
    np.testing.assert_allclose(found["level"], expected.mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(found["level std"], expected.spread[:, 0], rtol=1e-8)
    assert json.loads(outcome.out)["known"] == 0


def test_rest_is_less_certain_than_measurements(run: Runner) -> None:
    write_log(Path("tomorrow.csv"), plant(24, 1), None)
    first = []
    for initial in ("last", "steady"):
        out = ("--initial", initial, "--out", f"{initial}.csv")
        assert run("simulate", "m.safetensors", "tomorrow.csv", *out).code == 0
        first.append(simulated(f"{initial}.csv")["level std"][0])
    assert first[1] > 1.3 * first[0]


def test_a_measured_head_then_blank(run: Runner) -> None:
    record = plant(40, 2)
    write_log(Path("log.csv"), record, 15)
    assert run("simulate", "m.safetensors", "log.csv").code == 0
    found = simulated()
    expected = load("m.safetensors").simulate(record, 15)
    np.testing.assert_allclose(found["level"], expected.mean[:, 0], rtol=1e-8)
    assert (found["level std"][:15] == 0).all()
    assert (found["level std"][15:] > 0).all()


def test_a_measured_head_in_another_file(run: Runner) -> None:
    record = plant(60, 3)
    write_log(Path("today.csv"), record[:40], 40)
    write_log(Path("tomorrow.csv"), record[40:], None, "2026-03-01 06:40:00")
    outcome = run("simulate", "m.safetensors", "tomorrow.csv", "--initial", "today.csv")
    assert outcome.code == 0
    expected = load("m.safetensors").simulate(record, 40).after(40)
    np.testing.assert_allclose(simulated()["level"], expected.mean[:, 0], rtol=1e-8)


def test_an_initial_start_is_judged_where_outputs_are_measured(run: Runner) -> None:
    write_log(Path("log.csv"), plant(40, 2), 40)
    outcome = run("simulate", "m.safetensors", "log.csv", "--initial", "steady", "--json")
    assert "fit %" in json.loads(outcome.out)


def test_nothing_to_start_from(run: Runner) -> None:
    write_log(Path("tomorrow.csv"), plant(24, 1), None)
    assert run.fails("simulate", "m.safetensors", "tomorrow.csv") == (
        "tomorrow.csv has 0 rows with measured outputs at its head, but the run needs 1 to start "
        "from: say with --initial what came before, last (the end of the estimation data), steady "
        "(rest under the first inputs) or a file."
    )


def test_a_blank_cell_between_measured_ones_is_still_refused(run: Runner) -> None:
    write_log(Path("log.csv"), plant(40, 2), 40)
    frame = pd.read_csv("log.csv")
    frame.loc[20, "level"] = np.nan
    frame.to_csv("log.csv", index=False)
    assert "column level has no value at line 22" in run.fails(
        "simulate", "m.safetensors", "log.csv"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--initial", "yesterday.csv"), "there is no file yesterday.csv."),
        (("--initial", "last", "--n-init", "3"), "give --n-init or --initial, not both."),
    ],
)
def test_a_start_that_cannot_be(run: Runner, arguments: tuple[str, ...], said: str) -> None:
    write_log(Path("tomorrow.csv"), plant(24, 1), None)
    assert run.fails("simulate", "m.safetensors", "tomorrow.csv", *arguments) == said


# --- predict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [5, 30])
def test_a_forecast_beyond_the_end_of_a_log(run: Runner, rows: int) -> None:
    record = plant(50 + rows, 4)
    write_log(Path("log.csv"), record[:50], 50)
    write_log(Path("inputs.csv"), record[50:], None, "2026-03-01 06:50:00")
    outcome = run("predict", "m.safetensors", "log.csv", "--future", "inputs.csv", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["horizon"] == rows
    found = simulated("prediction.csv")
    assert found["time"].tolist() == stamps(rows, "2026-03-01 06:50:00")
    std = found["level std"].to_numpy()
    assert (np.diff(std) > 0).sum() >= min(rows, 10) - 1  # the band grows
    miss = np.abs(found["level"] - record.y[50:, 0]) / std
    assert np.mean(miss < 3) > 0.9


def test_a_forecast_of_fewer_steps_and_of_too_many(run: Runner) -> None:
    record = plant(60, 4)
    write_log(Path("log.csv"), record[:50], 50)
    write_log(Path("inputs.csv"), record[50:], None, "2026-03-01 06:50:00")
    arguments = ("predict", "m.safetensors", "log.csv", "--future", "inputs.csv", "--horizon")
    assert run(*arguments, 4).code == 0
    assert len(simulated("prediction.csv")) == 4
    assert run.fails(*arguments, 11, "--force") == (
        "--horizon 11 reaches beyond the 10 rows of inputs.csv; give fewer steps."
    )


@pytest.mark.parametrize("hole", [[20], [47, 48, 49]])
def test_a_forecast_starts_from_the_last_measured_outputs(run: Runner, hole: list[int]) -> None:
    """From the last piece, though another one is longer, and through inputs that follow it."""
    record = plant(60, 4)
    write_log(Path("log.csv"), record[:50], 50)
    frame = pd.read_csv("log.csv")
    frame.loc[hole, "level"] = np.nan
    if hole == [20]:
        frame.loc[26, "level"] = np.nan
    frame.to_csv("log.csv", index=False)
    write_log(Path("inputs.csv"), record[50:], None, "2026-03-01 06:50:00")
    arguments = ("predict", "m.safetensors", "log.csv", "--future", "inputs.csv")
    assert run(*arguments, "--gaps", "split").code == 0
    first, last = (27, 50) if hole == [20] else (0, 47)
    past = record[first:last]
    expected = load("m.safetensors").simulate(record.u[last:], initial=past).after(50 - last)
    found = simulated("prediction.csv")
    assert found["time"].tolist() == stamps(10, "2026-03-01 06:50:00")
    np.testing.assert_allclose(found["level"], expected.mean[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found["level std"], expected.spread[:, 0], rtol=1e-9)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("2026-03-01 07:00:00", "inputs.csv begins 660 s after the last row of log.csv"),
        ("2026-02-28 06:50:00", "inputs.csv begins 86340 s before the last row of log.csv"),
        ("07:00:00", ""),  # times of day do not tell
    ],
)
def test_inputs_of_a_forecast_begin_where_the_log_ends(run: Runner, first: str, said: str) -> None:
    record = plant(60, 4)
    write_log(Path("log.csv"), record[:50], 50)
    write_log(Path("inputs.csv"), record[50:], None, "2026-03-01 " + first[-8:])
    if len(first) == 8:
        text = Path("inputs.csv").read_text().replace("2026-03-01 ", "")
        Path("inputs.csv").write_text(text)
    else:
        write_log(Path("inputs.csv"), record[50:], None, first)
    arguments = ("predict", "m.safetensors", "log.csv", "--future", "inputs.csv")
    if said:
        assert run.fails(*arguments).startswith(said)
        assert not Path("prediction.csv").exists()
    else:
        assert run(*arguments).code == 0


@pytest.mark.parametrize(
    ("begins", "fits"), [(60.0, True), (89.0, True), (91.0, False), (15.0, True), (0.0, False)]
)
def test_of_a_model_with_longer_steps_inputs_may_begin_within_one(
    begins: float, fits: bool
) -> None:
    """The log ends at 1,000 s, in rows of 15 s of which every fourth was taken."""
    past = Log(plant(20, 4), 20, [], (0.0, 1000.0))
    ahead = Log(plant(20, 4), 0, [], (1000.0 + begins, 2000.0))
    assert past.record.sampling_time == 60.0
    refused = pytest.raises(DataError, match="a forecast goes on 60 s")
    with nullcontext() if fits else refused:
        _goes_on(Path("log.csv"), past, Path("inputs.csv"), ahead)


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["simulate", "predict"])
def test_the_files_own_times(run: Runner, command: str) -> None:
    write_log(Path("log.csv"), plant(40, 2), 40)
    assert run(command, "m.safetensors", "log.csv", "--out", "made.csv").code == 0
    assert simulated("made.csv")["time"].tolist() == stamps(40)


def test_times_in_numbers_and_of_the_longest_piece(run: Runner) -> None:
    record = plant(40, 2)
    frame = pd.DataFrame({"t": 1.7e9 + STEP * np.arange(40), "pump": record.u[:, 0]})
    frame["level"] = record.y[:, 0]
    frame.loc[9, "pump"] = np.nan
    frame.to_csv("log.csv", index=False)
    assert run("simulate", "m.safetensors", "log.csv", "--gaps", "split").code == 0
    np.testing.assert_array_equal(simulated()["time"], 1.7e9 + STEP * np.arange(10, 40))


def test_a_row_of_units(run: Runner) -> None:
    write_log(Path("log.csv"), plant(40, 2), 15)
    lines = Path("log.csv").read_text("utf-8").splitlines()
    Path("log.csv").write_text("\n".join([lines[0], ",V,m", *lines[1:]]) + "\n", encoding="utf-8")
    assert run("simulate", "m.safetensors", "log.csv").code == 0
    assert simulated()["time"].tolist() == stamps(40)


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+level", "-level", "@level"])
def test_no_heading_is_a_formula(run: Runner, name: str) -> None:
    used(level=name).save("m.safetensors")
    write_log(Path("log.csv"), plant(40, 2), 40)
    frame = pd.read_csv("log.csv").rename(columns={"level": name})
    frame.to_csv("log.csv", index=False)
    assert run("simulate", "m.safetensors", "log.csv").code == 0
    heading = Path("sim.csv").read_text("utf-8").splitlines()[0]
    assert heading == f"time,'{name},'{name} std,'{name} low,'{name} high"


# --- steps of the model's data ------------------------------------------------------------------


@pytest.mark.parametrize("command", ["simulate", "predict", "compare"])
def test_removed_means_are_taken_off_and_put_back(run: Runner, command: str) -> None:
    """The same plant elsewhere: a model of data without their means, on a log with them."""
    away = {"pump": 5.0, "level": -100.0}
    job = {"files": ["log.csv"], "prepare": {"remove": "means", "offsets": away}}
    used().save("prepared.safetensors", {"job": job})
    record = plant(40, 1)
    write_log(Path("here.csv"), record, 40)
    moved = replace(record, u=record.u + away["pump"], y=record.y + away["level"])
    write_log(Path("there.csv"), moved, 40)
    told = [] if command == "compare" else ["--out"]
    first = run(command, "m.safetensors", "here.csv", *told, *(["a.csv"] if told else []), "--json")
    then = run(
        command, "prepared.safetensors", "there.csv", *told, *(["b.csv"] if told else []), "--json"
    )
    assert (first.code, then.code) == (0, 0), then.err
    if told:
        here, there = simulated("a.csv"), simulated("b.csv")
        np.testing.assert_allclose(there["level"], here["level"] + away["level"], atol=1e-6)
        np.testing.assert_allclose(there["level low"], here["level low"] - 100.0, atol=1e-6)
    else:
        (one,), (two,) = json.loads(first.out), json.loads(then.out)
        np.testing.assert_allclose(two["rmse"], one["rmse"], rtol=1e-6)
