"""A plant historian's export: one readable list of findings, from reading and checking together."""

from __future__ import annotations

from collections import Counter

import pytest

from occamid.assessment.check.records import check
from occamid.data.findings import Finding
from occamid.reading.files import Reading, examine
from tests.support.historian import DEAD_TIME, INPUTS, OUTPUTS, ROWS, STUCK, write_export


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    path = write_export(tmp_path_factory.mktemp("plant") / "export.csv")
    return examine(path, inputs=INPUTS, outputs=OUTPUTS, lenient=True)


@pytest.fixture(scope="module")
def findings(reading: Reading) -> list[Finding]:
    return [*reading.findings, *check(reading.records)]


def test_the_records_are_whole(reading: Reading) -> None:
    rows = sum(map(len, reading.records))
    assert ROWS - 40 < rows <= ROWS
    assert {r.sampling_time for r in reading.records} == {1.0}
    assert reading.records[0].input_units == ("%", "rpm", "degC")


def test_one_readable_list_of_findings(findings: list[Finding]) -> None:
    kinds = Counter(f.kind for f in findings if f.severity != "note")
    assert set(kinds) == {"gap", "clock", "blank", "stuck"}
    assert (kinds["gap"], kinds["clock"], kinds["stuck"]) == (1, 1, 1)
    assert {"units", "jitter"} <= {f.kind for f in findings}
    assert all(len(f.line) < 300 and "\n" not in f.line for f in findings)
    assert len(findings) < 25


def test_what_they_say(findings: list[Finding]) -> None:
    said = {f.kind: f for f in findings}
    assert "1200 s" in said["gap"].what
    assert "line 5003" in said["gap"].where  # two lines above the data, counted from 1
    assert "back by 360" in said["clock"].what
    assert (said["stuck"].channel, "600 samples" in said["stuck"].what) == ("level", True)
    assert STUCK[0] + 1200 in [round(t) for span in said["stuck"].times for t in span]


def test_the_dead_time_is_told_with_its_probability(findings: list[Finding]) -> None:
    (found,) = [f for f in findings if f.kind == "delay" and f.channel == "valve to temperature"]
    assert str(DEAD_TIME) in found.what or str(DEAD_TIME + 1) in found.what
    assert "probability" in found.what
