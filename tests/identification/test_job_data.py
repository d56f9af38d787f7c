"""What a job reads: one cut in time over all pieces, prepared data, how much was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from occamid.data.steps import Steps
from occamid.files.plain import cell_name, in_order
from occamid.identification.identify import Fit
from occamid.identification.job import Job
from occamid.identification.options import Options
from occamid.identification.thinning import thin
from tests.support.faults import good


@pytest.fixture
def log(tmp_path: Path) -> str:
    """3000 rows with seven gaps of ten rows: eight pieces."""
    record = good()
    time = np.arange(len(record)) * record.sampling_time
    frame = pd.DataFrame({"time": time, "u": record.u[:, 0], "y": record.y[:, 0]})
    gone = [row for k in range(1, 8) for row in range(350 * k, 350 * k + 10)]
    frame.drop(index=gone).to_csv(tmp_path / "log.csv", index=False)
    return str(tmp_path / "log.csv")


def test_the_test_data_is_the_last_part_in_time(log: str) -> None:
    data = Job(files=(log,), gaps="split", split=0.7).look()
    assert len(data.estimation) == 6
    assert len(data.test) == 2
    rows = [sum(map(len, part)) for part in (data.estimation, data.test)]
    assert sum(rows) == 2930
    assert abs(rows[0] - 0.7 * 2930) < 50
    assert max(r.start for r in data.estimation) < min(r.start for r in data.test)
    assert [f.kind for f in data.findings] == ["gap"]


def test_splinters_are_left_out_and_told(tmp_path: Path) -> None:
    record = good()
    time = np.arange(len(record)) * record.sampling_time
    frame = pd.DataFrame({"time": time, "u": record.u[:, 0], "y": record.y[:, 0]})
    frame.drop(index=[1500, 1504]).to_csv(tmp_path / "log.csv", index=False)
    data = Job(files=(str(tmp_path / "log.csv"),), gaps="split").look()
    assert [len(r) for r in data.estimation] == [1500, 1495]
    assert [f.kind for f in data.findings] == ["gap", "short"]


def test_steps_of_a_job_are_done_and_kept(log: str) -> None:
    steps = Steps(fill=10, remove="means", decimate=2)
    data = Job(files=(log,), gaps="split", split=0.7, prepare=steps).look()
    assert (len(data.estimation), len(data.test)) == (1, 1)
    assert data.estimation[0].sampling_time == 1.0
    assert abs(data.estimation[0].y.mean()) < 1e-9
    assert data.job.prepare is not None
    assert set(data.job.prepare.offsets) == {"u", "y"}
    again: dict[str, Any] = data.job.model_dump(mode="json")
    assert Job(**again) == data.job


def test_how_much_was_trained_on_is_told() -> None:
    whole = good()
    parts = thin((whole,), 1000)
    said = Fit.coverage_of_data.fget  # type: ignore[attr-defined]
    quick, standard = Options(effort="quick"), Options()  # 2,000 rows and 6,000
    told = said(SimpleNamespace(records=parts, rows_given=len(whole), options=quick))
    assert told.startswith("trained on 1000 of 3000 rows: ")
    assert told.endswith("a higher effort trains on more")
    assert all(part.name in told for part in parts)
    told = said(SimpleNamespace(records=parts, rows_given=len(whole), options=standard))
    assert told.endswith("what else there is, is too short for the lags")
    told = said(SimpleNamespace(records=(whole,), rows_given=3000, options=quick))
    assert told == "trained on 3000 of 3000 rows"


def test_names_are_harmless_in_reports_and_tables() -> None:
    found = in_order({"a": ["x\u202ey", {"b": "\u05d0 1"}], "c": 1.5})
    assert found == {"a": ["x\\u202ey", {"b": "\u2068\u05d0\u2069 1"}], "c": 1.5}
    assert cell_name("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert cell_name("level") == "level"


def test_pieces_know_where_they_are() -> None:
    record = replace(good(), start=10.0, input_units=("V",))
    piece = record[100:200]
    assert (piece.start, piece.input_units) == (60.0, ("V",))


def test_a_long_slow_log_is_taken_in_longer_steps_and_repeated_so(tmp_path: Path) -> None:
    t = np.arange(9_000)
    u, y = np.sin(t / 200), np.sin(t / 200 - 0.5)
    pd.DataFrame({"u": u, "y": y}).to_csv(tmp_path / "log.csv", index=False)
    log = str(tmp_path / "log.csv")
    job = Job(
        files=(log,), inputs=("u",), outputs=("y",), split=0.7, options=Options(effort="quick")
    )
    data = job.look()
    assert data.job.prepare == Steps(decimate=4)  # 6,300 rows for 2,000 of the effort
    assert [f.kind for f in data.findings] == ["longer steps"]
    assert [len(r) for r in data.estimation + data.test] == [1575, 675]
    assert [len(r) for r in data.logged[0] + data.logged[1]] == [6300, 2700]
    again = Job(**data.job.model_dump()).look()
    np.testing.assert_array_equal(again.estimation[0].y, data.estimation[0].y)
    auto = Options(effort="quick", input_lags="auto", output_lags="auto")  # as settings.toml has it
    assert job.model_copy(update={"options": auto}).look().job.prepare == Steps(decimate=4)
    for change in ({"every_row": True}, {"options": Options(effort="quick", input_lags=4)}):
        same = job.model_copy(update=change).look()
        assert len(same.estimation[0]) == 6300
        assert not same.findings
