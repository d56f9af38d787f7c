"""Times of samples: what a time column says in seconds, how even it is, and even steps from it."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from occamid.errors import DataError, SettingsError
from occamid.reading.columns import Table, is_date, numbers, shown

Array = np.ndarray
JITTER = 1e-3  # of a step; less is taken as even without a word
LOOSE = 0.05  # of a step; times this near to an even grid are taken as even, with a note
GAP = 1.5  # a step longer than this many usual ones misses rows
LONGEST = 50_000_000  # rows after resampling
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sekunden"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "micros", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "mins", "minutes", "minuten"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hours", "stunden"), 3600.0),
}
_UNIT = re.compile(r"(?P<name>.+?)\s*(?:[\[(]\s*(?P<a>\w+)\s*[\])]|[ _/](?P<b>\w+))")
CLOCK_DAY = pd.Timestamp("1900-01-01")  # the day of times of day
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
_TWELVE = re.compile(r"\b(\d{1,2})(:\d{2}(?::\d{2}(?:\.\d+)?)?) ?([AaPp])\.?[Mm]\b\.?")
_DAY_OR_MONTH_FIRST = r"(?P<a>\d{1,2})(?P<mark>[./-])(?P<b>\d{1,2})[./-](?P<year>\d{4})(?P<rest>.*)"


class Pace(NamedTuple):
    """How samples follow each other."""

    step: float  # seconds
    gaps: Bool[Array, " M"]  # whether rows are missing after each of the first N - 1
    worst: int | None  # the row after the most uneven step; None where all are even
    deviation: float  # of that step, relative to the usual one
    jitter: float = 0.0  # seconds that times are off an even grid, where that is worth a note


def bare_name(name: str) -> tuple[str, float]:
    """A name without its unit of time, and the seconds in that unit: ``t [ms]``, ``time_s``."""
    match = _UNIT.fullmatch(name.strip())
    unit = (match["a"] or match["b"]).lower() if match else ""
    if match and unit in _UNITS:
        return match["name"], _UNITS[unit]
    return name.strip(), 1.0


def seconds(table: Table, name: str) -> Float[Array, " N"]:
    """A column of numbers or timestamps in seconds, NaN where a cell is empty.

    Timestamps are ISO 8601 (a space or T before the time, a decimal point or comma), dates with
    the day first where that is certain, or times of day.  They are counted from the first one.
    """
    stamps = _timestamps(table, name)
    if stamps is not None:
        return _since_first(table, name, stamps)
    values = numbers(table, name) * _seconds_in(table, name)
    _check_epoch(table, name, values)
    return values


def origin(table: Table, name: str) -> float | None:
    """When :func:`seconds` are counted from, to compare two files; none for times of day alone."""
    stamps = _timestamps(table, name)
    if stamps is None:
        return 0.0
    first = stamps.dropna().iloc[0]
    return None if first.year == CLOCK_DAY.year else first.timestamp()


def _timestamps(table: Table, name: str) -> pd.Series | None:
    """A column's timestamps, if it has any."""
    column = table.columns[name]
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    filled = column.dropna()
    first = filled.iloc[0] if len(filled) else None
    if pd.api.types.is_string_dtype(filled) and is_date(str(first)):
        return _stamps(table, name, column)
    if hasattr(first, "isoformat"):  # cells of a sheet
        return _cell_stamps(table, name, column)
    return None


def _seconds_in(table: Table, name: str) -> float:
    """What one unit of a time column is in seconds: as its name says, or a row of units."""
    bare, factor = bare_name(name)
    unit = table.units.get(name, "").strip().lower()
    return _UNITS.get(unit, factor) if bare == name.strip() else factor


