"""What is wrong with a file or an option is said in one line: where, what, and the remedy."""

from __future__ import annotations

import gzip
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io

from occamid.data.record import as_record
from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.reading import files
from tests.support.tables import FRAME, N, T, U, Y, cells, csv, excel, mat73, write

Make = Callable[[], Any]  # writes the file, returns the paths


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(kind: type[OccamidError], paths: Any, **options: Any) -> str:
    """The message; it is of the kind exactly, and on one line."""
    with pytest.raises(OccamidError) as caught:
        files.read(paths, **options)
    assert type(caught.value) is kind
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert said.isprintable()
    return said


def table(**changes: Any) -> str:
    """The good table with other columns; ``None`` leaves one out."""
    frame = FRAME.assign(**{k: v for k, v in changes.items() if v is not None})
    return csv(frame.drop(columns=[k for k, v in changes.items() if v is None]))


def put(column: str, *places: tuple[int, Any]) -> str:
    """The good table with some cells replaced."""
    frame = FRAME.astype(object)
    for row, value in places:
        frame.loc[row, column] = value
    return csv(frame)


def lines(text: str, **changed: str) -> str:
    """A text with lines replaced (``l3`` is line 3) or added before (``before3``)."""
    rows = text.splitlines()
    for key, value in changed.items():
        at = int(key.lstrip("before" if key.startswith("b") else "l")) - 1
        rows[at : at if key.startswith("b") else at + 1] = [value]
    return "\n".join(rows) + "\n"


def raw(name: str, content: bytes) -> Path:
    Path(name).write_bytes(content)
    return Path(name)


def cut(path: Path, share: float = 0.6) -> Path:
    """The file as a broken transfer leaves it."""
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    return path


def mat(**values: Any) -> Path:
    scipy.io.savemat("rig.mat", values)
    return Path("rig.mat")


def npz(**values: Any) -> Path:
    np.savez("rig.npz", **values)
    return Path("rig.npz")


def hdf5(**values: Any) -> Path:
    with h5py.File("rig.h5", "w") as file:
        for name, value in values.items():
            file[name] = value
    return Path("rig.h5")


def parquet() -> Path:
    FRAME.to_parquet("rig.parquet")
    return Path("rig.parquet")


def opaque(name: bytes = b"z1", kind: bytes = b"iddata") -> Path:
    """An object as MATLAB saves it with -v7: a variable that refers to a part nobody documents."""

    def element(code: int, data: bytes) -> bytes:
        return struct.pack("<II", code, len(data)) + data + b"\0" * (-len(data) % 8)

    flags = element(6, struct.pack("<II", 17, 0))
    inner = element(
        14,
        element(6, struct.pack("<II", 13, 0))
        + element(5, struct.pack("<ii", 6, 1))
        + element(1, b"")
        + element(6, struct.pack("<6I", 0xDD000000, 2, 1, 1, 1, 1)),
    )
    body = flags + b"".join(element(1, part) for part in (name, b"MCOS", kind)) + inner
    head = b"MATLAB 5.0 MAT-file".ljust(116) + b"\0" * 8 + struct.pack("<H", 0x100) + b"IM"
    return raw("rig.mat", head + element(14, body))


def wrong_type() -> Path:
    """A number for the type of the values that does not exist; SciPy alone ends the process."""
    path = mat(u=U, y=Y)
    tag = struct.pack("<II", 9, U.nbytes)
    assert path.read_bytes().count(tag) == 1
    return raw("rig.mat", path.read_bytes().replace(tag, struct.pack("<II", 117, U.nbytes)))


def opaque73() -> Path:
    mat73("rig.mat", z1=[3707764736.0, 2, 1, 1, 1, 1])
    with h5py.File("rig.mat", "a") as file:
        file["z1"].attrs["MATLAB_class"] = np.bytes_("iddata")
        file["z1"].attrs["MATLAB_object_decode"] = 3
        file["#refs#/a"] = np.arange(20.0)
    return Path("rig.mat")


