"""Records: what they accept, what they refuse and in which words, and their scaling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from occamid.data.record import Record, as_records
from occamid.data.scaling import Method, fit_scaling
from occamid.errors import DataError, OccamidError

RNG = np.random.default_rng(5)
N = 12


def message(action: Callable[[], Any]) -> str:
    with pytest.raises(DataError) as caught:
        action()
    return str(caught.value)


def record(**changes: Any) -> Record:
    values: dict[str, Any] = {"u": np.arange(N), "y": np.arange(N) ** 2, "name": "rig"}
    return Record(**(values | changes))


def rich(samples: int = 50) -> Record:
    """Two inputs and one output with every kind of metadata set."""
    return Record(
        u=RNG.normal(size=(samples, 2)),
        y=RNG.normal(size=samples),
        sampling_time=0.25,
        name="rig",
        input_names=("valve", "pump"),
        output_names=("level",),
    )


def metadata(r: Record) -> tuple[Any, ...]:
    return r.name, r.input_names, r.output_names, r.sampling_time


class Frame:
    """As much of a data frame as a record may rely on: columns and conversion to an array."""

    def __init__(self, **columns: list[float]) -> None:
        self.columns = list(columns)
        self._values = np.array(list(columns.values())).T

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._values, dtype=dtype)


# --- what is accepted ---------------------------------------------------------------------------


def test_one_dimension_is_one_channel() -> None:
    r = record(u=[1, 2, 3], y=[4.5, 5.5, 6.5])
    assert r.u.shape == (3, 1)
    assert r.y.shape == (3, 1)
    assert r.u.dtype == r.y.dtype == np.float64
    np.testing.assert_array_equal(r.u[:, 0], [1.0, 2.0, 3.0])
    assert (r.input_names, r.output_names) == (("u",), ("y",))
    assert len(r) == 3


def test_several_channels_are_numbered() -> None:
    r = record(u=np.zeros((N, 2)), y=np.zeros((N, 3)))
    assert r.input_names == ("u1", "u2")
    assert r.output_names == ("y1", "y2", "y3")


def test_numbers_in_text_and_booleans_are_numbers() -> None:
    r = record(u=["1.5", "-2", "3e1"], y=[True, False, True])
    np.testing.assert_array_equal(r.u[:, 0], [1.5, -2.0, 30.0])
    np.testing.assert_array_equal(r.y[:, 0], [1.0, 0.0, 1.0])


def test_names_come_from_the_columns_of_a_frame() -> None:
    frame = Frame(valve=[1.0, 2.0], pump=[3.0, 5.0])
    r = Record(u=frame, y=Frame(level=[7.0, 8.0]))  # type: ignore[arg-type]
    assert r.input_names == ("valve", "pump")
    assert r.output_names == ("level",)
    np.testing.assert_array_equal(r.u, [[1.0, 3.0], [2.0, 5.0]])


def test_given_names_win_over_columns() -> None:
    frame = Frame(a=[1.0, 2.0], b=[3.0, 5.0])
    r = Record(u=frame, y=[0.0, 1.0], input_names=("x1", "x2"))  # type: ignore[arg-type]
    assert r.input_names == ("x1", "x2")


def test_a_plain_string_is_one_name() -> None:
    r = record(input_names="flow", output_names=np.array(["level"]))
    assert (r.input_names, r.output_names) == (("flow",), ("level",))


def test_a_masked_array_without_masked_values() -> None:
    r = record(u=np.ma.masked_array(np.arange(N), mask=False), sampling_time=np.float32(0.5))
    np.testing.assert_array_equal(r.u[:, 0], np.arange(N))
    assert type(r.u) is np.ndarray
    assert type(r.sampling_time) is float


@pytest.mark.parametrize("shape", [(N,), (N, 2)])
def test_the_callers_arrays_stay_as_they_are(shape: tuple[int, ...]) -> None:
    u, y = RNG.normal(size=shape), RNG.normal(size=N)
    before = u.copy(), y.copy()
    r = record(u=u, y=y)
    assert u.flags.writeable
    assert y.flags.writeable
    assert not np.shares_memory(u, r.u)
    assert not np.shares_memory(y, r.y)
    u += 100.0  # the record does not follow the caller
    y += 100.0
    np.testing.assert_array_equal(r.u.reshape(shape), before[0])
    np.testing.assert_array_equal(r.y[:, 0], before[1])


def test_a_record_cannot_be_changed() -> None:
    r = rich()
    for array in (r.u, r.y, r[3:9].u, r[3:9].y, r.split(0.5)[1].y):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        r.name = "other"  # type: ignore[misc]


# --- pieces -------------------------------------------------------------------------------------


def test_a_slice_keeps_rows_and_metadata() -> None:
    r = rich()
    piece = r[10:30]
    np.testing.assert_array_equal(piece.u, r.u[10:30])
    np.testing.assert_array_equal(piece.y, r.y[10:30])
    assert metadata(piece) == metadata(r)
    np.testing.assert_array_equal(r[-5:].y, r.y[45:])


@pytest.mark.parametrize(
    ("at", "row"), [(0.7, 35), (0.5, 25), (1, 1), (49, 49), (np.float32(0.5), 25), (np.int64(9), 9)]
)
def test_split_by_share_or_row(at: float, row: int) -> None:
    r = rich()
    first, second = r.split(at)
    assert (len(first), len(second)) == (row, 50 - row)
    np.testing.assert_array_equal(np.concatenate([first.u, second.u]), r.u)
    np.testing.assert_array_equal(np.concatenate([first.y, second.y]), r.y)
    assert metadata(first) == metadata(second) == metadata(r)


def test_decimate_against_a_windowed_sinc() -> None:
    r, q = rich(400), 4
    slow = r.decimate(q)
    lag = np.arange(-10 * q, 10 * q + 1)
    taps = np.sinc(lag / q) * (0.54 + 0.46 * np.cos(np.pi * lag / (10 * q)))
    taps /= taps.sum()
    rows = np.arange(10, 90)  # away from the ends, where the filter sees the data alone
    for fast_x, slow_x in ((r.u, slow.u), (r.y, slow.y)):
        expected = np.array([taps @ fast_x[k * q - 10 * q : k * q + 10 * q + 1] for k in rows])
        np.testing.assert_allclose(slow_x[rows], expected, atol=1e-12)
    assert len(slow) == 100
    assert metadata(slow) == ("rig", ("valve", "pump"), ("level",), 1.0)


def test_decimate_keeps_the_slow_and_removes_the_fast() -> None:
    t = np.arange(1000)
    keep, drop = np.sin(2 * np.pi * t / 100), np.sin(2 * np.pi * t / 3)
    slow = Record(u=keep, y=keep + drop).decimate(5)
    middle = slice(20, 180)
    np.testing.assert_allclose(slow.u[middle, 0], keep[::5][middle], atol=0.005)
    np.testing.assert_allclose(slow.y[middle, 0], keep[::5][middle], atol=0.01)


def test_decimate_keeps_offsets_and_ramps_up_to_the_ends() -> None:
    ramp = 300 - 0.5 * np.arange(403)
    slow = Record(u=np.full(403, 40.0), y=ramp).decimate(np.int64(4))  # type: ignore[arg-type]
    np.testing.assert_allclose(slow.u, 40.0, rtol=1e-12)
    np.testing.assert_allclose(slow.y[:, 0], ramp[::4], rtol=1e-12)


def test_decimate_by_one_changes_nothing() -> None:
    r = rich()
    same = r.decimate(1)
    np.testing.assert_array_equal(same.u, r.u)
    assert metadata(same) == metadata(r)


# --- several records ----------------------------------------------------------------------------


def test_one_record_or_many_become_a_tuple() -> None:
    a, b = record(name="a"), record(name="b", u=np.ones(5), y=np.ones(5))
    assert as_records(a) == (a,)
    assert as_records([a, b]) == (a, b)
    assert as_records(r for r in (b, a)) == (b, a)


# --- what is refused ----------------------------------------------------------------------------


def with_value(value: float, *places: tuple[int, int]) -> np.ndarray:
    x = np.zeros((N, 2))
    for place in places:
        x[place] = value
    return x


WIDE = np.zeros((N, 2))
BAD_RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "nan in u": (
        {"u": with_value(np.nan, (7, 1), (9, 0)), "input_names": ("valve", "pump")},
        'record "rig": input pump is nan at row 7 (2 such values in all); '
        "remove or fill them first.",
    ),
    "inf in y": (
        {"y": with_value(-np.inf, (3, 0))},
        'record "rig": output y1 is -inf at row 3 (1 such value in all); remove or fill it first.',
    ),
    "text in a frame's column": (
        {"u": np.array([0.0] * 4 + ["stuck"] + [0.0] * 7, dtype=object)},
        "record \"rig\": input u holds 'stuck', which is not a number, at row 4.",
    ),
    "text in the second column": (
        {"u": [["1", "2"]] * 9 + [["3", "x"]] + [["1", "y"]] * 2},
        "record \"rig\": input u2 holds 'x', which is not a number, at row 9.",
    ),
    "text instead of data": (
        {"u": "abc"},
        'record "rig": u has 0 dimensions; give (samples,) or (samples, channels).',
    ),
    "ragged": (
        {"y": [[1.0, 2.0]] * 11 + [[1.0]]},
        'record "rig": y has rows of different lengths.',
    ),
    "too large an integer": (
        {"y": [0] * 11 + [10**400]},
        f'record "rig": output y holds {10**400}, which is not a number, at row 11.',
    ),
    "masked": (
        {"y": np.ma.masked_equal(np.arange(N), 8)},
        'record "rig": output y is nan at row 8 (1 such value in all); remove or fill it first.',
    ),
    "nothing in y": (
        {"y": [0.0] * 11 + [None]},
        'record "rig": output y holds None, which is not a number, at row 11.',
    ),
    "complex": (
        {"y": 1j * np.ones(N)},
        'record "rig": y has type complex128; real numbers are needed.',
    ),
    "dates": (
        {"u": np.array(["2024-01-01"] * N, dtype="datetime64[D]")},
        'record "rig": u has type datetime64[D]; real numbers are needed.',
    ),
    "lengths": (
        {"u": np.zeros(N - 1)},
        'record "rig": u has 11 rows but y has 12; inputs and outputs must be sampled together.',
    ),
    "three dimensions": (
        {"u": np.zeros((2, 3, 4))},
        'record "rig": u has 3 dimensions; give (samples,) or (samples, channels).',
    ),
    "no dimension": (
        {"y": 3.0},
        'record "rig": y has 0 dimensions; give (samples,) or (samples, channels).',
    ),
    "no input": (
        {"u": np.zeros((N, 0))},
        'record "rig": u is empty (shape (12, 0)); at least one input is needed.',
    ),
    "no output": (
        {"y": np.zeros((N, 0))},
        'record "rig": y is empty (shape (12, 0)); at least one output is needed.',
    ),
    "too few input names": (
        {"u": WIDE, "input_names": ("valve",)},
        'record "rig": 1 input name for 2 input columns.',
    ),
    "too many output names": (
        {"output_names": ("level", "flow")},
        'record "rig": 2 output names for 1 output column.',
    ),
    "a letter is no name": (
        {"u": WIDE, "input_names": "ab"},
        'record "rig": 1 input name for 2 input columns.',
    ),
    "a number as a name": (
        {"input_names": (3,)},
        'record "rig": input names must be text (got 3).',
    ),
    "no names at all": (
        {"output_names": None},
        'record "rig": output names must be text (got None).',
    ),
    "repeated inputs": (
        {"u": WIDE, "input_names": ("valve", "valve")},
        'record "rig": channel names repeat: valve, valve, y.',
    ),
    "input called like an output": (
        {"input_names": ("y",)},
        'record "rig": channel names repeat: y, y.',
    ),
    "sampling time zero": (
        {"sampling_time": 0.0},
        'record "rig": the sampling time is 0.0; it must be a positive number.',
    ),
    "sampling time negative": (
        {"sampling_time": -0.1},
        'record "rig": the sampling time is -0.1; it must be a positive number.',
    ),
    "sampling time nan": (
        {"sampling_time": float("nan")},
        'record "rig": the sampling time is nan; it must be a positive number.',
    ),
    "sampling time of the wrong type": (
        {"sampling_time": "0.1"},
        "record \"rig\": the sampling time is '0.1'; it must be a positive number.",
    ),
    "sampling time missing": (
        {"sampling_time": None},
        'record "rig": the sampling time is None; it must be a positive number.',
    ),
    "sampling time true": (
        {"sampling_time": True},
        'record "rig": the sampling time is True; it must be a positive number.',
    ),
    "sampling time of numpy": (
        {"sampling_time": np.float32(-0.5)},
        'record "rig": the sampling time is -0.5; it must be a positive number.',
    ),
    "sampling time infinite": (
        {"sampling_time": float("inf")},
        'record "rig": the sampling time is inf; it must be a positive number.',
    ),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_bad_records(case: str) -> None:
    changes, expected = BAD_RECORDS[case]
    assert message(lambda: record(**changes)) == expected


def test_text_in_a_list_is_refused_with_its_row() -> None:
    assert message(lambda: record(u=[0.0] * 9 + ["x", 0.0, 0.0])) == (
        "record \"rig\": input u holds 'x', which is not a number, at row 9."
    )


def test_no_samples_are_refused() -> None:
    assert message(lambda: record(u=[], y=[])) == 'record "rig": u has no samples.'
    assert message(lambda: record(y=WIDE[:0])) == 'record "rig": y has no samples.'


def test_empty_pieces_are_refused() -> None:
    said = 'record "rig": record[{}] is empty; it has 12 rows.'
    assert message(lambda: record()[5:5]) == said.format("5:5")
    assert message(lambda: record()[20:]) == said.format("20:")
    assert message(lambda: record()[:-12]) == said.format(":-12")
    assert message(lambda: record()[:1][1:]) == 'record "rig": record[1:] is empty; it has 1 row.'


@pytest.mark.parametrize(
    "rows", [3, slice(None, None, 2), slice(9, 1, -1), [1, 2], slice(0.5, None), slice("a", "b")]
)
def test_bad_slices(rows: Any) -> None:
    assert message(lambda: record()[rows]) == (
        'record "rig": take pieces with record[start:stop]; '
        "to keep every k-th sample use decimate(k)."
    )


@pytest.mark.parametrize(
    "at", [0, 12, 13, -2, 0.0, 1.0, 0.01, 2.5, -0.5, np.nan, np.inf, True, "a"]
)
def test_bad_splits(at: Any) -> None:
    assert message(lambda: record().split(at)) == (
        f'record "rig": cannot split at {at!r}; it has 12 rows. '
        "Give a share between 0 and 1 or a row number inside the record."
    )


@pytest.mark.parametrize("factor", [0, -3, 2.5, 2.0, float("nan"), "a", True, None])
def test_bad_decimation(factor: Any) -> None:
    assert message(lambda: rich(400).decimate(factor)) == (
        f'record "rig": cannot decimate by {factor!r}; give a whole number above 0.'
    )


def test_decimation_needs_more_rows_than_the_filter_has_taps() -> None:
    assert message(lambda: rich(41).decimate(2)) == (
        'record "rig": 41 rows are too few to decimate by 2; it needs more than 41.'
    )
    assert len(rich(42).decimate(2)) == 21


def test_records_must_match() -> None:
    a = record(name="a")
    assert message(lambda: as_records([a, record(name="b", input_names=("v",))])) == (
        'records "a" and "b" differ in their inputs: u and v.'
    )
    assert message(lambda: as_records([a, record(name="b", y=WIDE)])) == (
        'records "a" and "b" differ in their outputs: y and y1, y2.'
    )
    assert message(lambda: as_records([a, a, record(name="c", sampling_time=2)])) == (
        'records "a" and "c" differ in their sampling time: 1.0 and 2.0.'
    )


def test_only_records_are_records() -> None:
    expected = (
        "expected an object with u and y, got {} without u and y; "
        "wrap the arrays: Record(u=..., y=...)."
    )
    other: Any = np.zeros(3)
    assert message(lambda: as_records([other])) == expected.format("ndarray")
    assert message(lambda: as_records([record(), (1, 2)])) == expected.format(  # type: ignore[list-item]
        "tuple"
    )
    for wrong in (None, 5):
        assert message(lambda wrong=wrong: as_records(wrong)) == expected.format(  # type: ignore[misc]
            type(wrong).__name__
        )
    assert message(lambda: as_records([])) == "no record was given."


def test_whatever_has_inputs_and_outputs_counts_as_a_record() -> None:
    own = record()
    other: Any = SimpleNamespace(u=own.u, y=own.y, sampling_time=own.sampling_time, name="other")
    for several in (other, [other], [own, other]):
        found = as_records(several)
        assert all(isinstance(one, Record) for one in found)
        np.testing.assert_array_equal(found[-1].y, own.y)
        assert found[-1].name == "other"
    half: Any = SimpleNamespace(u=own.u)
    assert message(lambda: as_records(half)) == (
        "expected an object with u and y, got SimpleNamespace without y; "
        "wrap the arrays: Record(u=..., y=...)."
    )


def test_a_data_error_is_an_error_of_the_user() -> None:
    assert issubclass(DataError, OccamidError)
    assert issubclass(OccamidError, ValueError)


# --- scaling ------------------------------------------------------------------------------------


def experiments() -> tuple[Record, Record]:
    """Two experiments of different length, offset and spread."""
    return (
        Record(u=3 + 2 * RNG.normal(size=(40, 2)), y=50 + 7 * RNG.normal(size=40)),
        Record(u=-1 + RNG.normal(size=(15, 2)), y=20 + RNG.normal(size=15)),
    )


def moments(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over all rows, written out."""
    rows = [row for x in columns for row in x]
    mean = sum(rows) / len(rows)
    spread = np.sqrt(sum((row - mean) ** 2 for row in rows) / len(rows))
    return np.asarray(mean), np.asarray(spread)


