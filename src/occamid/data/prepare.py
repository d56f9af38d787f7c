"""Prepare records: ranges, gaps, spikes, trends, filters and new steps, as settings in a file.

The steps are applied in the order of the fields of :class:`Steps`.  What can be repeated on new
data is repeated by :func:`apply_steps`; ranges and merging belong to the log they were made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.signal import butter, sosfiltfilt

from occamid.data.record import Record, as_records
from occamid.data.spikes import spikes
from occamid.data.steps import Steps
from occamid.errors import DataError, SettingsError

Array = np.ndarray
SPLINTER = 0.1  # of a piece; a cut this near to its end is made there
SHORT, FEW = 0.05, 0.05  # of the longest piece; of all rows, in pieces that are left out
ORDER = 4  # of the filters; twice that, as they run forwards and backwards


def prepare(
    records: Record | Iterable[Record], steps: Steps | None = None, **changes: Any
) -> tuple[Record, ...]:
    """Records prepared for identification.

    Args:
        records: one record or several.
        steps: what is done; see :class:`Steps`.
        **changes: single steps by name: ``prepare(records, decimate=5, mask_outliers=True)``.
    """
    steps = Steps(**((steps.given() if steps else {}) | changes))
    whole = _filled(list(as_records(records)), steps.fill)
    before = np.cumsum([0, *map(len, whole)])
    found = [
        piece for r, n in zip(whole, before[:-1], strict=True) for piece in _cut(r, int(n), steps)
    ]
    if not found:
        raise DataError("nothing is left after `keep_rows`, `drop_rows` and the like.")
    found = [_worked(record, steps) for record in found]
    found = _without_means(found, steps)
    return (_merged(found),) if steps.merge and len(found) > 1 else tuple(found)


def fitted(steps: Steps, records: Record | Iterable[Record]) -> Steps:
    """The steps with the means that they remove from these records, to be repeated on others."""
    if steps.remove == "nothing":
        return steps
    still = prepare(records, steps, remove="nothing", offsets={}, merge=False)
    return Steps(**(steps.given() | {"offsets": _means(still)}))


def apply_steps(steps: Steps, record: Record) -> Record:
    """What can be repeated on new data: spikes, steps in time, filters, the same means.

    A line cannot be continued beyond its log: where trends were removed, the means of the log are
    taken off.  :func:`put_back` undoes that on outputs.
    """
    return _less(_worked(record, steps), steps.offsets)


def put_back(
    steps: Steps, names: tuple[str, ...], y: Float[Array, "... ny"]
) -> Float[Array, "... ny"]:
    """Outputs of a model of prepared data, with the means that were removed."""
    return y + np.array([steps.offsets.get(name, 0.0) for name in names])


def split_in_time(
    records: Iterable[Record], share: float
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """The first rows of all records, in their order, and the rest: one cut, not one in each."""
    found = tuple(records)
    total = sum(map(len, found))
    cut = round(share * total)
    if not 0 < cut < total:
        found[0].split(share)  # raises: there is no such row
    ends = np.cumsum([len(record) for record in found])
    k = int(np.searchsorted(ends, cut, side="left"))
    inside = cut - int(ends[k] - len(found[k]))
    splinter = SPLINTER * len(found[k])
    if k > 0 and inside < splinter:  # a whole piece rather than a splinter of the next
        k, inside = k - 1, len(found[k - 1])
    elif k + 1 < len(found) and len(found[k]) - inside < splinter:
        inside = len(found[k])
    before, after = found[: k + 1], found[k + 1 :]
    if inside < len(found[k]):
        before, after = (*found[:k], found[k][:inside]), (found[k][inside:], *after)
    return before, after


def without_splinters(records: tuple[Record, ...]) -> tuple[tuple[Record, ...], int]:
    """The records without those far shorter than the longest, if they hold little, and their rows.

    Lags cannot be longer than the shortest record allows.
    """
    longest = max(map(len, records))
    kept = tuple(record for record in records if len(record) >= SHORT * longest)
    lost = sum(map(len, records)) - sum(map(len, kept))
    return (kept, lost) if 0 < lost <= FEW * sum(map(len, records)) else (records, 0)


def _cut(record: Record, before: int, steps: Steps) -> list[Record]:
    """The pieces that the ranges leave; rows count over all records, times within the log."""
    row = before + np.arange(len(record))
    time = record.start + (row - before) * record.sampling_time
    kept = np.ones(len(record), dtype=bool)
    for ranges, on in ((steps.keep_rows, row), (steps.keep_times, time)):
        if ranges:
            kept &= np.any([(on >= a) & (on <= b) for a, b in ranges], axis=0)
    for ranges, on in ((steps.drop_rows, row), (steps.drop_times, time)):
        for a, b in ranges:
            kept &= (on < a) | (on > b)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(np.int8)))
    spans = [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a > 1]
    if spans == [(0, len(record))]:
        return [record]
    many = len(spans) > 1
    return [
        replace(record[a:b], name=f"{record.name} part {k}" if many else record.name)
        for k, (a, b) in enumerate(spans, 1)
    ]


def _filled(records: list[Record], most: int) -> list[Record]:
    """Pieces of one log with few rows missing between them, joined by straight lines."""
    found = records[:1]
    for record in records[1:]:
        last, step = found[-1], record.sampling_time
        end = last.start + (len(last) - 1) * step
        missing = round((record.start - end) / step) - 1
        if not (0 < missing <= most and _log(last) == _log(record)):
            found.append(record)
            continue
        weights = (np.arange(1, missing + 1) / (missing + 1))[:, None]
        u, y = (
            np.concatenate([a, a[-1] + weights * (b[0] - a[-1]), b])
            for a, b in ((last.u, record.u), (last.y, record.y))
        )
        found[-1] = replace(last, u=u, y=y)
    return found


def _log(record: Record) -> str:
    """The log that a piece is from: its name without the number."""
    return record.name.rpartition(" #")[0] or record.name


def _worked(record: Record, steps: Steps) -> Record:
    """Spikes, steps in time and filters."""
    if steps.mask_outliers:
        record = _each(record, _without_spikes)
    if steps.decimate > 1:
        record = record.decimate(steps.decimate)
    if steps.resample is not None and steps.resample != record.sampling_time:
        record = _resampled(record, steps.resample)
    if steps.low_pass is not None or steps.high_pass is not None:
        record = _pass(record, steps)
    return record


def _each(record: Record, change: Callable[[Float[Array, " N"]], Float[Array, " N"]]) -> Record:
    u, y = (np.column_stack([change(column) for column in x.T]) for x in (record.u, record.y))
    return replace(record, u=u, y=y)


def _without_spikes(x: Float[Array, " N"]) -> Float[Array, " N"]:
    bad = spikes(x)
    if not bad.any():
        return x
    row = np.arange(len(x))
    return np.where(bad, np.interp(row, row[~bad], x[~bad]), x)


def _resampled(record: Record, step: float) -> Record:
    """Interpolated linearly; towards longer steps a filter comes first."""
    factor = int(step // record.sampling_time)
    if factor > 1:
        record = record.decimate(factor)
    t = np.arange(len(record)) * record.sampling_time
    grid = np.arange(int(t[-1] / step + 1e-9) + 1) * step
    if len(grid) < 2:
        raise SettingsError(f"`resample` {step:g} is longer than the record {record.name}.")
    return replace(_each(record, lambda x: np.interp(grid, t, x)), sampling_time=step)


def _pass(record: Record, steps: Steps) -> Record:
    """A Butterworth filter that runs forwards and backwards, so that nothing comes late."""
    rate = 1 / record.sampling_time
    edges = {"`high_pass`": steps.high_pass, "`low_pass`": steps.low_pass}
    for name, edge in edges.items():
        if edge is not None and edge >= rate / 2:
            raise SettingsError(
                f"{name} {edge:g} Hz is not below half the sampling rate ({rate / 2:g} Hz)."
            )
    ends = [edge for edge in edges.values() if edge is not None]
    if len(ends) == 2 and ends[0] >= ends[1]:
        raise SettingsError("`high_pass` must be below `low_pass`.")
    kind = "bandpass" if len(ends) == 2 else "lowpass" if steps.low_pass else "highpass"
    sos = butter(ORDER, ends if len(ends) == 2 else ends[0], kind, fs=rate, output="sos")
    if len(record) <= 3 * (2 * len(sos) + 1):
        raise DataError(f'record "{record.name}": {len(record)} rows are too few to filter.')
    return _each(record, lambda x: sosfiltfilt(sos, x))


def _without_means(records: list[Record], steps: Steps) -> list[Record]:
    if steps.offsets:
        means: Mapping[str, float] = steps.offsets
    elif steps.remove != "nothing":
        means = _means(records)
    else:
        return records
    if steps.remove == "trends":
        records = [_each(record, _level) for record in records]
    return [_less(record, means) for record in records]


def _level(x: Float[Array, " N"]) -> Float[Array, " N"]:
    """A signal without its line in time; its mean stays."""
    t = np.linspace(-1, 1, len(x))
    return x - t * (t @ x) / (t @ t)


def _means(records: Iterable[Record]) -> dict[str, float]:
    kept = list(records)
    names = (*kept[0].input_names, *kept[0].output_names)
    values = np.concatenate([np.concatenate([r.u, r.y], axis=1) for r in kept]).mean(axis=0)
    return dict(zip(names, map(float, values), strict=True))


def _less(record: Record, means: Mapping[str, float]) -> Record:
    u = record.u - [means.get(name, 0.0) for name in record.input_names]
    y = record.y - [means.get(name, 0.0) for name in record.output_names]
    return replace(record, u=u, y=y)


def _merged(records: list[Record]) -> Record:
    """One record of all; each seam is a jump that never was, which is why this is asked for."""
    u, y = (np.concatenate([getattr(r, x) for r in records]) for x in ("u", "y"))
    return replace(records[0], u=u, y=y, name=_log(records[0]))