STAMPS = pd.Timestamp("2024-03-04 10:00:00") + pd.to_timedelta(T, unit="s")
COLUMNS = "time (1), u1 (2), u2 (3), y (4)"
DAMAGED = "{}: the file is damaged, cut short or no {} file; save or copy it again."
SPLIT = (
    'fill it, or read the pieces between gaps with `gaps="split"`, or have short gaps filled with '
    '`gaps="fill"`.'
)
IDDATA = (
    "rig.mat: z1 is a MATLAB object (iddata) that only MATLAB can read; save it there as plain "
    "variables: u = z1.u; y = z1.y; Ts = z1.Ts; save('rig.mat','u','y','Ts')"
)
KNOWN = (
    ".csv, .tsv, .txt, .dat, .asc, .prn, .log, .xlsx, .xlsm, .parquet, .pq, .h5, .hdf5, .hdf, "
    ".mat, .npz"
)

# --- files that cannot be read ------------------------------------------------------------------


def folder() -> str:
    Path("runs.csv").mkdir()
    return "runs.csv"


def pipe() -> str:
    os.mkfifo("rig.csv")
    return "rig.csv"


FILES: dict[str, tuple[Make, dict[str, Any], type[OccamidError], str]] = {
    "not there": (
        lambda: write("tank_1.csv", table()) and "tank1.csv",
        {},
        FileError,
        "there is no file tank1.csv. Did you mean tank_1.csv?",
    ),
    "nothing like it": (lambda: "x/rig.csv", {}, FileError, "there is no file x/rig.csv."),
    "a folder": (
        folder,
        {},
        FileError,
        "runs.csv is a folder; name the files in it, such as runs.csv/*.csv.",
    ),
    "a pipe": (pipe, {}, FileError, "rig.csv is not an ordinary file."),
    "a path with a zero": (
        lambda: "rig\0.csv",
        {},
        FileError,
        "there is no file rig\\x00.csv.",
    ),
    "empty": (
        lambda: raw("rig.csv", b""),
        {},
        DataError,
        "rig.csv: the file is empty; export it again.",
    ),
    "only blank lines": (
        lambda: write("rig.csv", "\n \n"),
        {},
        DataError,
        "rig.csv: the file holds no data.",
    ),
    "only comments": (
        lambda: write("rig.csv", "# u,y\n# 1,2\n"),
        {},
        DataError,
        "rig.csv: the file holds no data.",
    ),
    "only names": (
        lambda: write("rig.csv", "time,u,y\n"),
        {},
        DataError,
        "rig.csv: there is no row of data below the names in line 1; export it again.",
    ),
    "binary": (
        lambda: raw("rig.csv", bytes(range(256)) * 9),
        {},
        FileError,
        "rig.csv: the file holds binary data, not a table of text; export it as CSV.",
    ),
    "half a character": (
        lambda: raw("rig.csv", table().encode("utf-16")[:-1]),
        {},
        FileError,
        "rig.csv: the text is damaged or cut short (utf-16); save it again as UTF-8.",
    ),
    "a web page": (
        lambda: write("rig.csv", "<!DOCTYPE html>\n<html>404</html>"),
        {},
        FileError,
        "rig.csv: the file is a web page, not data; download the data itself again.",
    ),
    "one endless line": (
        lambda: write("rig.csv", "1," * 2_500_000),
        {},
        FileError,
        "rig.csv: the first line is longer than 4194304 characters.",
    ),
    "unknown ending": (
        lambda: write("rig.docx", "x"),
        {},
        FileError,
        f"rig.docx: files ending in .docx are not known; give one of {KNOWN}.",
    ),
    "no ending": (
        lambda: write("rig", "x"),
        {},
        FileError,
        f"rig: files ending in nothing are not known; give one of {KNOWN}.",
    ),
    "old Excel": (
        lambda: raw("rig.xls", b"\xd0\xcf\x11\xe0" * 99),
        {},
        FileError,
        "rig.xls: the old .xls format cannot be read; save the workbook as .xlsx or CSV.",
    ),
    "a password": (
        lambda: raw("rig.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 99),
        {},
        FileError,
        "rig.xlsx: the workbook is protected by a password or in the old .xls format; save it "
        "without a password as .xlsx or CSV.",
    ),
    "Excel called CSV": (
        lambda: excel(Data=cells()).rename("rig.csv"),
        {},
        FileError,
        "rig.csv: the file is Excel, not .csv; rename it to rig.xlsx.",
    ),
    "Parquet called CSV": (
        lambda: parquet().rename("rig.csv"),
        {},
        FileError,
        "rig.csv: the file is Parquet, not .csv; rename it to rig.parquet.",
    ),
    "MATLAB called NumPy": (
        lambda: mat(u=U, y=Y).rename("rig.npz"),
        {},
        FileError,
        "rig.npz: the file is MATLAB, not .npz; rename it to rig.mat.",
    ),
    "HDF5 called Parquet": (
        lambda: hdf5(u=U, y=Y).rename("rig.parquet"),
        {},
        FileError,
        "rig.parquet: the file is HDF5, not .parquet; rename it to rig.h5.",
    ),
    "NumPy called CSV": (
        lambda: npz(u=U, y=Y).rename("rig.csv"),
        {},
        FileError,
        "rig.csv: the file is a compressed archive (ZIP); unpack it first.",
    ),
    "compressed": (
        lambda: raw("rig.csv", gzip.compress(table().encode())),
        {},
        FileError,
        "rig.csv: the file is a compressed archive (gzip); unpack it first.",
    ),
    "a document": (
        lambda: raw("rig.txt", b"%PDF-1.7 ..."),
        {},
        FileError,
        "rig.txt: the file is a PDF document; export the data as CSV.",
    ),
    "CSV called Excel": (
        lambda: write("rig.xlsx", table()), {}, FileError, DAMAGED.format("rig.xlsx", "Excel")
    ),
    "CSV called MATLAB": (
        lambda: write("rig.mat", table()), {}, FileError, DAMAGED.format("rig.mat", "MATLAB")
    ),
    "NumPy called Excel": (
        lambda: npz(u=U, y=Y).rename("rig.xlsx"),
        {},
        FileError,
        DAMAGED.format("rig.xlsx", "Excel"),
    ),
    "cut Excel": (
        lambda: cut(excel(Data=cells())), {}, FileError, DAMAGED.format("rig.xlsx", "Excel")
    ),
    "cut Parquet": (
        lambda: cut(parquet()), {}, FileError, DAMAGED.format("rig.parquet", "Parquet")
    ),
    "cut MATLAB": (lambda: cut(mat(u=U, y=Y)), {}, FileError, DAMAGED.format("rig.mat", "MATLAB")),
    "cut MATLAB 7.3": (
        lambda: cut(mat73("rig.mat", u=U, y=Y)), {}, FileError, DAMAGED.format("rig.mat", "MATLAB")
    ),
    "cut NumPy": (lambda: cut(npz(u=U, y=Y)), {}, FileError, DAMAGED.format("rig.npz", "NumPy")),
    "cut HDF5": (lambda: cut(hdf5(u=U, y=Y)), {}, FileError, DAMAGED.format("rig.h5", "HDF5")),
    "MATLAB with an impossible type": (
        wrong_type,
        {},
        FileError,
        DAMAGED.format("rig.mat", "MATLAB"),
    ),
    "HDF5 text": (
        lambda: hdf5(u=["on", "off"] * 20, y=Y),
        {},
        DataError,
        "rig.h5: u holds text or lists of varying length.",
    ),
    "an iddata object": (opaque, {}, FileError, IDDATA),
    "an iddata object by name": (opaque, {"variable": "z1"}, FileError, IDDATA),
    "an iddata object in 7.3": (opaque73, {}, FileError, IDDATA),
    "pickled objects": (
        lambda: npz(u=np.array([{"a": 1}] * N), y=Y),
        {},
        DataError,
        "rig.npz: u holds Python objects, which are not read because they could run code; save it "
        "as numbers.",
    ),
    "nothing but pickled objects": (
        lambda: npz(u=np.array([None] * N)),
        {},
        FileError,
        "rig.npz: u holds Python objects, which are not read because they could run code; save it "
        "as numbers.",
    ),
    "no arrays": (
        lambda: mat(Ts=0.1), {}, DataError, "rig.mat: the file holds no arrays of numbers."
    ),
    "an empty workbook": (
        lambda: excel(Data=[]), {}, DataError, "rig.xlsx: the workbook holds no data."
    ),
}  # fmt: skip


# --- tables that make no sense ------------------------------------------------------------------

TABLES: dict[str, tuple[Make, dict[str, Any], type[OccamidError], str]] = {
    "a name twice": (
        lambda: write("rig.csv", table().replace("u2", "u1", 1)),
        {},
        DataError,
        "rig.csv: line 1 gives the name u1 to columns 2 and 3; give each column a name of its own.",
    ),
    "a title above": (
        lambda: write("rig.csv", "Logger 7\n" + table()),
        {},
        DataError,
        "rig.csv: line 1 has 1 cell, but the rows from line 2 on have 4; lines above the table "
        "must be removed or start with #, and a decimal comma needs another mark between the "
        "columns.",
    ),
    "a title above in Excel": (
        lambda: excel(Data=[["Logger 7"], *cells()]),
        {},
        DataError,
        "rig.xlsx: row 1 names 1 of 4 columns; remove the rows above the table.",
    ),
    "decimal commas between commas": (
        lambda: write("rig.csv", "u,y\n" + "0,5,1,5\n" * 20),
        {},
        DataError,
        "rig.csv: line 1 has 2 cells, but the rows from line 2 on have 4; lines above the table "
        "must be removed or start with #, and a decimal comma needs another mark between the "
        "columns.",
    ),
    "a long row": (
        lambda: write("rig.csv", lines(table(), before7="1,2,3,4,5")),
        {},
        DataError,
        "rig.csv: line 7 has 5 cells, but the table has 4 columns.",
    ),
    "a long first row": (
        lambda: write("rig.csv", lines(table(), before2="1,2,3,4,5")),
        {},
        DataError,
        "rig.csv: line 2 has 5 cells, but the table has 4 columns.",
    ),
    "an open quotation mark": (
        lambda: write("rig.csv", lines(table(), before7='1,"2,3,4')),
        {},
        DataError,
        "rig.csv: line 7 opens a quotation mark that is never closed.",
    ),
    "text in a number": (
        lambda: write("rig.csv", "# a comment\n" + put("u2", (5, "stuck"))),
        {},
        DataError,
        "rig.csv: line 8, column u2: 'stuck' is not a number; correct it, or leave the cell empty "
        'and use `gaps="split"`.',
    ),
    "text in Excel": (
        lambda: excel(Data=cells(FRAME.astype(object).replace({"y": {Y[3]: "#DIV/0!"}}))),
        {},
        DataError,
        "rig.xlsx: row 5, column y: '#DIV/0!' is not a number; correct it, or leave the cell empty "
        'and use `gaps="split"`.',
    ),
    "a point among commas": (
        lambda: write("rig.csv", lines(csv(sep=";", decimal=","), l9="1,75;1.5;0,5;0,5")),
        {},
        DataError,
        "rig.csv: line 9, column u1: '1.5' is not a number with a decimal comma; correct it, or "
        'leave the cell empty and use `gaps="split"`.',
    ),
    "an empty cell": (
        lambda: write("rig.csv", put("u1", (4, None), (9, None))),
        {},
        DataError,
        f"rig.csv: column u1 has no value at line 6 (2 such cells in all); {SPLIT}",
    ),
    "an empty cell in Excel": (
        lambda: excel(Data=[*cells()[:8], [None] * 4, *cells()[9:]]),
        {},
        DataError,
        f"rig.xlsx: column u1 has no value at row 9 (4 such cells in all); {SPLIT}",
    ),
    "a short row": (
        lambda: write("rig.csv", lines(table(), l5="0.75,1,2")),
        {},
        DataError,
        f"rig.csv: column y has no value at line 5 (1 such cell in all); {SPLIT}",
    ),
    "an infinite number": (
        lambda: npz(u=U, y=np.where(np.arange(N) == 3, -np.inf, Y)),
        {},
        DataError,
        f"rig.npz: column y is -inf at row 4 (1 such cell in all); {SPLIT}",
    ),
    "nothing left between gaps": (
        lambda: write("rig.csv", table(y=[1.5, None] * (N // 2))),
        {"gaps": "split"},
        DataError,
        "rig.csv: between the gaps of rig no 2 rows are left together.",
    ),
    "too few rows": (
        lambda: write("rig.csv", csv(FRAME[:9])),
        {},
        DataError,
        "rig.csv: the table has 9 rows of data; at least 10 are needed.",
    ),
    "a short experiment": (
        lambda: write("rig.csv", table(run=["a"] * 39 + ["b"], time=None)),
        {"experiment": "run"},
        DataError,
        "rig.csv: experiment b has 1 row of data; at least 10 are needed.",
    ),
    "an experiment in two places": (
        lambda: write("rig.csv", table(run=["a"] * 15 + ["b"] * 10 + ["a"] * 15)),
        {"experiment": "run"},
        DataError,
        "rig.csv: experiment a starts again at line 27; the rows of an experiment must follow each "
        "other.",
    ),
    "a row without an experiment": (
        lambda: write("rig.csv", table(run=["a"] * 15 + [""] + ["b"] * 24)),
        {"experiment": "run"},
        DataError,
        "rig.csv: column run has no value at line 17; each row must belong to an experiment.",
    ),
    "a constant input": (
        lambda: write("rig.csv", table(u2=2.5)),
        {},
        DataError,
        "input u2 is constant (2.5) in all records; leave it out or use a record in which it "
        "moves.",
    ),
    "a constant output": (
        lambda: [write("a.csv", table(y=0)), write("b.csv", table(y=0))],
        {},
        DataError,
        "output y is constant (0) in all records; leave it out or use a record in which it moves.",
    ),
    "files that differ": (
        lambda: [write("a.csv", table()), write("b.csv", table(u2=None))],
        {},
        DataError,
        "a.csv and b.csv differ in their inputs: u1, u2 and u1; the same columns are needed in "
        "each file.",
    ),
    "a column missing in the second file": (
        lambda: [write("a.csv", table()), write("b.csv", table(u2=None))],
        {"inputs": ["u2"]},
        DataError,
        "b.csv: `inputs`: no column is called 'u2'. The columns are time (1), u1 (2), "
        "y (3).",
    ),
    "files of different steps": (
        lambda: [write("a.csv", table()), write("b.csv", table(time=2 * T))],
        {},
        DataError,
        'records "a" and "b" differ in their sampling time: 0.25 and 0.5 s; bring them to the same '
        "steps with `resample=SECONDS`.",
    ),
    "variables of different length": (
        lambda: mat(u=U, y=Y[:-3]),
        {},
        DataError,
        "rig.mat: the columns differ in length (u1 40, u2 40, y 37).",
    ),
    "complex numbers": (
        lambda: mat(u=U * 1j, y=Y),
        {},
        DataError,
        "rig.mat: u has type complex128; real numbers are needed.",
    ),
    "three dimensions": (
        lambda: npz(u=np.zeros((2, 3, 4)), y=Y),
        {},
        DataError,
        "rig.npz: u has 3 dimensions.",
    ),
    "a cell array": (
        lambda: mat(u=np.array([[U, U]], dtype=object), y=Y),
        {},
        DataError,
        "rig.mat: u holds objects, not numbers.",
    ),
    "two sampling times": (
        lambda: mat(u=U, y=Y, Ts=0.1, fs=4),
        {},
        DataError,
        "rig.mat: Ts and fs state different sampling times (0.1 s, 0.25 s); state it with "
        "`sampling_time`.",
    ),
    "no sampling time": (
        lambda: mat(u=U, y=Y, Ts=-1),
        {},
        DataError,
        "rig.mat: Ts is -1, which is no sampling time; state it with `sampling_time`.",
    ),
    "a sampling time that contradicts the time": (
        lambda: npz(u=U, y=Y, t=T, Ts=0.1),
        {},
        DataError,
        "rig.npz: the file states a sampling time of 0.1 s, but column t has steps of 0.25 s; give "
        "the right one with `sampling_time`.",
    ),
    "several sheets": (
        lambda: excel(Monday=cells(), Tuesday=cells()),
        {},
        DataError,
        "rig.xlsx: several sheets hold data (Monday, Tuesday); name one with `variable`.",
    ),
}  # fmt: skip

# --- time ---------------------------------------------------------------------------------------

BACK = "sort the rows, tell experiments apart with `experiment`, or use `sampling_time`."
TIMES: dict[str, tuple[Make, dict[str, Any], type[OccamidError], str]] = {
    "back": (
        lambda: write("rig.csv", put("time", (20, 1.0))),
        {},
        DataError,
        f"rig.csv: column time does not increase at line 22 (from 4.75 to 1 s); {BACK}",
    ),
    "standing still": (
        lambda: write("rig.csv", table(time=STAMPS.strftime("%Y-%m-%d %H:%M:%S"))),
        {},
        DataError,
        f"rig.csv: column time does not increase at line 3 (from 0 to 0 s); {BACK}",
    ),
    "uneven": (
        lambda: write("rig.csv", put("time", (20, 5.03))),
        {},
        DataError,
        "rig.csv: the sampling is uneven: the step to line 22 is 0.28 s, 12.00% off the usual "
        "0.25 s; interpolate to even steps with `resample`.",
    ),
    "rows missing": (
        lambda: write("rig.csv", csv(FRAME.drop(index=[9, 10, 11, 30]))),
        {},
        DataError,
        "rig.csv: 3 rows missing before line 11: the time goes from 2 to 3 s where the step is "
        '0.25 s (2 gaps in all); read the pieces with `gaps="split"` or bridge the gaps with '
        "`resample`.",
    ),
    "a row missing among whole seconds": (
        lambda: write("rig.csv", csv(FRAME.assign(time=range(N)).drop(index=17))),
        {},
        DataError,
        "rig.csv: 1 row missing before line 19: the time goes from 16 to 18 s where the step is "
        '1 s (1 gap in all); read the pieces with `gaps="split"` or bridge the gaps with '
        "`resample`.",
    ),
    "an empty time": (
        lambda: write("rig.csv", put("time", (3, None))),
        {},
        DataError,
        f"rig.csv: column time has no value at line 5 (1 such cell in all); {SPLIT}",
    ),
    "day or month": (
        lambda: write("rig.csv", table(time=STAMPS.strftime("%d/%m/%Y %H:%M:%S.%f"))),
        {},
        DataError,
        "rig.csv: column time: '04/03/2024 10:00:00.000000' may have the day or the month first; "
        "write dates as 2024-03-01.",
    ),
    "no date": (
        lambda: write("rig.csv", table(time=[*STAMPS.astype(str)[:-1], "later"])),
        {},
        DataError,
        "rig.csv: line 41, column time: 'later' is no time that can be read; write times in "
        "seconds or as 2024-03-01 12:00:00.5.",
    ),
    "no such day": (
        lambda: write("rig.csv", table(time=["2024-02-31 10:00:00", *STAMPS.astype(str)[1:]])),
        {},
        DataError,
        "rig.csv: line 2, column time: '2024-02-31 10:00:00' is no time that can be read; write "
        "times in seconds or as 2024-03-01 12:00:00.5.",
    ),
    "milliseconds since 1970": (
        lambda: npz(u=U, y=Y, t=1.7e12 + 1000 * T),
        {},
        DataError,
        "rig.npz: column t starts at 1.7e+12, which looks like milliseconds since 1970; divide it "
        "to get seconds, or use `sampling_time`.",
    ),
    "two columns of time": (
        lambda: write("rig.csv", table(t=T)),
        {},
        DataError,
        "rig.csv: time, t may all be the time; name one with `time`, or give `sampling_time`.",
    ),
    "dates as an input": (
        lambda: npz(u=STAMPS.to_numpy(), y=Y),
        {},
        DataError,
        "rig.npz: column u holds dates, not numbers; if it is the time, name it with `time`.",
    ),
    "resampling without time": (
        lambda: write("rig.csv", table(time=None)),
        {"resample": True},
        SettingsError,
        "rig.csv: `resample` needs a time column; name it with `time`.",
    ),
    "far too small a step": (
        lambda: write("rig.csv", table()),
        {"resample": 1e-9},
        SettingsError,
        "`resample` 1e-09 would make 9.75e+09 rows; at most 50000000 are made.",
    ),
    "far too large a step": (
        lambda: write("rig.csv", table()),
        {"resample": 100},
        SettingsError,
        "`resample` 100 is longer than 9.75 s of data.",
    ),
}

# --- options ------------------------------------------------------------------------------------


def good() -> Path:
    return write("rig.csv", table())


def nameless() -> Path:
    return write("rig.csv", csv(FRAME.rename(columns={"u1": "valve", "u2": "pump", "y": "level"})))


OPTIONS: dict[str, tuple[Make, dict[str, Any], type[OccamidError], str]] = {
    "no file": (lambda: [], {}, SettingsError, "no file was given."),
    "a number for a file": (
        lambda: 7, {}, SettingsError, "a file is named by its path, not by 7."
    ),
    "inputs not named": (
        nameless,
        {},
        DataError,
        "rig.csv: no column is called u or y, so inputs and outputs must be named with `inputs` "
        "and `outputs`; the columns are time (1), valve (2), pump (3), level (4).",
    ),
    "outputs not named": (
        nameless,
        {"inputs": ["valve"]},
        DataError,
        "rig.csv: no column is called y, so the outputs must be named with `outputs`; the columns "
        "are time (1), valve (2), pump (3), level (4).",
    ),
    "structs": (
        lambda: mat(est={"u": U, "y": Y}, val={"u": U, "y": Y}),
        {},
        DataError,
        "rig.mat: no column is called u or y, so inputs and outputs must be named with `inputs` "
        "and `outputs` or one struct with `variable` (est, val); the columns are est.u1 (1), "
        "est.u2 (2), est.y (3), val.u1 (4), val.u2 (5), val.y (6).",
    ),
    "a misspelt column": (
        nameless,
        {"inputs": ["vlave"], "outputs": ["level"]},
        DataError,
        "rig.csv: `inputs`: no column is called 'vlave'. Did you mean valve or level? The columns "
        "are time (1), valve (2), pump (3), level (4).",
    ),
    "other capitals": (
        nameless,
        {"inputs": ["valve"], "outputs": ["LEVEL"]},
        DataError,
        "rig.csv: `outputs`: no column is called 'LEVEL'. Did you mean level or valve? The columns "
        "are time (1), valve (2), pump (3), level (4).",
    ),
    "no such time": (
        good,
        {"time": "clock"},
        DataError,
        f"rig.csv: `time`: no column is called 'clock'. The columns are {COLUMNS}.",
    ),
    "position zero": (
        good,
        {"inputs": [0]},
        DataError,
        "rig.csv: `inputs` asks for column 0; columns are counted from 1 to 4: "
        f"{COLUMNS}.",
    ),
    "position five": (
        good,
        {"outputs": ["5"]},
        DataError,
        "rig.csv: `outputs` asks for column 5; columns are counted from 1 to 4: "
        f"{COLUMNS}.",
    ),
    "half a position": (
        good,
        {"inputs": [1.5]},
        SettingsError,
        "`inputs` takes names of columns or positions counted from 1, not 1.5.",
    ),
    "no inputs": (
        good, {"inputs": None}, SettingsError, "`inputs` takes names of columns, not None."
    ),
    "one column twice": (
        good, {"inputs": ["u1", 2]}, SettingsError, "`inputs` names the column u1 twice."
    ),
    "one column in two roles": (
        good,
        {"inputs": ["u1"], "outputs": ["u1"]},
        SettingsError,
        "rig.csv: column u1 cannot be both input and output; name it once.",
    ),
    "time as an input": (
        good,
        {"inputs": ["time"], "time": 1},
        SettingsError,
        "rig.csv: column time cannot be both input and time; name it once.",
    ),
    "a matrix as time": (
        lambda: npz(u=U, y=Y),
        {"time": "u", "inputs": ["y"]},
        DataError,
        "rig.npz: `time`: u has 2 columns; name one of u1, u2.",
    ),
    "sampling time zero": (
        good,
        {"sampling_time": 0},
        SettingsError,
        "`sampling_time` takes a positive number of seconds, not 0.",
    ),
    "sampling time in words": (
        good,
        {"sampling_time": "fast"},
        SettingsError,
        "`sampling_time` takes a positive number of seconds, not 'fast'.",
    ),
    "step not a number": (
        good,
        {"resample": float("nan")},
        SettingsError,
        "`resample` takes a positive number of seconds, not nan.",
    ),
    "time and sampling time": (
        good,
        {"time": "time", "sampling_time": 1.0},
        SettingsError,
        "give `time` or `sampling_time`, not both.",
    ),
    "resampling with a sampling time": (
        good,
        {"resample": True, "sampling_time": 1.0},
        SettingsError,
        "`resample` needs the time column, which `sampling_time` replaces.",
    ),
    "unknown treatment of gaps": (
        good,
        {"gaps": "drop"},
        SettingsError,
        "gaps 'drop' is unknown; choose one of error, split, fill.",
    ),
    "a variable of a text": (
        good,
        {"variable": "data"},
        SettingsError,
        "rig.csv: `variable` is for sheets and variables; this file holds one table.",
    ),
    "a number for a variable": (
        good, {"variable": 3}, SettingsError, "`variable` takes a name, not 3."
    ),
    "no such variable": (
        lambda: mat(est={"u": U, "y": Y}, val={"u": U, "y": Y}),
        {"variable": "ets"},
        SettingsError,
        "rig.mat: there is no variable 'ets'. Did you mean est? The file holds est, est.u, est.y, "
        "val, val.u, val.y.",
    ),
    "no such sheet": (
        lambda: excel(Data=cells()),
        {"variable": "Date"},
        SettingsError,
        "rig.xlsx: there is no sheet 'Date'. Did you mean Data? The workbook has Data.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_bad_files(case: str) -> None:
    make, options, kind, said = FILES[case]
    assert refused(kind, make(), **options) == said


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case: str) -> None:
    make, options, kind, said = TABLES[case]
    assert refused(kind, make(), **options) == said


@pytest.mark.parametrize("case", TIMES)
def test_bad_times(case: str) -> None:
    make, options, kind, said = TIMES[case]
    assert refused(kind, make(), **options) == said


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(case: str) -> None:
    make, options, kind, said = OPTIONS[case]
    assert refused(kind, make(), **options) == said


@pytest.mark.parametrize(
    ("library", "make"),
    [
        ("openpyxl", lambda: excel(Data=cells())),
        ("pyarrow", parquet),
        ("h5py", lambda: hdf5(u=U, y=Y)),
        ("h5py", lambda: mat73("rig.mat", u=U, y=Y)),
    ],
)
def test_missing_libraries(library: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make()
    monkeypatch.setitem(sys.modules, library, None)
    assert refused(FileError, path) == (
        f"{path}: reading {path.suffix} files needs {library}; "
        'install it with pip install "occamid[files]".'
    )


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    path = good()

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refused(FileError, path) == "rig.csv: the file cannot be read: permission denied."


def test_names_with_line_breaks_stay_on_one_line() -> None:
    rows = cells()
    rows[0][1] = "valve\nleft"
    assert refused(DataError, excel(Data=rows), inputs=["pump"]) == (
        "rig.xlsx: `inputs`: no column is called 'pump'. The columns are time (1), valve left (2), "
        "u2 (3), y (4)."
    )


def test_objects_without_signals() -> None:
    for data, missing in ((3.0, "u and y"), (SimpleNamespace(u=U), "y")):
        with pytest.raises(DataError) as caught:
            as_record(data)
        assert str(caught.value) == (
            f"expected an object with u and y, got {type(data).__name__} without {missing}; "
            "wrap the arrays: Record(u=..., y=...)."
        )
