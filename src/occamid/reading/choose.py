"""Which columns of a table are inputs, outputs, time and experiment."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import NamedTuple

import pandas as pd

from occamid.errors import DataError, SettingsError
from occamid.reading.clock import bare_name
from occamid.reading.columns import Table, closest, listed, tidy_name
from occamid.reading.remarks import Remarks

Key = str | int
TIMES = {
    *("t", "time", "times", "timestamp", "time stamp", "time_stamp", "datetime", "date time"),
    *("date_time", "date/time", "date", "elapsed", "elapsed time", "elapsed_time", "seconds"),
    *("zeit", "zeitstempel", "datum", "uhrzeit", "datum/zeit", "tid", "temps", "tiempo", "tempo"),
}
DATES, CLOCKS = {"date", "datum"}, {"time", "zeit", "uhrzeit"}
JOINED = "date and time"
EXPERIMENTS = {"experiment", "experiment_id", "experiment id"}
_UNIT = r"\s*(?:[\[(][^\])]*[\])])?"
GUESSED = {
    "input": re.compile(rf"[uU](?:[_ ]?\d+|[\[(]\d+[\])])?{_UNIT}"),
    "output": re.compile(rf"[yY](?:[_ ]?\d+|[\[(]\d+[\])])?{_UNIT}"),
}


class Wanted(NamedTuple):
    """Columns as the user names them: a heading, or a position counted from 1."""

    inputs: tuple[Key, ...] = ()
    outputs: tuple[Key, ...] = ()
    time: Key | None = None
    experiment: Key | None = None
    timed: bool = True  # whether a time column is looked for


class Chosen(NamedTuple):
    """Names of columns in a table."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    time: str | None
    experiment: str | None


def choose(table: Table, wanted: Wanted) -> tuple[Table, Chosen]:
    """The columns to use; the table gains one where date and time of day are put together."""
    problems = Remarks()  # all names that are not there are told at once
    time = experiment = None
    inputs = outputs = ()  # type: tuple[str, ...]
    with problems.collect():
        inputs = _several(table, wanted.inputs, "input")
    with problems.collect():
        outputs = _several(table, wanted.outputs, "output")
    with problems.collect():
        time = _one(table, wanted.time, "time")
    with problems.collect():
        experiment = _one(table, wanted.experiment, "experiment")
    problems.tell()
    taken = {*inputs, *outputs, *({time} if time else ()), *({experiment} if experiment else ())}
    free = [name for name in table.columns if name not in taken]
    if experiment is None:
        found = [name for name in free if name.lower() in EXPERIMENTS]
        experiment = found[0] if len(found) == 1 else None
    if not inputs and not outputs:
        _check_named(table, free)
    inputs = inputs or _guess(table, free, "input")
    outputs = outputs or _guess(table, free, "output")
    _check_distinct(table, inputs, outputs, time, experiment)
    if time is None and wanted.timed:
        table, time = _find_time(table, [n for n in free if n not in (*inputs, *outputs)])
    return table, Chosen(inputs, outputs, time, experiment)


def find(table: Table, key: Key, option: str) -> tuple[str, ...]:
    """The column of this name or position, or the columns of the matrix of this name."""
    if isinstance(key, str) and key not in table.columns and tidy_name(key) in table.columns:
        key = tidy_name(key)
    if isinstance(key, str) and key in table.columns:
        return (key,)
    if isinstance(key, str) and key in table.groups:
        return table.groups[key]
    if isinstance(key, str) and key in table.refused:
        raise DataError(f"{table.path}: {key} {table.refused[key]}.")
    position = int(key) if isinstance(key, str) and re.fullmatch(r"[0-9]{1,9}", key) else key
    if isinstance(position, Integral) and not isinstance(position, bool):
        names = list(table.columns)
        if 1 <= position <= len(names):
            return (names[int(position) - 1],)
        raise DataError(
            f"{table.path}: {option} asks for column {position}; columns are counted from 1 to "
            f"{len(names)}: {table.known()}."
        )
    if not isinstance(key, str):
        raise SettingsError(
            f"{option} takes names of columns or positions counted from 1, not {key!r}."
        )
    names = [*table.columns, *table.groups]
    raise DataError(
        f"{table.path}: {option}: no column is called {key!r}.{closest(key, names)} "
        f"The columns are {table.known()}."
    )