def test_standardize_uses_all_estimation_records_together() -> None:
    records = experiments()
    s = fit_scaling(records, "standardize")
    for name in ("u", "y"):
        mean, spread = moments([getattr(r, name) for r in records])
        np.testing.assert_allclose(getattr(s, f"{name}_offset"), mean, rtol=1e-12)
        np.testing.assert_allclose(getattr(s, f"{name}_scale"), spread, rtol=1e-12)


def test_detrend_and_none() -> None:
    records = experiments()
    detrend, none = fit_scaling(records, "detrend"), fit_scaling(records, "none")
    np.testing.assert_allclose(detrend.y_offset, moments([r.y for r in records])[0], rtol=1e-12)
    np.testing.assert_array_equal(detrend.u_scale, [1.0, 1.0])
    np.testing.assert_array_equal(detrend.y_scale, [1.0])
    np.testing.assert_array_equal(none.u_offset, [0.0, 0.0])
    np.testing.assert_array_equal(none.apply(records[0]).u, records[0].u)
    np.testing.assert_array_equal(none.apply(records[0]).y, records[0].y)


def test_another_record_is_scaled_with_the_statistics_of_estimation() -> None:
    estimation, test = experiments()
    s = fit_scaling([estimation], "standardize")
    scaled = s.apply(test)
    np.testing.assert_allclose(
        scaled.y, (test.y - estimation.y.mean()) / estimation.y.std(), rtol=1e-12
    )
    assert abs(scaled.y.mean()) > 1.0  # its own mean was not removed
    np.testing.assert_allclose(s.apply(estimation).u.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(s.apply(estimation).u.std(axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize("method", ["standardize", "detrend", "none"])
def test_scaling_is_undone(method: Method) -> None:
    estimation, test = experiments()
    s = fit_scaling([estimation], method)
    np.testing.assert_allclose(s.undo_y(s.apply_y(test.y)), test.y, rtol=1e-12)
    batch = RNG.normal(size=(3, 4, 5, 1))  # any leading axes
    np.testing.assert_allclose(s.undo_y(batch)[1, 2], s.undo_y(batch[1, 2]), rtol=1e-15)


def test_scaling_keeps_metadata_and_the_record() -> None:
    r = rich()
    before = r.u.copy(), r.y.copy()
    scaled = fit_scaling([r], "standardize").apply(r)
    assert metadata(scaled) == metadata(r)
    np.testing.assert_array_equal(r.u, before[0])
    np.testing.assert_array_equal(r.y, before[1])


@pytest.mark.parametrize("method", ["standardize", "detrend", "none"])
def test_constant_channels_are_refused(method: Method) -> None:
    u = np.column_stack([np.arange(N), np.full(N, 2.5)])
    still = record(u=u, input_names=("valve", "pump"))
    assert message(lambda: fit_scaling([still], method)) == (
        "input pump is constant (2.5) over the estimation data; "
        "leave it out or use a record in which it moves."
    )
    assert message(lambda: fit_scaling([record(y=np.zeros(N))], method)) == (
        "output y is constant (0) over the estimation data; "
        "leave it out or use a record in which it moves."
    )


def test_a_channel_may_rest_in_one_record_if_it_moves_in_another() -> None:
    still, moving = record(u=np.zeros(N)), record()
    s = fit_scaling([still, moving], "standardize")
    np.testing.assert_allclose(s.u_offset, [np.arange(N).sum() / (2 * N)])