def pace(t: Float[Array, " N"]) -> Pace:
    """The sampling time of increasing times, and where rows are missing or steps uneven.

    Times may be rounded to the digits that are printed: then the steps differ by up to one unit
    of the last digit, but all times stay within a unit of an even grid.
    """
    d = np.diff(t)
    unit, n = _printed_unit(t), len(d)
    none = np.zeros(n, dtype=bool)
    mean = (t[-1] - t[0]) / n
    if _even(t, none, mean, unit):
        return Pace(_tidy(mean, d, unit), none, None, 0.0)
    usual = float(np.median(d))
    gaps = d > GAP * usual + 0.25 * unit
    step = float(np.mean(d[~gaps]))
    if _even(t, gaps, step, unit):
        return Pace(_tidy(step, d[~gaps], unit), gaps, None, 0.0)
    step, jitter = _grid(t, gaps)
    if jitter <= LOOSE * step:
        return Pace(_tidy(step, d[~gaps], jitter), gaps, None, 0.0, jitter)
    off = np.where(gaps, 0.0, np.abs(d - usual)) / usual
    worst = int(np.argmax(off))
    return Pace(usual, gaps, worst + 1, float(off[worst]))


def resampled(t: Float[Array, " N"], x: Float[Array, "N n"], step: float) -> Float[Array, "M n"]:
    """Columns interpolated linearly to even steps from the first time on."""
    count = np.floor((t[-1] - t[0]) / step * (1 + 1e-12) + 1e-9) + 1
    if not count <= LONGEST:
        raise SettingsError(
            f"`resample` {step:g} would make {count:.3g} rows; at most {LONGEST} are made."
        )
    if count < 2:
        raise SettingsError(f"`resample` {step:g} is longer than {t[-1] - t[0]:g} s of data.")
    grid = t[0] + step * np.arange(int(count))
    return np.column_stack([np.interp(grid, t, column) for column in x.T])


def _even(t: Float[Array, " N"], gaps: Bool[Array, " M"], step: float, unit: float) -> bool:
    """Whether the stretches between gaps are even but for jitter or rounding."""
    d = np.diff(t)[~gaps]
    if not len(d) or np.max(np.abs(d - step)) <= JITTER * step:
        return True
    if step < 2 * unit:  # a missing row could not be told from rounding
        return False
    starts = np.concatenate([[0], np.flatnonzero(gaps) + 1])
    off = t - step * np.arange(len(t))
    spread = np.maximum.reduceat(off, starts) - np.minimum.reduceat(off, starts)
    return bool(np.max(spread) <= 1.5 * unit)


def _grid(t: Float[Array, " N"], gaps: Bool[Array, " M"]) -> tuple[float, float]:
    """The step of the even grids nearest to the stretches between gaps, and how far off they are.

    One slope for all stretches by least squares, an offset for each.
    """
    starts = np.concatenate([[0], np.flatnonzero(gaps) + 1])
    lengths = np.diff([*starts, len(t)])
    k = np.arange(len(t), dtype=np.float64)

    def centred(x: Float[Array, " N"]) -> Float[Array, " N"]:
        return x - np.repeat(np.add.reduceat(x, starts) / lengths, lengths)

    k, clock = centred(k), centred(t)
    power = float(k @ k)
    step = float(k @ clock) / power if power > 0 else float(np.median(np.diff(t)))
    return step, float(np.max(np.abs(clock - step * k)))


def _printed_unit(t: Float[Array, " N"]) -> float:
    """The last digit of the times: the smallest power of ten of which all are multiples."""
    largest = float(np.max(np.abs(t)))
    rounding = 4 * np.finfo(np.float64).eps * largest
    for digits in range(10):
        scaled = t * 10.0**digits
        error = rounding * 10.0**digits
        if error > 0.05:
            break
        if np.max(np.abs(scaled - np.rint(scaled))) <= error:
            return float(10.0**-digits)
    return float(rounding)


def _tidy(step: float, d: Float[Array, " M"], unit: float) -> float:
    """The shortest decimal within what the times can tell, so that 0.1 is not 0.0999999."""
    exact = np.ptp(d) <= 1e-9 * step if len(d) else True
    slack = 1e-9 * step + (0.0 if exact else min(unit, step) / (2 * len(d)))
    for digits in range(16):
        short = float(f"{step:.{digits}e}")
        if abs(short - step) <= slack:
            return short
    return step


