"""Whether the inputs move enough, over which frequencies, and apart from each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.signal import welch

from occamid.assessment.check.signals import Channel, finding, runs_of
from occamid.data.findings import Finding

Array = np.ndarray
FEWEST_MOVES = 3  # times that an input must go up or down
ONE_LINE = 0.95  # share of the power in a single frequency
TOGETHER = 0.95  # of an input's variance explained by the other inputs
OUTSIDE, FAR_OUTSIDE = 0.02, 0.1  # of the test rows beyond a tenth more than the others' range
SEGMENT = 16384  # rows of a spectrum
MOST = 50  # inputs that are compared


def excitation(channel: Channel) -> Iterator[Finding]:
    """Findings about one input."""
    moves = sum(map(_moves, channel.parts))
    x = max(channel.parts, key=len)
    step = channel.records[0].sampling_time
    if moves < FEWEST_MOVES:
        yield finding(
            "excitation", "advice", channel.name,
            (f"{channel.word} goes up or down only {moves} time{'s' if moves != 1 else ''}",
             "one step shows a gain and a rough time constant, not the dynamics",
             "record more steps of different length and height"),
        )  # fmt: skip
        return
    if len(x) < 64 or np.ptp(x) == 0:
        return
    power = np.abs(np.fft.rfft((x - x.mean()) * np.hanning(len(x)))) ** 2
    top = int(np.argmax(power))
    if power[max(0, top - 2) : top + 3].sum() > ONE_LINE * power.sum() and top > 2:
        yield finding(
            "excitation", "advice", channel.name,
            (f"{channel.word} is a sine of {top / (len(x) * step):.4g} Hz and little else",
             "one frequency shows one point of the dynamics", "excite more frequencies"),
        )  # fmt: skip
        return
    low, high = band(x, step)
    yield finding(
        "band", "note", channel.name,
        (f"{channel.word} excites {low:.3g} to {high:.3g} Hz (90 % of its power)",
         "the model is only known there", ""),
    )  # fmt: skip


def band(x: Float[Array, " N"], step: float) -> tuple[float, float]:
    """Frequencies between which 90 % of the power of a signal lies, in Hz."""
    f, power = welch(x - x.mean(), 1 / step, nperseg=min(len(x), SEGMENT), detrend=False)
    share = np.cumsum(power) / power.sum()
    return float(f[np.searchsorted(share, 0.05)]), float(f[np.searchsorted(share, 0.95)])


def together(channels: list[Channel]) -> Iterator[Finding]:
    """Inputs that are nearly a combination of the others."""
    moving = [c for c in channels if c.is_input and np.ptp(c.all) > 0][:MOST]
    if len(moving) < 2:
        return
    R = np.corrcoef([c.all for c in moving])
    n = len(moving)
    explained = 1 - 1 / np.diag(np.linalg.inv(R + 1e-9 * np.eye(n)))
    twins = np.flatnonzero(explained > TOGETHER)
    if not len(twins):
        return
    names = [moving[k].name for k in twins]
    yield finding(
        "together", "advice", ", ".join(names),
        (f"inputs {', '.join(names)} move together ({explained[twins].min():.1%} of the variance "
         "of each is explained by the others)", "what each of them does cannot be told apart",
         "record data in which they move apart, or leave all but one out"),
    )  # fmt: skip


def outside(channels: list[Channel], test: list[Channel]) -> Iterator[Finding]:
    """Test data beyond what the estimation data covers."""
    for mine, theirs in zip(channels, test, strict=True):
        low, high = float(mine.all.min()), float(mine.all.max())
        slack = 0.1 * (high - low)
        places = [
            (r, runs_of((x < low - slack) | (x > high + slack)))
            for r, x in zip(theirs.records, theirs.parts, strict=True)
        ]
        rows = sum(int(np.sum(s[:, 1] - s[:, 0] + 1)) for _, s in places)
        share = rows / max(1, sum(map(len, theirs.parts)))
        if share > OUTSIDE:
            yield finding(
                "range", "advice" if share > FAR_OUTSIDE else "note", mine.name,
                (f"{share:.1%} of the test data of {mine.word} lies outside of the estimation "
                 f"data ({low:.4g} to {high:.4g})", "there the model extrapolates",
                 "estimate on data that covers the range of use"),
                places,
            )  # fmt: skip


def _moves(x: Float[Array, " N"]) -> int:
    """How often a signal goes from low to high or back: half a standard deviation either side."""
    centre, spread = x.mean(), x.std()
    if not spread:
        return 0
    side = np.where(x > centre + 0.5 * spread, 1, np.where(x < centre - 0.5 * spread, -1, 0))
    side = side[side != 0]
    return int(np.sum(np.diff(side) != 0))
