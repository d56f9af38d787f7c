"""The clock of an experiment: its step, where rows are missing, and what is odd about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from occamid.data.findings import Finding
from occamid.errors import DataError, SettingsError
from occamid.reading.choose import Chosen
from occamid.reading.clock import Pace, pace
from occamid.reading.columns import Table, counted
from occamid.reading.remarks import Remarks

Array = np.ndarray
Gaps = Literal["error", "split", "fill"]
SHORTEST = 2  # rows of a piece between gaps
SAME_STEP = 1e-3  # relative; what two statements of the sampling time may differ in
SORTED = 0.01  # share of steps back in time beyond which rows are not in order at all
HOUR = 3600.0


class Options(NamedTuple):
    """What to do with time; ``lenient`` makes findings of what is otherwise refused."""

    sampling_time: float | None
    resample: float | bool | None
    gaps: Gaps
    lenient: bool = False


class Rows(NamedTuple):
    """The rows of one experiment in a table."""

    name: str
    values: Float[Array, "N n"]  # inputs, then outputs
    t: Float[Array, " N"] | None
    places: Array  # the same rows, counted in the table

    def __len__(self) -> int:
        return len(self.values)

    def only(self, kept: Bool[Array, " N"]) -> Rows:
        """Some of the rows."""
        t = None if self.t is None else self.t[kept]
        return Rows(self.name, self.values[kept], t, self.places[kept])


class Steps(NamedTuple):
    """The rows of an experiment on its clock."""

    rows: Rows
    clock: Float[Array, " N"] | None  # increasing, also where the times of the file go back
    step: float
    missing: Bool[Array, " M"]  # whether rows are missing after each of the first N - 1
    resample: bool


def steps(table: Table, chosen: Chosen, rows: Rows, options: Options, remarks: Remarks) -> Steps:
    """The sampling time, and after which rows others are missing."""
    t = rows.t
    none = np.zeros(max(len(rows.values) - 1, 0), dtype=bool)
    if t is None and options.resample is not None:
        raise SettingsError(f"{table.path}: `resample` needs a time column; name it with `time`.")
    if t is None or len(t) < SHORTEST:
        step = options.sampling_time or table.sampling_time or 1.0
        return Steps(rows, t, step, none, False)
    _check_order(table, chosen, rows, options)
    rows, repeated = _without_repeated(rows)
    assert rows.t is not None
    clock, back = _forwards(rows.t)
    found = pace(clock)
    say = Told(table, rows, found, remarks)
    say.repeated(repeated)
    say.back(np.flatnonzero(back))
    if options.resample is not None:
        step = found.step if options.resample is True else float(options.resample)
        say.gaps(np.flatnonzero(found.gaps & ~back))
        return Steps(rows, clock, step, found.gaps, True)
    if options.lenient and found.worst is not None:
        say.uneven()
        say.gaps(np.flatnonzero(found.gaps & ~back))
        return Steps(rows, clock, found.step, found.gaps, True)
    with remarks.collect():
        _refuse_uneven(table, chosen, rows.t, rows.places, found)
    if options.gaps == "error":
        with remarks.collect():
            _refuse_gaps(table, rows.t, rows.places, found)
    say.jitter()
    say.gaps(np.flatnonzero(found.gaps & ~back))
    return Steps(rows, clock, found.step, found.gaps, False)


def _check_order(table: Table, chosen: Chosen, rows: Rows, options: Options) -> None:
    """Refuse times that do not increase; a few jumps of the clock are gaps where those may be."""
    t, places = rows.t, rows.places
    assert t is not None
    back = np.flatnonzero(np.diff(t) <= 0)
    few = len(back) <= max(1, SORTED * len(t))
    if not len(back) or (few and options.gaps != "error" and options.resample is None):
        return
    k = int(back[0])
    raise DataError(
        f"{table.path}: column {chosen.time} does not increase at "
        f"{table.place(int(places[k + 1]))} (from {t[k]:.9g} to {t[k + 1]:.9g} s); sort the "
        "rows, tell experiments apart with `experiment`, or use `sampling_time`."
    )


def _without_repeated(rows: Rows) -> tuple[Rows, Array]:
    """The rows without those that repeat the one before in every cell, and where those were."""
    assert rows.t is not None
    same = (np.diff(rows.t) == 0) & np.all(
        (rows.values[1:] == rows.values[:-1])
        | (np.isnan(rows.values[1:]) & np.isnan(rows.values[:-1])),
        axis=1,
    )
    kept = np.concatenate([[True], ~same])
    return rows.only(kept), rows.places[~kept]


def _forwards(t: Float[Array, " N"]) -> tuple[Float[Array, " N"], Bool[Array, " M"]]:
    """The times with each step back made a gap, and where those are."""
    d = np.diff(t)
    back = d <= 0
    if not back.any():
        return t, back
    d[back] = 3 * np.median(d[~back]) if (~back).any() else 1.0
    return t[0] + np.concatenate([[0.0], np.cumsum(d)]), back


def _refuse_uneven(
    table: Table, chosen: Chosen, t: Float[Array, " N"], places: Array, found: Pace
) -> None:
    """Name the most uneven step, or a sampling time in the file that the steps contradict."""
    if found.worst is not None:
        raise DataError(
            f"{table.path}: the sampling is uneven: the step to "
            f"{table.place(int(places[found.worst]))} is "
            f"{t[found.worst] - t[found.worst - 1]:.4g} s, {found.deviation:.2%} off the usual "
            f"{found.step:.4g} s; interpolate to even steps with `resample`."
        )
    stated = table.sampling_time
    if stated is not None and abs(stated - found.step) > SAME_STEP * found.step:
        raise DataError(
            f"{table.path}: the file states a sampling time of {stated:g} s, but column "
            f"{chosen.time} has steps of {found.step:g} s; give the right one with `sampling_time`."
        )


def _refuse_gaps(table: Table, t: Float[Array, " N"], places: Array, found: Pace) -> None:
    """Name the first place where rows are missing."""
    gaps = np.flatnonzero(found.gaps)
    if not len(gaps):
        return
    k = int(gaps[0])
    missing = max(round((t[k + 1] - t[k]) / found.step) - 1, 1)
    raise DataError(
        f"{table.path}: {counted(missing, 'row')} missing before "
        f"{table.place(int(places[k + 1]))}: the time goes from {t[k]:.9g} to {t[k + 1]:.9g} s "
        f"where the step is {found.step:.4g} s ({counted(len(gaps), 'gap')} in all); read the "
        'pieces with `gaps="split"` or bridge the gaps with `resample`.'
    )


class Told(NamedTuple):
    """Findings about a clock, placed in the file."""

    table: Table
    rows: Rows
    pace: Pace
    remarks: Remarks

    def add(self, kind: str, severity: str, what: str, why: str, remedy: str, at: int) -> None:
        """A finding before this row."""
        place = f"{self.table.path.name}: {self.table.place(int(self.rows.places[at]))}"
        self.remarks.notes.append(
            Finding(kind, severity, "", what, why, remedy, self.rows.name, place=place)  # type: ignore[arg-type]
        )

    def gaps(self, at: Array) -> None:
        """Rows that are missing; a jump of one hour may be the clock."""
        t = self.rows.t
        assert t is not None
        if not len(at):
            return
        lost = t[at + 1] - t[at] - self.pace.step
        hours = np.abs(lost - HOUR) <= 1.5 * self.pace.step
        for k in at[hours]:
            self.add(
                "clock", "advice", "the time jumps forward by one hour",
                "the clock may have been changed, or an hour is missing",
                "log in UTC, or correct the times", int(k) + 1,
            )  # fmt: skip
        rest, lost = at[~hours], lost[~hours]
        if len(rest):
            worst = int(np.argmax(lost))
            self.add(
                "gap", "advice",
                f"{counted(len(rest), 'gap')} in time, the longest of {lost[worst]:.6g} s",
                "no model can learn across a gap, so the record is cut there",
                "fill short gaps with prepare", int(rest[worst]) + 1,
            )  # fmt: skip

    def back(self, at: Array) -> None:
        """Times that go back or stand still."""
        t = self.rows.t
        assert t is not None
        for k in at[:5]:
            back = self.pace.step - (t[k + 1] - t[k])
            what = "repeats" if t[k + 1] == t[k] else f"goes back by {back:.4g} s"
            hour = "; the clock may have been changed" if abs(back - HOUR) < 60 else ""
            self.add(
                "clock", "advice", f"the time {what}{hour}",
                "rows may be out of order, so the record is cut there",
                "log in UTC, or correct the times", int(k) + 1,
            )  # fmt: skip

    def repeated(self, places: Array) -> None:
        """Rows that were left out."""
        if len(places):
            said = f"{counted(len(places), 'row')} repeated with the same time and values"
            place = f"{self.table.path.name}: {self.table.place(int(places[0]))}"
            self.remarks.notes.append(
                Finding("repeated", "note", "", said, "each is used once", "", place=place)
            )

    def jitter(self) -> None:
        """Times that are nearly even."""
        if self.pace.jitter:
            share = self.pace.jitter / self.pace.step
            self.add(
                "jitter", "note",
                f"the times are up to {self.pace.jitter:.3g} s ({share:.1%} of a step) off even "
                "steps",
                f"they are taken as even, {self.pace.step:g} s apart", "", 0,
            )  # fmt: skip

    def uneven(self) -> None:
        """Times that are not even."""
        assert self.pace.worst is not None
        self.add(
            "uneven", "advice",
            f"the sampling is uneven, up to {self.pace.deviation:.1%} off the usual step of "
            f"{self.pace.step:.4g} s",
            "models need even steps",
            "interpolate to even steps with `resample`", self.pace.worst,
        )  # fmt: skip
