"""Whatever a file holds and whatever is asked of it: records, or one of our own errors."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from occamid.data.record import Record
from occamid.errors import OccamidError
from occamid.reading import files
from occamid.reading.tables import KINDS
from tests.support.tables import FRAME, T, U, Y, cells, csv, excel, mat73

FIXED = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
NAMES = ["time", "u1", "u2", "y", "column 1", "data", "t", "", "U1", "é", "nan"]


def read(path: Path, **options: Any) -> None:
    """Read; what is raised is ours and one line for each problem, what is returned is sound."""
    said = None
    try:
        records = files.read(path, **options)
    except OccamidError as error:
        records, said = (), str(error)
    assert bool(records) != bool(said)
    assert said is None or all(line.isprintable() for line in said.split("\n"))
    for record in records:
        assert isinstance(record, Record)
        assert np.isfinite(record.u).all()
        assert np.isfinite(record.y).all()
        assert len(record) >= 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


# --- any bytes ----------------------------------------------------------------------------------

SIGNATURES = [
    b"",
    b"PK\x03\x04",
    b"PAR1",
    b"\x89HDF\r\n\x1a\n",
    b"MATLAB 5.0 MAT-file",
    b"\xff\xfe",
]


@settings(FIXED, max_examples=400)
@given(
    ending=st.sampled_from(sorted(KINDS)),
    begin=st.sampled_from(SIGNATURES),
    content=st.binary(max_size=600),
)
def test_random_bytes(folder: Path, ending: str, begin: bytes, content: bytes) -> None:
    path = folder / f"rig{ending}"
    path.write_bytes(begin + content)
    read(path)


# --- damaged files ------------------------------------------------------------------------------


def npz(path: Path) -> None:
    np.savez(path, u=U, y=Y, Ts=0.25)


def npz_compressed(path: Path) -> None:
    np.savez_compressed(path, u=U, y=Y, time=T)


def mat(path: Path) -> None:
    mixed = np.empty((1, 2), dtype=object)
    mixed[0, 0], mixed[0, 1] = U, "a"
    scipy.io.savemat(path, {"u": U, "y": Y, "Ts": 0.25, "note": "a", "cells": mixed})


def mat_struct(path: Path) -> None:
    scipy.io.savemat(path, {"data": {"u": U, "y": Y, "more": {"Ts": 0.25}}}, do_compression=True)


def mat_4(path: Path) -> None:
    scipy.io.savemat(path, {"u": U, "y": Y, "Ts": 0.25}, format="4")


def hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["u0"], file["y0"], file["names"] = U[:, 0], Y, ["a", "b"]
        file.create_dataset("g/y1", data=Y, chunks=True, compression="gzip")
        file.attrs["fs"] = 4.0


WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "csv": ("csv", lambda path: path.write_text(csv())),
    "semicolons": ("txt", lambda path: path.write_text(csv(sep=";", decimal=","))),
    "utf-16": ("tsv", lambda path: path.write_bytes(csv(sep="\t").encode("utf-16"))),
    "excel": ("xlsx", lambda path: excel(str(path), Data=cells())),
    "parquet": ("parquet", FRAME.to_parquet),
    "npz": ("npz", npz),
    "npz compressed": ("npz", npz_compressed),
    "mat": ("mat", mat),
    "mat struct": ("mat", mat_struct),
    "mat 4": ("mat", mat_4),
    "mat 7.3": ("mat", lambda path: mat73(str(path), u=U, y=Y, data__x=T)),
    "hdf5": ("h5", hdf5),
}


def damaged(content: bytes, seed: int, count: int) -> bytes:
    """A copy with a few bytes changed, removed, added or moved, or with its end cut off."""
    chance, raw = random.Random(seed), bytearray(content)
    for _ in range(count):
        at = chance.randrange(len(raw)) if raw else 0
        length = chance.choice([1, 1, 2, 4, 8, 50])
        what = chance.randrange(6)
        if what == 0:
            raw[at : at + length] = chance.randbytes(length)
        elif what == 1:
            del raw[at : at + length]
        elif what == 2:
            raw[at:at] = chance.randbytes(length)
        elif what == 3:
            raw[at : at + 4] = chance.choice([b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80", b"\x01\0\0\0"])
        elif what == 4:
            raw[at:at] = raw[-length:]
        elif chance.random() < 0.3:
            del raw[at:]
    return bytes(raw)


def damaged_inside(content: bytes, seed: int, count: int) -> bytes:
    """A ZIP archive that is whole, with one damaged member."""
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        names = old.namelist()
        hit = names[seed % len(names)]
        for name in names:
            inner = old.read(name)
            new.writestr(name, damaged(inner, seed, count) if name == hit else inner)
    return packed.getvalue()


@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_files(folder: Path, kind: str) -> None:
    ending, writer = WRITERS[kind]
    whole, path = folder / f"whole.{ending}", folder / f"rig.{ending}"
    writer(whole)
    content = whole.read_bytes()

    @settings(FIXED, max_examples=100)
    @given(
        seed=st.integers(0, 2**32),
        count=st.integers(1, 6),
        gaps=st.sampled_from(["error", "split"]),
        variable=st.sampled_from([None, None, "data"]),
    )
    def case(seed: int, count: int, gaps: Any, variable: str | None) -> None:
        inside = ending in ("xlsx", "npz") and seed % 3
        path.write_bytes((damaged_inside if inside else damaged)(content, seed, count))
        read(path, gaps=gaps, variable=variable)

    case()


# --- any table, any option ----------------------------------------------------------------------

CELLS = st.one_of(
    st.integers(-3, 30).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.sampled_from(["", "1,5", "1.5", '"a"', '"', "#", "%", "NA", "True", "2024-01-02", "12:30"]),
    st.sampled_from(["2024-01-02 03:04:05,6", "01/02/2024", "31.12.2024", "99:99", "1e999", "-"]),
    st.text(max_size=4),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=16)
KEYS = st.one_of(
    st.sampled_from(NAMES), st.integers(-1, 6), st.sampled_from([None, 1.5, True, b"u"])
)


@settings(FIXED, max_examples=250)
@given(
    rows=ROWS,
    head=st.lists(st.sampled_from(NAMES), max_size=5),
    mark=st.sampled_from([",", ";", "\t", " ", "|"]),
    gaps=st.sampled_from(["error", "split"]),
    repeat=st.integers(1, 6),
    resample=st.sampled_from([None, True, 0.5]),
)
def test_random_tables(
    folder: Path, rows: Any, head: Any, mark: str, gaps: Any, repeat: int, resample: Any
) -> None:
    text = "\n".join(mark.join(row) for row in [head, *rows * repeat])
    path = folder / "rig.csv"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    read(path, inputs=[1], outputs=[2], gaps=gaps, resample=resample)
    read(path, inputs=["u1"], time=1, gaps=gaps)
    read(path)


@settings(FIXED, max_examples=250)
@given(
    t=st.lists(st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1e300, -1e300]), min_size=10),
    order=st.booleans(),
    gaps=st.sampled_from(["error", "split"]),
    resample=st.sampled_from([None, True, 0.5, 1e-3, 1e9]),
)
def test_random_times(folder: Path, t: list[float], order: bool, gaps: Any, resample: Any) -> None:
    times = np.array(sorted(set(t)) if order else t)
    np.savez(folder / "rig.npz", t=times, u=np.arange(len(times)), y=np.arange(len(times)) ** 2)
    read(folder / "rig.npz", gaps=gaps, resample=resample)


@settings(FIXED, max_examples=250)
@given(
    ending=st.sampled_from(["csv", "xlsx", "npz", "mat"]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "inputs": st.lists(KEYS, max_size=3) | KEYS,
            "outputs": st.lists(KEYS, max_size=3) | KEYS,
            "time": KEYS,
            "experiment": KEYS,
            "sampling_time": st.sampled_from([None, 0, 0.5, -1, "a", np.inf, True, 1e-320]),
            "resample": st.sampled_from([None, True, False, 0.1, 0, "a", 1e-12, 7, 1e300]),
            "gaps": st.sampled_from(["error", "split", "fill", None, 3]),
            "variable": st.sampled_from([None, None, "Data", "u", "x", "", 3]),
        },
    ),
)
def test_random_options(folder: Path, ending: str, options: dict[str, Any]) -> None:
    path = folder / f"good.{ending}"
    if not path.exists():
        writer = next(write for end, write in WRITERS.values() if end == ending)
        writer(path)
    read(path, **options)
