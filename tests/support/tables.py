"""One small table, and ways to write it as the files that people have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openpyxl
import pandas as pd

RNG = np.random.default_rng(3)
N = 40
T = np.round(0.25 * np.arange(N), 2)
U = np.round(RNG.normal(size=(N, 2)), 4)
Y = np.round(RNG.normal(size=N), 4)
FRAME = pd.DataFrame({"time": T, "u1": U[:, 0], "u2": U[:, 1], "y": Y})


def write(name: str, text: str, encoding: str = "utf-8") -> Path:
    path = Path(name)
    path.write_bytes(text.encode(encoding))
    return path


def csv(frame: pd.DataFrame = FRAME, **options: Any) -> str:
    return str(frame.to_csv(index=False, lineterminator="\n", **options))


def excel(name: str = "rig.xlsx", **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(name)
    return Path(name)


def cells(frame: pd.DataFrame = FRAME) -> list[list[Any]]:
    return [list(frame.columns), *frame.astype(object).to_numpy().tolist()]


def mat73(name: str, **items: Any) -> Path:
    """A file as MATLAB writes it with -v7.3: axes turned round, classes as attributes."""
    with h5py.File(name, "w", userblock_size=512) as file:
        for path, value in items.items():
            place = path.replace("__", "/")
            array = np.atleast_2d(np.asarray(value, dtype=float))
            array = array.T if np.ndim(value) == 1 else array
            file.create_dataset(place, data=array.T)
            file[place].attrs["MATLAB_class"] = np.bytes_("double")
    raw = bytearray(Path(name).read_bytes())
    raw[:128] = b"MATLAB 7.3 MAT-file, HDF5 schema 1.00 .".ljust(124) + b"\x00\x02IM"
    Path(name).write_bytes(raw)
    return Path(name)
