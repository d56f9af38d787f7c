"""One file with many assets: a column names the pump, the cell, the house each row is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from occamid.errors import DataError, FileError
from occamid.reading.choose import Key, find
from occamid.reading.columns import Table
from occamid.reading.experiments import label_of
from occamid.reading.tables import read_tables

Array = np.ndarray
KEPT = 2  # files that a process remembers: the assets of one file come one after the other


class Asset(NamedTuple):
    """The rows in which a column has this value, wherever they stand."""

    by: Key
    name: str


class _Grouped(NamedTuple):
    table: Table
    rows: Mapping[str, Array]


def asset_names(path: Path, by: Key, variable: str | None = None) -> tuple[str, ...]:
    """The assets of a file in the order in which they appear."""
    found = (name for grouped in _grouped(path, by, variable) for name in grouped.rows)
    return tuple(dict.fromkeys(found))


def asset_tables(path: Path, asset: Asset, variable: str | None = None) -> list[Table]:
    """The tables of a file with the rows of one asset only; rows keep their places in the file."""
    grouped = _grouped(path, asset.by, variable)
    found = [_only(g.table, g.rows[asset.name], asset) for g in grouped if asset.name in g.rows]
    if not found:
        raise DataError(f"{path}: no row has {asset.name} in column {asset.by}; see `by`.")
    return found


def _only(table: Table, rows: Array, asset: Asset) -> Table:
    length = len(table.columns[_column(table, asset.by)])
    columns = {
        name: column.iloc[rows].reset_index(drop=True) if len(column) == length else column
        for name, column in table.columns.items()
    }
    return replace(
        table,
        columns=columns,
        place=lambda row: table.place(int(rows[row])),
        part=f"{table.part} {asset.name}".strip(),
    )


def _grouped(path: Path, by: Key, variable: str | None) -> tuple[_Grouped, ...]:
    try:
        state = path.stat()
    except OSError as error:
        raise FileError(f"{path}: the file cannot be read: {error.strerror}.") from None
    return _kept(path, by, variable, (state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=KEPT)
def _kept(
    path: Path, by: Key, variable: str | None, state: tuple[int, int]
) -> tuple[_Grouped, ...]:
    """The grouped tables of a file; ``state`` makes a changed file another one."""
    return tuple(_Grouped(table, _rows(table, by)) for table in read_tables(path, variable))


def _column(table: Table, by: Key) -> str:
    names = find(table, by, "`by`")
    if len(names) > 1:
        raise DataError(f"{table.path}: `by`: {by} has {len(names)} columns; name one of them.")
    return names[0]


def _rows(table: Table, by: Key) -> dict[str, Array]:
    """The rows of each asset; a row without a name belongs to nobody and is refused."""
    name = _column(table, by)
    column = table.columns[name].reset_index(drop=True)
    empty = np.flatnonzero(column.isna().to_numpy())
    if len(empty):
        raise DataError(
            f"{table.path}: column {name} has no value at {table.place(int(empty[0]))}; each row "
            "must name its asset."
        )
    codes, labels = pd.factorize(column.map(label_of))
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return dict(zip(map(str, labels), parts, strict=True))
