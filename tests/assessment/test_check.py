"""Planted faults are found, sound records are left alone, delays come with honest probabilities."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from occamid.assessment.check.delay import delays, lag_products
from occamid.assessment.check.records import check
from occamid.data import twins
from occamid.data.findings import Finding, worst
from occamid.data.record import Record
from tests.support.clean import sound
from tests.support.faults import FAULTS, good


def above_notes(findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity != "note"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(fault: str) -> None:
    found = above_notes(check(FAULTS[fault]()))
    kind = fault.split(",")[0]
    assert {f.kind for f in found} - {"drift"} == {kind} - {"drift"}
    assert kind in {f.kind for f in found}
    for f in found:
        assert f.line.count("\n") == 0
        assert f.what
        assert f.why
        assert f.remedy


def test_a_sound_record_has_notes_only() -> None:
    record = good(inputs=2)
    assert above_notes(check(record, good(1000, seed=1, inputs=2))) == []


def test_places_are_rows_and_times_of_the_log() -> None:
    record = replace(FAULTS["stuck"](), start=100.0)
    (found,) = above_notes(check(record))
    assert found.rows == ((1000, 1149),)
    assert found.times == ((600.0, 674.5),)
    assert found.where == "log: rows 1000 to 1149 (600 to 674.5 s)"
    (spikes,) = above_notes(check(FAULTS["outlier"]()))
    assert spikes.rows == ((700, 700), (2100, 2100))


def test_test_data_outside_of_the_range() -> None:
    record = good()
    far = replace(record, u=3 * record.u)
    (found,) = above_notes(check(record, far))
    assert (found.kind, found.channel) == ("range", "u")


@pytest.mark.parametrize("name", twins.TWINS)
def test_silent_on_the_twins(name: str) -> None:
    twin = twins.make(name)
    assert worst(check(twin.estimation, twin.test)) == "note"


@pytest.mark.slow
def test_false_alarms_are_rare() -> None:
    wrong = [s for s in range(60) if above_notes(check(sound(s).record))]
    assert len(wrong) <= 1


def test_delays_are_as_sure_as_they_say() -> None:
    """Probabilities of the best delay add up to how often it is right; intervals cover."""
    found = [(d, s.delay) for s in map(sound, range(24)) for d in delays((s.record,))]
    right = np.mean([d.best == true for d, true in found])
    stated = np.mean([d.certainty for d, _ in found])
    covered = np.mean([d.interval[0] <= true <= d.interval[1] for d, true in found])
    assert abs(right - stated) < 0.15
    assert covered > 0.85


@pytest.mark.parametrize("delay", [0, 2, 10, 40, 60])
def test_the_delays_of_the_trial(delay: int) -> None:
    """0 for 10, 0 for 2 and 3 for 2 were stated without a word of doubt."""
    record = good(2060)
    late = np.concatenate([np.zeros(delay), record.u[: len(record) - delay, 0]])
    rng = np.random.default_rng(3)
    y = np.zeros(len(late))
    for t in range(1, len(late)):
        y[t] = 0.8 * y[t - 1] + 0.2 * late[t]
    (found,) = delays((Record(u=record.u[60:], y=(y + 0.02 * rng.standard_normal(len(y)))[60:]),))
    assert found.interval[0] <= delay <= found.interval[1]
    assert found.interval[1] - found.interval[0] <= 2


def test_lag_products_are_sums_of_products() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 30))
    shifted = [np.column_stack([x[4 - k : 30 - k] for k in range(5)]) for x in (a, b)]
    np.testing.assert_allclose(lag_products(a, b, 5), shifted[0].T @ shifted[1], atol=1e-12)


def test_short_and_wide_records() -> None:
    (found,) = check(Record(u=np.arange(5.0), y=np.arange(5.0)))
    assert (found.kind, found.severity) == ("short", "fault")
    rng = np.random.default_rng(0)
    wide = check(Record(u=rng.normal(size=(60, 3000)), y=rng.normal(size=60)))
    assert "many" in {f.kind for f in wide}


def test_findings_are_plain_data() -> None:
    for found in check(FAULTS["stuck"]()):
        assert json.loads(json.dumps(found.as_dict()))["line"] == found.line


@pytest.mark.slow
def test_a_million_rows_in_five_seconds() -> None:
    record = good(1_000_000, inputs=2)
    began = time.process_time()
    found = check(record)
    assert time.process_time() - began < 5
    assert above_notes(found) == []
