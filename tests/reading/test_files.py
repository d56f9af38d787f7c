"""Files become records: each format, each way to lay out a table, time, gaps and experiments."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

from occamid.data.record import Record, as_record
from occamid.errors import DataError
from occamid.reading import files
from tests.support.real import real_data
from tests.support.tables import FRAME, RNG, N, T, U, Y, cells, csv, excel, mat73, write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path: Path | str, **options: Any) -> Record:
    (record,) = files.read(path, **options)
    return record


def check(record: Record, step: float = 0.25, name: str = "rig") -> None:
    """The record is the table above."""
    np.testing.assert_array_equal(record.u, U)
    np.testing.assert_array_equal(record.y[:, 0], Y)
    assert record.input_names == ("u1", "u2")
    assert record.output_names == ("y",)
    assert (record.sampling_time, record.name) == (step, name)


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "decimal"), [(",", "."), *((m, d) for m in (";", "\t", "|", " ") for d in (".", ","))]
)
def test_delimiters_and_decimal_signs(mark: str, decimal: str) -> None:
    check(read(write("rig.csv", csv(sep=mark, decimal=decimal))))


@pytest.mark.parametrize("ending", ["csv", "CSV", "tsv", "txt", "dat", "asc"])
def test_endings(ending: str) -> None:
    check(read(write(f"rig.{ending}", csv(sep="\t"))))


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"]
)
def test_encodings_and_names_as_they_are(encoding: str) -> None:
    frame = FRAME.rename(columns={"u1": "Düse (°C)", "y": "Höhe µm"})
    record = read(write("rig.csv", csv(frame), encoding), inputs=["Düse (°C)"], outputs=["Höhe µm"])
    assert record.input_names == ("Düse (°C)",)
    assert record.output_names == ("Höhe µm",)
    np.testing.assert_array_equal(record.y[:, 0], Y)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    check(read(write("rig.csv", csv().replace("\n", end))))


def test_comments_blank_lines_and_spaces() -> None:
    lines = csv().replace(",", " ,  ").splitlines()
    text = "\n".join(
        ["# logger 7", "% second", "", *lines[:9], "", "# paused", *lines[9:], "# end"]
    )
    check(read(write("rig.csv", text)))


def test_aligned_columns_of_a_printout() -> None:
    check(read(write("rig.txt", FRAME.to_string(index=False))))


def test_a_delimiter_at_the_end_of_each_line() -> None:
    head, *lines = csv(sep=";").splitlines()
    rows = "\n".join(f"{line};" for line in lines)
    check(read(write("rig.csv", f"{head}\n{rows}\n")))
    check(read(write("rig.csv", f"{head};\n{rows}\n")))


def test_quoted_names_and_numbers() -> None:
    frame = FRAME.rename(columns={"u1": "valve, left", "y": 'the "level"'})
    text = csv(frame, quoting=1)  # all cells
    record = read(write("rig.csv", text), inputs="valve, left", outputs='the "level"')
    assert record.input_names == ("valve, left",)
    assert record.output_names == ('the "level"',)
    np.testing.assert_array_equal(record.u[:, 0], U[:, 0])


def test_no_header() -> None:
    path = write("rig.csv", csv(header=False))
    record = read(path, inputs=[2, 3], outputs=4, time=1)
    assert record.input_names == ("column 2", "column 3")
    assert record.sampling_time == 0.25
    np.testing.assert_array_equal(record.u, U)
    assert read(path, inputs=[2], outputs=[4]).sampling_time == 1.0  # no name says time


def test_names_in_a_comment_as_numpy_writes_them() -> None:
    np.savetxt("rig.txt", FRAME.to_numpy(), header="time u1 u2 y", fmt="%.17g")
    check(read("rig.txt"))


def test_numbers_are_read_to_the_last_bit() -> None:
    frame = pd.DataFrame({"u": RNG.normal(size=200), "y": RNG.normal(size=200) * 1e-9})
    record = read(write("rig.csv", csv(frame)))
    np.testing.assert_array_equal(record.u[:, 0], frame["u"])
    np.testing.assert_array_equal(record.y[:, 0], frame["y"])


def test_empty_rows_of_a_spreadsheet_at_the_end() -> None:
    check(read(write("rig.csv", csv() + ",,,\n" * 5)))


def test_decimal_commas_that_come_late() -> None:
    u = [0.0] * 30_000 + [0.5, 1.5]
    frame = pd.DataFrame({"u": u, "y": np.arange(len(u))})
    text = csv(frame, sep=";").replace(".0", "").replace(".", ",")
    assert read(write("rig.csv", text)).u[-1, 0] == 1.5


def test_true_and_false_are_numbers() -> None:
    frame = FRAME.assign(u1=U[:, 0] > 0)
    np.testing.assert_array_equal(read(write("a.csv", csv(frame))).u[:, 0], U[:, 0] > 0)


# --- which columns ------------------------------------------------------------------------------


def test_columns_by_name_or_position() -> None:
    path = write("rig.csv", csv())
    assert read(path, inputs=["u2"]).input_names == ("u2",)
    assert read(path, inputs=[3], outputs=["2"]).input_names == ("u2",)
    assert read(path, inputs=[3], outputs=["2"]).output_names == ("u1",)
    assert read(path, inputs=["u2", "u1"]).input_names == ("u2", "u1")
    numbered = FRAME.rename(columns={"u1": "4"})
    assert read(write("b.csv", csv(numbered)), inputs="4").input_names == ("4",)  # the name wins


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [("u", "y"), ("U", "Y"), ("u_1", "y_1"), ("u [V]", "y (cm)"), ("u0", "y0"), ("u(1)", "y(1)")],
)
def test_guessed_names(inputs: str, outputs: str) -> None:
    frame = FRAME[["time", "u1", "y"]].rename(columns={"u1": inputs, "y": outputs})
    record = read(write("rig.csv", csv(frame)))
    assert (record.input_names, record.output_names) == ((inputs,), (outputs,))


# --- spreadsheets, Parquet ----------------------------------------------------------------------


def test_excel() -> None:
    check(read(excel(Data=cells(), Notes=[])))


def test_excel_names_a_sheet_and_moves_the_table() -> None:
    moved = [[], ["# from rig 2"], [], *([None, None, *row] for row in cells())]
    check(read(excel(Notes=[["by hand"]], Data=moved), variable="Data"))


def test_excel_times() -> None:
    start = datetime.datetime(2024, 3, 1, 12)
    stamps = [start + datetime.timedelta(seconds=0.25 * k) for k in range(N)]
    rows = cells()
    for row, stamp in zip(rows[1:], stamps, strict=True):
        row[0] = stamp
    check(read(excel(Data=rows)))
    for row, stamp in zip(rows[1:], stamps, strict=True):
        row[0] = stamp.time()
    check(read(excel(Data=rows)))


@pytest.mark.parametrize("ending", ["parquet", "pq"])
def test_parquet(ending: str) -> None:
    FRAME.to_parquet(f"rig.{ending}")
    check(read(f"rig.{ending}"))


def test_parquet_with_an_index_of_times() -> None:
    frame = FRAME.drop(columns="time")
    frame.index = pd.date_range("2024-03-01", periods=N, freq="250ms", tz="Europe/Berlin")
    frame.to_parquet("rig.parquet")
    check(read("rig.parquet"))


# --- MATLAB, NumPy, HDF5 ------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("version", ["4", "5"])
def test_mat_variables(version: Any, compress: bool) -> None:
    values = {"u": U, "y": Y, "Ts": 0.25}
    scipy.io.savemat("rig.mat", values, format=version, do_compression=compress and version == "5")
    check(read("rig.mat"))


def test_mat_rows_columns_and_rates() -> None:
    scipy.io.savemat("rig.mat", {"u": U.T, "y": Y[None, :], "fs": 4})
    check(read("rig.mat"))


def test_mat_struct() -> None:
    scipy.io.savemat("rig.mat", {"data": {"u": U, "y": Y, "Ts": 0.25, "note": "by hand"}})
    check(read("rig.mat"))


def test_mat_one_of_several_structs() -> None:
    other = {"u": U[::-1], "y": Y[::-1] + 1}
    scipy.io.savemat("rig.mat", {"est": {"u": U, "y": Y}, "val": other, "Ts": 0.25})
    check(read("rig.mat", variable="est"))
    record = read("rig.mat", inputs=["est.u"], outputs=["val.y"])
    assert record.input_names == ("est.u1", "est.u2")
    assert record.output_names == ("val.y",)


def test_mat_struct_array_is_several_experiments() -> None:
    data = np.zeros(2, dtype=[("u", object), ("y", object), ("Ts", object)])
    data[0] = U, Y, 0.25
    data[1] = U[:20], Y[:20], 0.25
    scipy.io.savemat("rig.mat", {"data": data})
    first, second = files.read("rig.mat")
    check(first, name="rig #1")
    assert (second.name, len(second)) == ("rig #2", 20)


def test_mat_variables_of_different_length_and_by_matrix() -> None:
    scipy.io.savemat("rig.mat", {"ue": U, "ye": Y, "uv": U[:9], "yv": Y[:9]})
    record = read("rig.mat", inputs=["ue"], outputs=["ye"], sampling_time=0.25)
    assert record.input_names == ("ue1", "ue2")
    np.testing.assert_array_equal(record.u, U)


def test_mat_73() -> None:
    check(read(mat73("rig.mat", u=U, y=Y, Ts=0.25)))
    check(read(mat73("rig.mat", data__u=U, data__y=Y, data__Ts=0.25)))


def test_npz() -> None:
    np.savez("rig.npz", u=U, y=Y, sampling_time=0.25)
    check(read("rig.npz"))
    np.savez_compressed("rig.npz", u=U.astype(">f8"), y=Y, t=T)
    check(read("rig.npz"))


def test_npz_times() -> None:
    stamps = np.datetime64("2024-03-01T00:00:00.000") + (1000 * T).astype("timedelta64[ms]")
    np.savez("rig.npz", u=U, y=Y, time=stamps)
    check(read("rig.npz"))
    np.savez("rig.npz", u=U, y=Y, time=stamps - stamps[0])
    check(read("rig.npz"))


def test_hdf5() -> None:
    with h5py.File("rig.h5", "w") as file:
        file.attrs["fs"] = 4.0
        for name, values in {"u0": U[:, 0], "u1": U[:, 1], "y0": Y}.items():
            file[name] = values
    record = read("rig.h5")
    np.testing.assert_array_equal(record.u, U)
    assert (record.input_names, record.output_names) == (("u0", "u1"), ("y0",))
    assert record.sampling_time == 0.25


def test_hdf5_groups_and_tables() -> None:
    table = np.zeros(N, dtype=[("u", "f8"), ("y", "f4")])
    table["u"], table["y"] = U[:, 0], Y
    with h5py.File("rig.hdf5", "w") as file:
        file["train/u1"], file["train/u2"], file["train/y"] = U[:, 0], U[:, 1], Y
        file["train/time"] = T
        file["log"] = table
    check(read("rig.hdf5", variable="train"))
    record = read("rig.hdf5", inputs=["log.u"], outputs=["log.y"], sampling_time=1)
    np.testing.assert_array_equal(record.y[:, 0], Y.astype("f4"))


# --- time ---------------------------------------------------------------------------------------


def stamped(stamps: Any, name: str = "time") -> Path:
    return write("rig.csv", csv(FRAME.drop(columns="time").assign(**{name: stamps}), sep=";"))


START = pd.Timestamp("2024-12-24 23:59:55")


@pytest.mark.parametrize(
    "shape",
    [
        "%Y-%m-%dT%H:%M:%S.%f",
        "%Y-%m-%d %H:%M:%S,%f",
        "%Y-%m-%dT%H:%M:%S.%fZ",
        "%Y-%m-%d %H:%M:%S.%f+01:00",
        "%Y/%m/%d %H:%M:%S.%f",
        "%d.%m.%Y %H:%M:%S.%f",
        "%d.%m.%Y %H:%M:%S,%f",
        "%d/%m/%Y %H:%M:%S.%f",
        "%m/%d/%Y %H:%M:%S.%f",
        "%Y%m%dT%H%M%S.%f",
        "%m/%d/%Y %I:%M:%S.%f %p",
        "%Y-%m-%d %I:%M:%S.%f%p",
    ],
)
def test_timestamps(shape: str) -> None:
    stamps = (START + pd.to_timedelta(T, unit="s")).strftime(shape)
    check(read(stamped(stamps)))


def test_times_of_day_and_dates_beside_them() -> None:
    stamps = pd.Timestamp("2024-12-24 11:59:55") + pd.to_timedelta(T, unit="s")
    check(read(stamped(stamps.strftime("%H:%M:%S.%f"))))
    check(read(stamped(stamps.strftime("%I:%M:%S.%f %p"))))  # noon comes after 11 AM
    midnight = pd.Timestamp("2024-12-24 00:00:00") + pd.to_timedelta(T, unit="s")
    check(read(stamped(midnight.strftime("%I:%M:%S.%f a.m."))))
    frame = FRAME.assign(time=stamps.strftime("%H:%M:%S,%f"))
    frame.insert(0, "Date", stamps.strftime("%d.%m.%Y"))
    check(read(write("rig.csv", csv(frame, sep=";"))))


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("time", 1),
        ("t", 1),
        ("Time (s)", 1),
        ("t [ms]", 1e3),
        ("time_us", 1e6),
        ("Zeit/min", 1 / 60),
    ],
)
def test_names_and_units_of_time(name: str, factor: float) -> None:
    check(read(stamped(T * factor, name)))


@pytest.mark.parametrize("rate", [3, 30, 44.1, 60, 100, 120, 300, 400])
def test_times_rounded_to_milliseconds(rate: float) -> None:
    t = np.arange(5000) / rate
    frame = pd.DataFrame({"t": np.round(t, 3), "u": np.sin(t), "y": np.cos(t)})
    found = read(write("rig.csv", csv(frame))).sampling_time
    assert found == pytest.approx(1 / rate, abs=1e-3 / 4999)
    stamps = (START + pd.to_timedelta(t, unit="s")).strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3]
    found = read(write("rig.csv", csv(frame.assign(t=stamps)))).sampling_time  # cut, not rounded
    assert found == pytest.approx(1 / rate, abs=1e-3 / 4999)


@pytest.mark.parametrize(
    ("start", "step"), [(s, d) for s in (0.0, 1.7e9) for d in (0.1, 1 / 3, 86400.0)] + [(0.0, 1e-6)]
)
def test_times_in_double_precision(start: float, step: float) -> None:
    t = start + step * np.arange(100)
    np.savez("rig.npz", t=t, u=np.sin(t), y=np.cos(3 * t))
    assert read("rig.npz").sampling_time == pytest.approx(step, rel=1e-7)


def test_a_small_jitter_is_even() -> None:
    t = 0.1 * (np.arange(500) + 4e-4 * RNG.uniform(-1, 1, 500))
    np.savez("rig.npz", t=t, u=np.sin(t), y=np.cos(t))
    assert read("rig.npz").sampling_time == pytest.approx(0.1, rel=1e-5)


def uneven() -> Path:
    t = np.cumsum(RNG.choice([0.9, 1.0, 1.0, 1.0, 1.2], 300))
    frame = pd.DataFrame({"t": t, "u": 2 * t, "y": np.sin(t / 5)})
    return write("rig.csv", csv(frame))


def test_resampling_against_the_line_between_samples() -> None:
    path = uneven()
    raw = pd.read_csv(path)
    for step, options in ((1.0, True), (0.5, 0.5), (2.5, 2.5)):
        record = read(path, resample=options)
        grid = raw["t"][0] + step * np.arange(len(record))
        assert record.sampling_time == pytest.approx(step)
        assert raw["t"].iloc[-1] - step < grid[-1] <= raw["t"].iloc[-1] + 1e-9
        np.testing.assert_allclose(record.u[:, 0], 2 * grid, rtol=1e-12)  # a line stays a line
        np.testing.assert_allclose(record.y[:, 0], np.interp(grid, raw["t"], raw["y"]), rtol=1e-12)


def test_resampling_an_even_record_changes_nothing() -> None:
    path = write("rig.csv", csv())
    record = read(path, resample=True)
    np.testing.assert_allclose(record.u, U, rtol=0, atol=1e-12)
    check(read(path, resample=False))


def test_a_sampling_time_replaces_the_time_column() -> None:
    assert read(uneven(), sampling_time=2).sampling_time == 2.0


# --- gaps, experiments, several files -----------------------------------------------------------


def test_gaps_split_at_empty_cells() -> None:
    frame = FRAME.copy()
    frame.loc[10, "u1"] = np.nan
    frame.loc[25:27, "y"] = np.nan
    frame.loc[29, "u2"] = np.inf
    records = files.read(write("rig.csv", csv(frame)), gaps="split")
    assert [(r.name, len(r)) for r in records] == [("rig #1", 10), ("rig #2", 14), ("rig #3", 10)]
    np.testing.assert_array_equal(records[1].u, U[11:25])
    np.testing.assert_array_equal(records[2].y[:, 0], Y[30:])  # row 28 alone is dropped
    assert {r.sampling_time for r in records} == {0.25}


def test_gaps_split_where_rows_are_missing() -> None:
    frame = FRAME.drop(index=[12, 13, 30])
    path = write("rig.csv", csv(frame))
    records = files.read(path, gaps="split")
    assert [len(r) for r in records] == [12, 16, 9]
    np.testing.assert_array_equal(records[1].u, U[14:30])
    bridged = read(path, resample=True)
    assert len(bridged) == N
    np.testing.assert_allclose(bridged.u[12], U[11] + (U[14] - U[11]) / 3)
    assert [len(r) for r in files.read(path, gaps="split", resample=True)] == [12, 16, 9]


def test_a_missing_time_leaves_a_gap() -> None:
    frame = FRAME.copy()
    frame.loc[20, "time"] = np.nan
    records = files.read(write("rig.csv", csv(frame)), gaps="split")
    assert [len(r) for r in records] == [20, 19]


def test_every_second_row_missing_does_not_double_the_step() -> None:
    frame = FRAME.copy()
    frame.loc[1:35:2, "y"] = np.nan
    (record,) = files.read(write("rig.csv", csv(frame)), gaps="split")
    assert (len(record), record.sampling_time) == (4, 0.25)


def test_an_experiment_column() -> None:
    frame = FRAME.assign(run=np.repeat(["cold", "warm"], N // 2))
    frame["time"] = np.tile(T[: N // 2], 2)
    cold, warm = files.read(write("rig.csv", csv(frame)), experiment="run")
    assert (cold.name, warm.name) == ("rig cold", "rig warm")
    np.testing.assert_array_equal(warm.u, U[N // 2 :])
    numbered = frame.assign(run=np.repeat([1.0, 2.0], N // 2)).rename(columns={"run": "Experiment"})
    assert [r.name for r in files.read(write("rig.csv", csv(numbered)))] == ["rig 1", "rig 2"]


def test_several_files() -> None:
    Path("other").mkdir()
    paths = [write("a.csv", csv()), write("other/a.csv", csv()), excel("b.xlsx", Data=cells())]
    records = files.read(paths)
    assert [r.name for r in records] == ["a", "a #2", "b"]
    for record in records:
        check(record, name=record.name)


def test_files_may_differ_in_their_sampling_time_by_rounding() -> None:
    frame = pd.DataFrame({"t": np.round(np.arange(N) / 60, 3), "u": U[:, 0], "y": Y})
    paths = [write("a.csv", csv(frame)), write("b.csv", csv(frame[:31]))]
    first, second = files.read(paths)
    assert first.sampling_time == second.sampling_time


def test_a_channel_may_rest_in_one_of_the_files() -> None:
    paths = [write("a.csv", csv()), write("b.csv", csv(FRAME.assign(u1=1.0)))]
    assert len(files.read(paths)) == 2


def test_real_records() -> None:
    from occamid_benchmarks import registry

    tanks = real_data("cascaded-tanks").estimation[0]
    record = read(registry.path("cascaded-tanks"), inputs=["uEst"], outputs=["yEst"])
    np.testing.assert_array_equal(record.u, tanks.u)
    np.testing.assert_array_equal(record.y, tanks.y)
    assert record.sampling_time == 4.0


# --- size ---------------------------------------------------------------------------------------


def test_two_hundred_thousand_rows_in_a_second_or_two() -> None:
    import time

    n = 200_000
    frame = pd.DataFrame(RNG.normal(size=(n, 3)), columns=["u1", "u2", "y"])
    path = write("rig.csv", csv(frame))
    start = time.perf_counter()
    record = read(path)
    assert len(record) == n
    assert time.perf_counter() - start < 15  # others may be at work


# --- objects ------------------------------------------------------------------------------------


def test_data_of_nonlinear_benchmarks() -> None:
    data = SimpleNamespace(
        u=U, y=Y, sampling_time=0.25, name="rig", state_initialization_window_length=50
    )
    check(as_record(data))
    bare = as_record(SimpleNamespace(u=U, y=Y, sampling_time=None, name=None))
    assert (bare.sampling_time, bare.name) == (1.0, "record")
    assert as_record(bare) is bare


@pytest.mark.parametrize("make", [str, Path, lambda name: [name], lambda name: (Path(name),)])
def test_paths(make: Callable[[str], Any]) -> None:
    write("rig.csv", csv())
    check(read(make("rig.csv")))


def test_short_gaps_are_filled_and_longer_ones_split(tmp_path: Path) -> None:
    t = np.arange(60)
    t[40:] += 100  # a gap in time
    u, y = np.sin(0.3 * t), 2.0 * t
    table: dict[str, list[Any]] = {"t": t.tolist(), "u": u.tolist(), "y": y.tolist()}
    table["y"][5] = table["y"][10] = table["y"][11] = None  # one, and two in a row
    table["u"][20:24] = [None] * 4  # too many
    table["y"][39] = None  # beside the gap in time: nothing to lean on
    pd.DataFrame(table).to_csv(tmp_path / "log.csv", index=False)
    told: dict[str, Any] = {"inputs": ["u"], "outputs": ["y"], "time": "t"}
    found = files.examine(tmp_path / "log.csv", **told, gaps="fill")
    assert [len(r) for r in found.records] == [20, 15, 20]
    np.testing.assert_allclose(found.records[0].y[:, 0], y[:20])
    said = [f.what for f in found.findings]
    assert "3 empty cells interpolated" in said
    assert any(what.startswith("5 cells without a value") for what in said)
    with pytest.raises(DataError, match='gaps="fill"'):
        files.read(tmp_path / "log.csv", **told)
