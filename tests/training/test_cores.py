"""How many workers: the variable, else affinity, else the control group's quota."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from occamid.training import cores as module
from occamid.training.cores import VARIABLE, cores


@pytest.fixture
def quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group's file, none at first; sixteen cores by affinity; nothing asked for."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(module, "QUOTA", tmp_path / "cpu.max")
    return tmp_path / "cpu.max"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 16),
        ("max 100000\n", 16),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # a core and a half: two workers
        ("10000 100000\n", 1),
        ("9900000 100000\n", 16),
        ("", 16),
        ("nonsense\n", 16),
    ],
)
def test_the_quota_of_the_control_group(quota: Path, text: str | None, expected: int) -> None:
    if text is not None:
        quota.write_text(text)
    assert cores() == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("3", 3), ("64", 64), ("0", 2), ("-1", 2), ("", 2), ("many", 2), ("1.5", 2)],
)
def test_the_variable_goes_first(
    quota: Path, monkeypatch: pytest.MonkeyPatch, asked: str, expected: int
) -> None:
    quota.write_text("200000 100000\n")
    monkeypatch.setenv(VARIABLE, asked)
    assert cores() == expected


def test_affinity_and_where_there_is_none(quota: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1
