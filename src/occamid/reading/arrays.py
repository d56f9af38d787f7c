"""Files of named arrays: MATLAB, NumPy and HDF5.

Structs and groups are taken apart; their parts are called ``data.u`` or ``group/u``.  Of a matrix
the longer side is time; the columns of ``u`` are called ``u1, u2, …``.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
from scipy.io.matlab import MatlabFunction, MatlabObject, MatlabOpaque

from occamid.errors import DataError, FileError, SettingsError
from occamid.reading.archives import MOST_BYTES, too_large
from occamid.reading.columns import Table, closest, listed
from occamid.reading.matfile import check_structure

LARGEST = MOST_BYTES  # of one array in HDF5; a damaged file may claim any size
WIDEST = 10_000  # columns of one matrix
DEEPEST = 20  # structs inside structs
PERIODS = {"ts", "t_s", "dt", "sampling_time", "sample_time", "samplingtime", "sampletime"}
RATES = {"fs", "f_s", "sampling_rate", "sample_rate", "sampling_frequency", "samplingrate"}


@dataclass
class Found:
    """What a file holds: arrays by path, what cannot be a column, and MATLAB objects."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)  # name -> class

    def add(self, name: str, value: Any) -> None:
        """Keep an array under its name, or the reason why it cannot be one."""
        array = np.asarray(value)
        if array.dtype.names:
            for part in array.dtype.names:
                self.add(f"{name}.{part}", array[part])
        elif array.dtype.kind == "O" and array.size and all(isinstance(v, str) for v in array.flat):
            self.arrays[name] = array.astype(str)
        elif array.dtype.kind == "O":
            self.refused[name] = "holds objects, not numbers"
        elif array.dtype.kind not in "fiubMmUS":
            self.refused[name] = f"has type {array.dtype}; real numbers are needed"
        elif array.ndim > 2 and math.prod(array.shape) != max(array.shape):
            self.refused[name] = f"has {array.ndim} dimensions"
        else:
            self.arrays[name] = array


def read_mat(path: Path, variable: str | None = None) -> list[Table]:
    """A MATLAB file up to version 7; the elements of a struct array become tables."""
    content = path.read_bytes()
    if scipy.io.matlab.matfile_version(io.BytesIO(content))[0] == 1:
        check_structure(content)
    raw = scipy.io.loadmat(io.BytesIO(content), squeeze_me=False, chars_as_strings=True)
    found = [Found()]
    for name, value in raw.items():
        if name == "__function_workspace__":
            found[0].objects.setdefault("data", "object")
        if not (name.startswith("__") and name.endswith("__")):
            _matlab(found, name, value)
    return [
        _table(path, part, variable, ".", f"#{k}" if len(found) > 1 else "")
        for k, part in enumerate(found, 1)
        if part.arrays or part.refused or part.objects or len(found) == 1
    ]


def read_mat73(path: Path, variable: str | None, h5py: Any) -> list[Table]:
    """A MATLAB file of version 7.3, which is HDF5 with its axes turned round."""
    found = Found()
    with h5py.File(path, "r") as file:
        for name, item in _hdf5_items(file):
            kind = _hdf5_class(item)
            dotted = name.replace("/", ".")
            if name.startswith("#") or kind == "char" or isinstance(item, h5py.Group):
                continue
            if "MATLAB_object_decode" in item.attrs or kind in ("iddata", "table", "timetable"):
                found.objects[dotted] = kind or "object"
            elif kind == "cell" or item.dtype.hasobject:
                found.refused[dotted] = "is a cell or struct array; save the file with -v7"
            elif "MATLAB_empty" not in item.attrs:
                found.add(dotted, _hdf5_array(path, item).T)
    return [_table(path, found, variable, ".")]


def read_npz(path: Path, variable: str | None = None) -> list[Table]:
    """A NumPy archive; nothing in it is ever unpickled."""
    found = Found()
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > MOST_BYTES:
            raise too_large(path)
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            with archive.open(member) as stream:
                try:
                    found.add(name, np.lib.format.read_array(stream, allow_pickle=False))
                except ValueError as error:
                    if "pickle" not in str(error):
                        raise
                    found.refused[name] = (
                        "holds Python objects, which are not read because they could run code; "
                        "save it as numbers"
                    )
    return [_table(path, found, variable, ".")]


