"""Preparing records: each step does what it says, in one order, and can be repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from occamid.data.prepare import apply_steps, fitted, prepare, put_back, split_in_time
from occamid.data.record import Record
from occamid.data.steps import Steps
from occamid.errors import DataError, SettingsError

RNG = np.random.default_rng(0)


def log(rows: int = 400, name: str = "log", start: float = 0.0, step: float = 0.5) -> Record:
    t = start + step * np.arange(rows)
    u = np.sin(0.05 * t) + 0.01 * RNG.standard_normal(rows)
    return Record(u=u, y=3 + 2 * u + 0.01 * t, sampling_time=step, name=name, start=start)


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ({"keep_rows": (10, 19)}, [10]),
        ({"drop_rows": [(0, 9), (100, 199)]}, [90, 200]),
        ({"keep_times": (5, 9.5)}, [10]),
        ({"drop_times": (50, 1e9)}, [100]),
        ({"keep_rows": (0, 99), "drop_times": (10, 14.5)}, [20, 70]),
    ],
)
def test_ranges(steps: dict[str, Any], rows: list[int]) -> None:
    assert [len(r) for r in prepare(log(), **steps)] == rows


def test_rows_count_over_all_records() -> None:
    pieces = [log(100, "log #1"), log(100, "log #2", start=90.0)]
    assert [len(r) for r in prepare(pieces, keep_rows=(90, 119))] == [10, 20]


def test_what_is_left_out_is_not_filled_again() -> None:
    assert [len(r) for r in prepare(log(), drop_rows=(100, 102), fill=10)] == [100, 297]


def test_times_are_those_of_the_log() -> None:
    (piece,) = prepare(log(start=100.0), keep_times=(150, 159.5))
    assert (len(piece), piece.start) == (20, 150.0)


def test_nothing_left() -> None:
    with pytest.raises(DataError, match="nothing is left"):
        prepare(log(), keep_rows=(1000, 2000))


def test_short_gaps_are_filled_and_long_ones_are_not() -> None:
    whole = replace(log(), y=np.linspace(0, 1, 400))
    pieces = [
        replace(part, name=f"log #{k}")
        for k, part in enumerate((whole[:100], whole[103:200], whole[260:]), 1)
    ]
    first, second = prepare(pieces, fill=5)
    assert (len(first), len(second)) == (200, 140)
    np.testing.assert_allclose(first.y, whole.y[:200])
    other = replace(pieces[1], name="another #1")
    assert len(prepare([pieces[0], other], fill=5)) == 2


def test_spikes_are_interpolated() -> None:
    whole = log()
    y = whole.y.copy()
    y[[50, 51, 300]] = 1e6
    (found,) = prepare(replace(whole, y=y), mask_outliers=True)
    np.testing.assert_allclose(found.y, whole.y, atol=0.2)
    assert whole.y[50] != y[50]


def test_filters_have_no_phase() -> None:
    t = 0.01 * np.arange(2000)
    slow, fast = np.sin(2 * np.pi * 1.0 * t), np.sin(2 * np.pi * 20.0 * t)
    record = Record(u=slow + fast, y=slow + fast, sampling_time=0.01)
    inner = slice(300, -300)
    for steps, left in (({"low_pass": 5.0}, slow), ({"high_pass": 5.0}, fast)):
        (found,) = prepare(record, **steps)  # type: ignore[arg-type]
        np.testing.assert_allclose(found.y[inner, 0], left[inner], atol=0.02)
    (band,) = prepare(record, high_pass=0.2, low_pass=5.0)
    np.testing.assert_allclose(band.y[700:-700, 0], slow[700:-700], atol=0.05)


def test_resampling_and_decimation() -> None:
    record = log()
    (found,) = prepare(record, resample=0.25)
    assert (found.sampling_time, len(found)) == (0.25, 799)
    np.testing.assert_allclose(found.y[::2], record.y)
    (coarse,) = prepare(record, resample=1.5)
    assert coarse.sampling_time == 1.5
    np.testing.assert_allclose(coarse.y[20:-20], record.y[::3][20:-20], atol=0.1)
    assert prepare(record, decimate=4)[0].sampling_time == 2.0


@pytest.mark.parametrize("what", ["means", "trends"])
def test_means_and_trends_are_removed_and_put_back(what: str) -> None:
    record = log()
    (found,) = prepare(record, remove=what)
    assert np.abs(np.concatenate([found.u, found.y], axis=1).mean(axis=0)).max() < 1e-9
    steps = fitted(Steps(remove=what), record)
    assert set(steps.offsets) == {"u", "y"}
    new = log(50, start=1000.0)
    again = apply_steps(steps, new)
    np.testing.assert_allclose(put_back(steps, ("y",), again.y), new.y)
    if what == "trends":
        t = np.arange(400.0)
        assert abs(np.corrcoef(t, found.y[:, 0])[0, 1]) < 1e-6


def test_experiments_are_merged_when_asked() -> None:
    (found,) = prepare([log(name="log #1"), log(name="log #2")], merge=True)
    assert (len(found), found.name) == (800, "log")


def test_one_cut_in_time_over_all_pieces() -> None:
    pieces = [log(100), log(50), log(150)]
    before, after = split_in_time(pieces, 0.6)
    assert [len(r) for r in before] == [100, 50, 30]
    assert [len(r) for r in after] == [120]
    assert after[0].start == 15.0
    before, after = split_in_time(pieces, 0.5)
    assert ([len(r) for r in before], [len(r) for r in after]) == ([100, 50], [150])
    with pytest.raises(DataError, match="cannot split"):
        split_in_time([log(20)], 0.001)


def test_steps_are_settings() -> None:
    steps = Steps(keep_rows=[[0, 100]], low_pass=0.2, fill=3)
    assert steps.given() == {"keep_rows": [[0.0, 100.0]], "low_pass": 0.2, "fill": 3}
    assert Steps(**steps.given()) == steps
    with pytest.raises(SettingsError, match="step lowpass: unknown; there are fill, keep_rows, "):
        Steps(lowpass=1.0)
    with pytest.raises(SettingsError, match="step fill: input should be greater"):
        Steps(fill=-1)
    for bad in ({"low_pass": 2.0}, {"high_pass": 0.5, "low_pass": 0.2}):
        with pytest.raises(SettingsError, match="_pass"):
            prepare(log(), Steps(**bad))
