"""What people's files have and what does no harm is read, and told; the rest is told at once."""

from __future__ import annotations

import re
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from occamid.data.record import Record
from occamid.errors import DataError, FileError
from occamid.reading import arrays
from occamid.reading.files import examine, read
from tests.support.tables import FRAME, RNG, N, T, cells, csv, excel, write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kinds(path: Path, **options: object) -> list[str]:
    return [f.kind for f in examine(path, **options).findings]  # type: ignore[arg-type]


def with_units() -> str:
    head, rest = csv().split("\n", 1)
    return f"{head}\ns,V,[bar],cm\n{rest}"


@pytest.mark.parametrize("kind", ["text", "Excel"])
def test_a_row_of_units_is_kept_for_the_axes(kind: str) -> None:
    rows = cells()
    path = (
        write("rig.csv", with_units())
        if kind == "text"
        else excel(Data=[rows[0], ["s", "V", "[bar]", "cm"], *rows[1:]])
    )
    (record,), findings = examine(path)
    assert len(record) == N
    assert (record.input_units, record.output_units) == (("V", "bar"), ("cm",))
    assert [f.kind for f in findings] == ["units"]
    assert findings[0].severity == "note"


def test_units_of_time_count() -> None:
    frame = FRAME.assign(time=1000 * T)
    head, rest = csv(frame).split("\n", 1)
    (record,) = read(write("rig.csv", f"{head}\nms,V,V,cm\n{rest}"))
    assert record.sampling_time == 0.25


def test_rows_in_messages_are_those_of_the_file_with_units_too() -> None:
    text = with_units().splitlines()
    text[7] = "1.25,oops,1,2"
    with pytest.raises(DataError, match="line 8, column u1: 'oops'"):
        read(write("rig.csv", "\n".join(text)))


def test_a_quoted_heading_may_go_on_in_the_next_line() -> None:
    text = csv().replace("time,u1,u2,y", 'time,"u1","u2\n[bar]","y\r\n[cm]"')
    (record,) = read(write("rig.csv", text))
    assert (record.input_names, record.output_names) == (("u1", "u2 [bar]"), ("y [cm]",))
    assert len(record) == N


@pytest.mark.parametrize("step", [1.0, 0.25])
def test_jitter_is_taken_as_even_with_a_note(step: float) -> None:
    t = np.round(step * np.arange(400) + 0.01 * step * RNG.uniform(-1, 1, 400), 6)
    frame = pd.DataFrame({"time": t, "u": RNG.normal(size=400), "y": RNG.normal(size=400)})
    (record,), findings = examine(write("rig.csv", csv(frame)))
    assert record.sampling_time == step
    assert [(f.kind, f.severity) for f in findings] == [("jitter", "note")]


def test_large_jitter_is_refused() -> None:
    t = np.arange(N) + 0.2 * RNG.uniform(-1, 1, N)
    with pytest.raises(DataError, match="uneven"):
        read(write("rig.csv", csv(FRAME.assign(time=t))))


def test_all_problems_are_told_at_once() -> None:
    frame = FRAME.astype(object).drop(index=[20, 21])
    frame.loc[3, "u1"], frame.loc[5, "u2"], frame.loc[9, "y"] = "open", "closed", None
    with pytest.raises(DataError) as caught:
        read(write("rig.csv", csv(frame)))
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 problems:"
    for part in ("column u1: 'open'", "column u2: 'closed'", "column y has no value", "2 rows mis"):
        assert sum(part in line for line in lines) == 1
    assert all(re.match(r"  - rig\.csv: ", line) for line in lines[1:])


def test_problems_of_several_files_are_told_at_once() -> None:
    write("a.csv", csv(FRAME.assign(u1=1.0).astype({"u1": object}).replace({"u1": {1.0: "x"}})))
    write("b.csv", csv(FRAME.drop(index=4)))
    with pytest.raises(DataError) as caught:
        read(["a.csv", "b.csv"])
    said = str(caught.value)
    assert "a.csv" in said
    assert "b.csv: 1 row missing" in said


def clock(change: float) -> Path:
    t = np.arange(200.0)
    t[120:] += change
    u, y = RNG.normal(size=(2, 200))
    return write("rig.csv", csv(pd.DataFrame({"time": t, "u": u, "y": y})))