def _since_first(table: Table, name: str, stamps: pd.Series) -> Float[Array, " N"]:
    """Timestamps as seconds since the first."""
    filled = stamps.dropna()
    if filled.empty:
        return np.full(len(stamps), np.nan)
    try:
        return (stamps - filled.iloc[0]).dt.total_seconds().to_numpy(np.float64)
    except (OverflowError, ValueError):
        raise DataError(
            f"{table.path}: column {name} spans more than 290 years; correct its dates."
        ) from None


def _stamps(table: Table, name: str, column: pd.Series) -> pd.Series:
    """Text as timestamps."""
    text = column.astype("string").str.strip()
    text = text.str.replace(r"(:\d{2}),(\d+)", r"\1.\2", regex=True)
    text = text.str.replace(_TWELVE, _of_24, regex=True)
    filled = text.dropna()
    if filled.str.fullmatch(_CLOCK).all():
        clock = text.where(text.str.count(":") == 2, text + ":00")
        stamps = CLOCK_DAY + pd.to_timedelta(clock, errors="coerce")
        _refuse_unread(table, name, column, stamps)
        return stamps
    if filled.str.fullmatch(_DAY_OR_MONTH_FIRST).all():
        text = _year_first(table, name, text)
    text = text.str.replace(r"^(\d{4})[/.](\d{2})[/.](\d{2})", r"\1-\2-\3", regex=True)
    stamps = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    _refuse_unread(table, name, column, stamps)
    return stamps


def _of_24(clock: re.Match[str]) -> str:
    """``01:30:00 PM`` as ``13:30:00``; an hour that is none stays for a message."""
    hour = int(clock[1])
    if not 1 <= hour <= 12:
        return clock[0]
    return f"{hour % 12 + 12 * (clock[3] in 'Pp'):02d}{clock[2]}"


def _cell_stamps(table: Table, name: str, column: pd.Series) -> pd.Series:
    """Cells of a sheet as timestamps."""
    stamps = pd.to_datetime(
        column.map(lambda cell: cell if hasattr(cell, "isoformat") else pd.NaT),
        utc=True,
        errors="coerce",
    )
    _refuse_unread(table, name, column, stamps)
    return stamps


def _refuse_unread(table: Table, name: str, cells: pd.Series, stamps: pd.Series) -> None:
    """Name the first cell that is no time."""
    bad = np.flatnonzero((stamps.isna() & cells.notna()).to_numpy())
    if len(bad):
        raise DataError(
            f"{table.path}: {table.place(int(bad[0]))}, column {name}: "
            f"{shown(cells.iloc[bad[0]])} is no time that can be read; write times in seconds or "
            "as 2024-03-01 12:00:00.5."
        )


def _year_first(table: Table, name: str, text: pd.Series) -> pd.Series:
    """Dates such as 24.12.2024 or 12/24/2024 as 2024-12-24, where only one reading is possible."""
    part = text.str.extract(_DAY_OR_MONTH_FIRST)
    first, second = part["a"].astype("Float64"), part["b"].astype("Float64")
    dots = (part["mark"].dropna() == ".").all()  # with dots the day is first everywhere
    day_first = dots or (first > 12).any()
    if not day_first and not (second > 12).any():
        example = text.dropna().iloc[0]
        raise DataError(
            f"{table.path}: column {name}: {shown(example)} may have the day or the month first; "
            "write dates as 2024-03-01."
        )
    day, month = (part["a"], part["b"]) if day_first else (part["b"], part["a"])
    date = part["year"] + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)
    return date + part["rest"]


def _check_epoch(table: Table, name: str, values: Float[Array, " N"]) -> None:
    """Refuse counts since 1970 that are not in seconds (between the years 2000 and 2100)."""
    finite = values[np.isfinite(values)]
    first = float(finite[0]) if len(finite) else 0.0
    for factor, unit in ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")):
        if 9.4e8 * factor < first < 4.2e9 * factor:
            raise DataError(
                f"{table.path}: column {name} starts at {first:.6g}, which looks like {unit} "
                "since 1970; divide it to get seconds, or use `sampling_time`."
            )