def read_hdf5(path: Path, variable: str | None, h5py: Any) -> list[Table]:
    """An HDF5 file of plain datasets; attributes of the file may state the sampling time."""
    found = Found()
    with h5py.File(path, "r") as file:
        for name in file.attrs:
            if name.lower() in PERIODS | RATES and not file.attrs.get_id(name).dtype.hasobject:
                found.add(name, file.attrs[name])
        for name, item in _hdf5_items(file):
            if isinstance(item, h5py.Dataset) and item.dtype.hasobject:
                found.refused[name] = "holds text or lists of varying length"
            elif isinstance(item, h5py.Dataset):
                found.add(name, _hdf5_array(path, item))
    return [_table(path, found, variable, "/")]


def _matlab(found: list[Found], name: str, value: Any, depth: int = 0) -> None:
    """Take a variable apart; element k of a struct array goes to ``found[k]``."""
    first = found[0]
    if isinstance(value, MatlabOpaque):
        for row in value.ravel():
            first.objects[_text(row["s0"]) or name] = _text(row["s2"]) or "object"
    elif isinstance(value, MatlabObject):
        first.objects[name] = value.classname or "object"
    elif isinstance(value, MatlabFunction) or not isinstance(value, np.ndarray):
        first.refused[name] = "cannot be read"
    elif value.dtype.names and depth < DEEPEST:
        elements = value.ravel()
        if len(elements) > 1 and depth == 0:
            found.extend(Found() for _ in range(len(elements) - len(found)))
        for k, element in enumerate(elements if depth == 0 else elements[:1]):
            for part in value.dtype.names:
                _matlab(found[k:], f"{name}.{part}", element[part], depth + 1)
    elif value.dtype.kind == "O" and value.size == 1 and isinstance(value.flat[0], np.ndarray):
        first.refused[name] = "is a cell array; save its parts as variables of their own"
    else:
        first.add(name, value)


def _table(path: Path, found: Found, variable: str | None, mark: str, part: str = "") -> Table:
    """Columns of the arrays, or of those under ``variable``."""
    arrays, refused = _under(path, found, variable, mark)
    columns: dict[str, pd.Series] = {}
    groups: dict[str, tuple[str, ...]] = {}
    refused = dict(refused)
    for name, array in arrays.items():
        if array.size <= 1:
            continue
        matrix = _time_first(array)
        if matrix.shape[1] > WIDEST:
            refused[name] = f"has {matrix.shape[1]} columns"
            continue
        names = [name]
        if matrix.shape[1] > 1:
            names = [f"{name}{k}" for k in range(1, matrix.shape[1] + 1)]
            if any(n in arrays or n in columns for n in names):
                names = [f"{name}(:,{k})" for k in range(1, matrix.shape[1] + 1)]
            groups[name] = tuple(names)
        for k, column in enumerate(names):
            columns[column] = _series(matrix[:, k])
    if not columns and found.objects:
        raise FileError(_save_readably(path, found.objects))
    if not columns and refused:
        raise FileError(f"{path}: {_reasons(refused)}.")
    if not columns:
        raise DataError(f"{path}: the file holds no arrays of numbers.")
    return Table(
        path=path,
        columns=columns,
        sampling_time=_sampling_time(path, arrays),
        groups=groups,
        refused=refused,
        part=part,
    )


