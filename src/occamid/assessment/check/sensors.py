"""What sensors do wrong: dead, stuck, saturated, coarse, with spikes, drifting.

Thresholds were set on simulated records (tests/support/clean.py), never on a benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from occamid.assessment.check.signals import Channel, finding, runs_of
from occamid.data.findings import Finding
from occamid.data.spikes import FEW_VALUES, spikes, usual

Array = np.ndarray
LONG = 20  # equal samples in a row that may be a stuck sensor
UNLIKELY = 1e-9  # probability of a run of equal samples in a sound signal
MOVES = 0.1  # of its standard deviation, by which an input must move while an output is stuck
AT_LIMIT = 0.01  # share of samples at the largest or smallest value
COARSE, FINE = 8.0, 30.0  # standard deviation in units of the last digit
BINS = 200  # in which a drift is looked for
DRIFTS = 60.0  # squared t-value of a line in time, effective samples counted


def sensors(channel: Channel, inputs: Float[Array, "N nu"]) -> Iterator[Finding]:
    """Findings about one channel; ``inputs`` of all records tell whether anything moved."""
    x = channel.all
    low, high = float(x.min()), float(x.max())
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        yield finding(
            "dead", "fault", channel.name,
            (f"{channel.word} never changes ({low:g})", "nothing can be learnt from it",
             "leave it out"),
        )  # fmt: skip
        return
    values, counts = np.unique(x, return_counts=True)
    limits = list(_saturated(channel, values, counts))
    yield from limits
    yield from _stuck(channel, inputs, (low, high), {f.severity for f in limits})
    yield from _outliers(channel, len(values))
    if not channel.is_input:
        yield from _coarse(channel, values, float(x.std()))
        yield from _drift(channel)


def _saturated(
    channel: Channel, values: Float[Array, " K"], counts: Int[Array, " K"]
) -> Iterator[Finding]:
    """Many samples exactly at the largest or smallest value, though the signal is no staircase."""
    total = int(counts.sum())
    if len(values) <= FEW_VALUES:
        return
    for limit, at, near in (
        (values[-1], counts[-1], counts[-4:-1]),
        (values[0], counts[0], counts[1:4]),
    ):
        if at < max(8, AT_LIMIT * total) or at < 3 * near.max() or at < 10 * np.median(counts):
            continue
        places = [
            (r, runs_of(x == limit)) for r, x in zip(channel.records, channel.parts, strict=True)
        ]
        visits = sum(len(spans) for _, spans in places)
        if at < 2 * visits or (visits == 1 and at < 5 * AT_LIMIT * total):
            continue
        yield finding(
            "saturation", "note" if channel.is_input else "advice", channel.name,
            (f"{channel.word} stays at {limit:g} for {at / total:.1%} of the samples",
             "beyond a limit it no longer shows what the process does",
             "" if channel.is_input else "widen the range of the sensor, or leave these rows out"),
            places,
        )  # fmt: skip


def _stuck(
    channel: Channel,
    inputs: Float[Array, "N nu"],
    limits: tuple[float, float],
    saturated: set[str],
) -> Iterator[Finding]:
    """Long runs of one value in a signal that otherwise changes all the time."""
    spread = inputs.std(axis=0)
    offsets = np.cumsum([0, *map(len, channel.parts)])
    still = [_still(x) for x in channel.parts]
    total = int(offsets[-1])
    inside = sum(int(np.sum(s[:, 1] - s[:, 0] + 1)) for s in still)
    others = total - inside
    if not inside or others < 0.2 * total:
        return
    equal = sum(int(np.sum(np.diff(x) == 0)) for x in channel.parts)
    often = max((equal - sum(int(np.sum(s[:, 1] - s[:, 0])) for s in still)) / others, 1e-3)
    if often > 0.5:
        return
    least = max(LONG, np.log(UNLIKELY / total) / np.log(often))
    places = []
    for record, x, spans, offset in zip(
        channel.records, channel.parts, still, offsets, strict=False
    ):
        kept = [
            (a, b)
            for a, b in spans
            if b - a + 1 >= least
            and not (saturated and x[a] in limits)
            and (channel.is_input or _moved(inputs[offset + a : offset + b + 1], spread))
        ]
        places.append((record, np.array(kept, dtype=int).reshape(-1, 2)))
    found = sum(len(spans) for _, spans in places)
    if found:
        longest = max(int(b - a + 1) for _, spans in places for a, b in spans)
        yield finding(
            "stuck", "advice", channel.name,
            (f"{channel.word} stands still {found} time{'s' if found > 1 else ''}, the longest "
             f"for {longest} samples" + ("" if channel.is_input else ", while an input moves"),
             "the sensor may be stuck; a model would learn that nothing happens",
             "leave these rows out with prepare, or mend the sensor"),
            places,
        )  # fmt: skip


def _still(x: Float[Array, " N"]) -> Int[Array, "K 2"]:
    """Runs of at least LONG equal samples."""
    spans = runs_of(np.diff(x) == 0) + np.array([0, 1])
    return spans[spans[:, 1] - spans[:, 0] + 1 >= LONG]


def _moved(u: Float[Array, "n nu"], spread: Float[Array, " nu"]) -> bool:
    """Whether an input moves in the first part of a run; what comes late may act later still."""
    early = u[: max(2, int(0.6 * len(u)))]
    return bool(np.any(early.std(axis=0) > MOVES * spread))


def _coarse(channel: Channel, values: Float[Array, " K"], spread: float) -> Iterator[Finding]:
    """An output on a grid that is coarse for how much it moves."""
    steps = np.diff(values)
    if len(values) < 3 or not spread:
        return
    unit = float(steps.min())
    if spread / unit >= FINE or unit < 1e-9 * spread:
        return
    even = np.abs(steps / unit - np.rint(steps / unit)) < 0.01
    if even.mean() < 0.95:
        return
    yield finding(
        "quantised", "advice" if spread / unit < COARSE else "note", channel.name,
        (f"{channel.word} is known in steps of {unit:.4g}, its standard deviation is "
         f"{spread / unit:.1f} of them", "what is finer cannot be learnt, and looks like noise",
         "log more digits, or use larger inputs"),
    )  # fmt: skip


def _outliers(channel: Channel, values: int) -> Iterator[Finding]:
    """Lone peaks far above the usual ones and outside of the usual range."""
    if values <= FEW_VALUES:
        return
    limits = usual(channel.parts)
    places = [
        (r, runs_of(spikes(x, limits))) for r, x in zip(channel.records, channel.parts, strict=True)
    ]
    found = sum(len(spans) for _, spans in places)
    if found:
        size = max(float(np.abs(x - np.median(x)).max()) for x in channel.parts)
        yield finding(
            "outlier", "advice", channel.name,
            (f"{channel.word} has {found} spike{'s' if found > 1 else ''}, up to {size:.4g} from "
             "the middle", "squared errors weigh them more than everything else",
             "mask them with prepare"),
            places,
        )  # fmt: skip


def _drift(channel: Channel) -> Iterator[Finding]:
    """A line in time that the inputs do not explain, in the longest record."""
    k = int(np.argmax([len(x) for x in channel.parts]))
    record, x = channel.records[k], channel.parts[k]
    if len(x) < 2 * BINS:
        return
    edges = np.linspace(0, len(x), BINS + 1).astype(int)
    lengths = np.diff(edges)
    y = np.add.reduceat(x, edges[:-1]) / lengths
    u = np.add.reduceat(record.u[:, :10], edges[:-1], axis=0) / lengths[:, None]
    lags = [np.roll(u, lag, axis=0) for lag in range(4)]
    regressors = np.concatenate([*lags, np.ones((BINS, 1))], axis=1)[4:]
    line = np.linspace(-1, 1, BINS)[4:]
    y_rest, line_rest = (
        v - regressors @ np.linalg.lstsq(regressors, v, rcond=None)[0] for v in (y[4:], line)
    )
    power = float(line_rest @ line_rest)
    slope = float(line_rest @ y_rest) / power if power > 1e-9 else 0.0
    rest = y_rest - slope * line_rest
    variance = float(rest @ rest) + 1e-300
    rho = min(max(float(rest[1:] @ rest[:-1]) / variance, 0.0), 0.99)
    effective = len(rest) * (1 - rho) / (1 + rho)
    if slope**2 * power / variance * effective < DRIFTS or abs(slope) < 0.25 * x.std():
        return
    yield finding(
        "drift", "advice", channel.name,
        (f"{channel.word} drifts by {2 * slope:.4g} over the record, which no input explains",
         "a simulation cannot follow a drift", "remove trends with prepare, or predict from "
         "measured outputs instead of simulating"),
        [(record, np.array([[0, len(x) - 1]]))],
    )  # fmt: skip