@pytest.mark.parametrize(("change", "kind"), [(-3600, "clock"), (3600, "clock"), (700, "gap")])
def test_a_clock_change_cuts_the_record_and_is_told(change: float, kind: str) -> None:
    records, findings = examine(clock(change), gaps="split")
    assert [len(r) for r in records] == [120, 80]
    assert [f.kind for f in findings] == [kind]
    assert findings[0].severity == "advice"
    assert records[1].start == 120 + change
    assert "line 122" in findings[0].where


def test_repeated_rows_are_used_once() -> None:
    frame = pd.concat([FRAME[:10], FRAME[9:]])
    (record,), findings = examine(write("rig.csv", csv(frame)), gaps="split")
    assert len(record) == N
    assert [f.kind for f in findings] == ["repeated"]


def test_empty_cells_are_told() -> None:
    frame = FRAME.copy()
    frame.loc[[5, 30], "u2"] = np.nan
    records, findings = examine(write("rig.csv", csv(frame)), gaps="split")
    assert len(records) == 3
    assert [(f.kind, f.channel) for f in findings] == [("blank", "u2")]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("gaps", ["error", "split"])
def test_numbers_beyond_all_measure_are_no_measurements(gaps: str) -> None:
    frame = FRAME.copy()
    frame.loc[7, "y"] = 1e308
    path = write("rig.csv", csv(frame))
    if gaps == "error":
        with pytest.raises(DataError, match=r"column y is 1e\+308 at line 9"):
            read(path)
    else:
        assert len(read(path, gaps="split")) == 2
    with pytest.raises(DataError, match=r"output y is 1e\+308 at row 7"):
        Record(u=FRAME["u1"], y=frame["y"])


def test_hidden_characters_in_names_are_spelled_out() -> None:
    names = ["time", "u\u202e1", "u\u200f2", "y"]
    frame = FRAME.set_axis(names, axis=1)
    (record,) = read(write("rig.csv", csv(frame)), inputs=["u\u202e1", 3], outputs=["y"])
    assert record.input_names == ("u\\u202e1", "u\\u200f2")


def test_the_mark_against_formulas_is_taken_off() -> None:
    frame = FRAME.set_axis(["time", "'=HYPERLINK(1)", "u2", "y"], axis=1)
    (record,) = read(write("rig.csv", csv(frame)), inputs=["=HYPERLINK(1)"])
    assert record.input_names == ("=HYPERLINK(1)",)


def test_five_thousand_columns_are_read() -> None:
    names = [f"temperature of sensor {k}" for k in range(5000)]
    frame = pd.DataFrame(RNG.normal(size=(12, 5000)).round(4), columns=names)
    path = write("wide.csv", csv(frame.assign(u=RNG.normal(size=12), y=RNG.normal(size=12))))
    began = time.process_time()
    (record,) = read(path, inputs=["u", names[17]], outputs=["y"])
    assert time.process_time() - began < 5
    np.testing.assert_array_equal(record.u[:, 1], frame[names[17]])


def bomb(row: bytes, count: int) -> Path:
    """A workbook with one row again and again, written without holding it."""
    excel("small.xlsx", Data=cells())
    with (
        zipfile.ZipFile("small.xlsx") as small,
        zipfile.ZipFile("bomb.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as large,
    ):
        for part in small.namelist():
            if not part.startswith("xl/worksheets/"):
                large.writestr(part, small.read(part))
        with large.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as sheet:
            sheet.write(b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/')
            sheet.write(b'2006/main"><sheetData>')
            for _ in range(count // 10_000):
                sheet.write(10_000 * row)
            sheet.write(b"</sheetData></worksheet>")
    return Path("bomb.xlsx")


@pytest.mark.parametrize(
    ("row", "count"),
    [
        (b'<row><c t="n"><v>1</v></c><c t="n"><v>1</v></c></row>', 12_000_000),
        (b"<row/>", 3_000_000),
        (b'<row r="900000000"><c r="A900000000"><v>1</v></c></row>', 10_000),
        (b'<row><c r="XFD1"><v>1</v></c></row>', 20_000),
    ],
    ids=["rows with cells", "empty rows", "far down", "far right"],
)
def test_a_workbook_that_unpacks_to_too_much_is_refused(row: bytes, count: int) -> None:
    path = bomb(row, count)
    began = time.process_time()
    with pytest.raises(FileError, match="unpacks to more than can be read"):
        read(path, variable="Data")
    assert time.process_time() - began < 5


def test_other_archives_that_unpack_to_too_much_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrays, "MOST_BYTES", 2**20)
    np.savez_compressed("bomb.npz", u=np.zeros(2**18), y=np.zeros(2**18))
    with pytest.raises(FileError, match="unpacks to more"):
        read("bomb.npz")