def _several(table: Table, keys: Sequence[Key], kind: str) -> tuple[str, ...]:
    problems = Remarks()
    names: list[str] = []
    for key in keys:
        with problems.collect():
            names += find(table, key, f"`{kind}s`")
    problems.tell()
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise SettingsError(f"`{kind}s` names the column {twice} twice.")
    return tuple(names)


def _one(table: Table, key: Key | None, kind: str) -> str | None:
    if key is None:
        return None
    names = find(table, key, f"`{kind}`")
    if len(names) > 1:
        raise DataError(
            f"{table.path}: `{kind}`: {key} has {len(names)} columns; name one of {listed(names)}."
        )
    return names[0]


def _check_named(table: Table, free: Sequence[str]) -> None:
    """Refuse a table in which neither inputs nor outputs can be told by their names."""
    known = [*free, *table.refused]
    if any(GUESSED[kind].fullmatch(name) for kind in GUESSED for name in known):
        return
    raise DataError(
        f"{table.path}: no column is called u or y, so inputs and outputs must be named with "
        f"`inputs` and `outputs`{_structs(table)}; the columns are {table.known()}."
    )


def _structs(table: Table) -> str:
    """The hint at structs, where there are several."""
    structs = sorted({name.split(".")[0] for name in table.columns if "." in name})
    return f" or one struct with `variable` ({listed(structs)})" if len(structs) > 1 else ""


def _guess(table: Table, free: Sequence[str], kind: str) -> tuple[str, ...]:
    """Columns called u, u1, u_2, u[V] … as inputs, and y likewise as outputs."""
    found = tuple(name for name in free if GUESSED[kind].fullmatch(name))
    if found:
        return found
    for name, why in table.refused.items():
        if GUESSED[kind].fullmatch(name):
            raise DataError(f"{table.path}: {name} {why}.")
    letter = "u" if kind == "input" else "y"
    raise DataError(
        f"{table.path}: no column is called {letter}, so the {kind}s must be named with "
        f"`{kind}s`{_structs(table)}; the columns are {table.known()}."
    )


def _check_distinct(
    table: Table,
    inputs: Sequence[str],
    outputs: Sequence[str],
    time: str | None,
    experiment: str | None,
) -> None:
    """Refuse one column in two roles."""
    roles: dict[str, str] = {}
    for role, names in (
        ("input", inputs),
        ("output", outputs),
        ("time", (time,) if time else ()),
        ("experiment", (experiment,) if experiment else ()),
    ):
        for name in names:
            if name in roles:
                raise SettingsError(
                    f"{table.path}: column {name} cannot be both {roles[name]} and {role}; "
                    "name it once."
                )
            roles[name] = role


def _find_time(table: Table, free: Sequence[str]) -> tuple[Table, str | None]:
    """The time column by its name or, failing that, by its type."""
    found = [name for name in free if _is_time(name)]
    found = found or [
        name for name in free if pd.api.types.is_datetime64_any_dtype(table.columns[name])
    ]
    if len(found) == 2:
        date, clock = sorted(found, key=lambda name: name.lower() not in DATES)
        if date.lower() in DATES and clock.lower() in CLOCKS and _texts(table, date, clock):
            joined = table.columns[date] + " " + table.columns[clock]
            return replace(table, columns={**table.columns, JOINED: joined}), JOINED
    if len(found) > 1:
        raise DataError(
            f"{table.path}: {listed(found)} may all be the time; name one with `time`, or give "
            "`sampling_time`."
        )
    return table, found[0] if found else None


def _is_time(name: str) -> bool:
    """Whether a column is called after time; a single capital T is a temperature."""
    bare = bare_name(name)[0].strip()
    return bare.lower() in TIMES and bare != "T"


def _texts(table: Table, *names: str) -> bool:
    return all(pd.api.types.is_string_dtype(table.columns[name]) for name in names)