def _under(
    path: Path, found: Found, variable: str | None, mark: str
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and reasons with their names relative to ``variable`` or to the only struct."""
    if variable is not None and variable in {**found.arrays, **found.refused}:
        keep, prefix = (lambda name: name == variable), ""
    elif variable is not None:
        prefix = f"{variable}{mark}"
        keep = lambda name: name.startswith(prefix)  # noqa: E731
    else:
        long = [name for name, array in found.arrays.items() if array.size > 1]
        heads = {name.split(mark)[0] if mark in name else None for name in long}
        head = heads.pop() if len(heads) == 1 else None
        prefix, keep = f"{head}{mark}" if head else "", lambda name: True
    arrays = {n.removeprefix(prefix): a for n, a in found.arrays.items() if keep(n)}
    refused = {n.removeprefix(prefix): r for n, r in found.refused.items() if keep(n)}
    if variable is not None and not arrays and not refused:
        if variable in found.objects or (found.objects and not found.arrays):
            raise FileError(_save_readably(path, found.objects))
        known = sorted({part for name in found.arrays for part in (name, name.split(mark)[0])})
        raise SettingsError(
            f"{path}: there is no variable {variable!r}.{closest(variable, known)} "
            f"The file holds {listed(known) or 'none'}."
        )
    if variable is not None:  # a sampling time beside the struct counts for it
        scalars = {n: a for n, a in found.arrays.items() if n.lower() in PERIODS | RATES}
        arrays = {**{n: a for n, a in scalars.items() if a.size == 1}, **arrays}
    return arrays, refused


def _time_first(array: np.ndarray) -> np.ndarray:
    """An array as ``(samples, channels)``."""
    if array.ndim != 2 or 1 in array.shape:
        return array.reshape(-1, 1)
    return array if array.shape[0] >= array.shape[1] else array.T


def _series(column: np.ndarray) -> pd.Series:
    """One column: numbers in double precision, times and text as pandas has them."""
    if column.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            return pd.Series(column.astype(np.float64))
    if column.dtype.kind == "m":
        return pd.Series(column / np.timedelta64(1, "s"))
    if column.dtype.kind == "S":
        column = np.char.decode(column, "latin-1")
    return pd.Series(column)


def _sampling_time(path: Path, arrays: Mapping[str, np.ndarray]) -> float | None:
    """The sampling time that a scalar called Ts, dt, fs, … states."""
    stated: dict[str, float] = {}
    for name, array in arrays.items():
        if array.size != 1 or array.dtype.kind not in "fiu":
            continue
        value = float(array.reshape(-1)[0])
        if name.lower() in PERIODS | RATES:
            if not 1e-300 < value < math.inf:
                raise DataError(
                    f"{path}: {name} is {value:g}, which is no sampling "
                    f"{'time' if name.lower() in PERIODS else 'rate'}; state it with "
                    "`sampling_time`."
                )
            stated[name] = value if name.lower() in PERIODS else 1 / value
    values = list(stated.values())
    if values and max(values) > min(values) * (1 + 1e-6):
        raise DataError(
            f"{path}: {' and '.join(stated)} state different sampling times "
            f"({', '.join(f'{v:g} s' for v in values)}); state it with `sampling_time`."
        )
    return values[0] if values else None


def _hdf5_items(file: Any) -> list[tuple[str, Any]]:
    """Groups and datasets in the order of their names; links to other files are not followed."""
    items: list[tuple[str, Any]] = []
    file.visititems(lambda name, item: items.append((name, item)))
    return items


def _hdf5_array(path: Path, dataset: Any) -> np.ndarray:
    if dataset.shape is None:
        return np.empty(0)
    if dataset.size * dataset.dtype.itemsize > LARGEST:
        raise FileError(
            f"{path}: {dataset.name} claims {dataset.size:.3g} values; at most "
            f"{LARGEST // 2**30} GiB of one array are read."
        )
    return np.asarray(dataset[()])


def _hdf5_class(item: Any) -> str:
    """The class that MATLAB notes.  In a damaged file, text of varying length may have no end."""
    name = "MATLAB_class"
    known = name in item.attrs and not item.attrs.get_id(name).dtype.hasobject
    return _text(item.attrs[name]) if known else ""


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _reasons(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {why}" for name, why in list(refused.items())[:3])


def _save_readably(path: Path, objects: Mapping[str, str]) -> str:
    """The three lines of MATLAB that save an object as plain variables."""
    name, kind = next(iter(objects.items()))
    name = name if name.isidentifier() and name != "None" else "data"
    return (
        f"{path}: {name} is a MATLAB object ({kind}) that only MATLAB can read; save it there as "
        f"plain variables: u = {name}.u; y = {name}.y; Ts = {name}.Ts; "
        f"save('{path.name}','u','y','Ts')"
    )
