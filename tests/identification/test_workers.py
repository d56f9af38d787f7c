"""Cores that may be used, and jobs on them."""

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from occamid.errors import SettingsError
from occamid.identification import workers


def test_the_number_of_threads_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.VARIABLE, "3")
    assert workers.cores() == 3
    monkeypatch.setenv(workers.VARIABLE, "none")
    with pytest.raises(SettingsError, match="must be a number of threads"):
        workers.cores()


@pytest.mark.parametrize(
    ("content", "cores"),
    [("50000 100000", 1), ("150000 100000", 2), ("max 100000", None), ("", None)],
)
def test_affinity_and_quota_limit_the_cores(
    content: str, cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(workers.VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7), raising=False)
    quota = tmp_path / "cpu.max"
    quota.write_text(content)
    monkeypatch.setattr(workers, "QUOTA", quota)
    assert workers.cores() == (cores or 7)


def test_jobs_run_at_the_same_time_and_answer_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.VARIABLE, "2")
    meeting = threading.Barrier(2)  # passed only if two jobs wait at once

    def job(k: int) -> int:
        meeting.wait(10)
        return k

    assert workers.side_by_side([partial(job, k) for k in range(4)]) == [0, 1, 2, 3]


def test_the_first_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.VARIABLE, "2")
    begun: list[int] = []

    def job(k: int) -> None:
        begun.append(k)
        if k == 0:
            raise ValueError("no")
        threading.Event().wait(0.05)

    with pytest.raises(ValueError, match="no"):
        workers.side_by_side([partial(job, k) for k in range(100)])
    assert len(begun) < 100


def test_one_core_uses_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.VARIABLE, "1")
    here = threading.get_ident()
    assert workers.side_by_side([threading.get_ident] * 3) == [here] * 3
