"""Spikes: lone peaks far above the usual ones and outside of the usual range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Array = np.ndarray
FEW_VALUES = 20  # a signal of fewer different values is made of levels
SPIKE = 9.0  # times the 98th percentile of peaks
BEYOND = 0.3  # of the usual range, outside of which a peak is a spike
WIDTHS = (1, 2, 3)  # samples of a spike


class Usual(NamedTuple):
    """What a signal is usually like."""

    peak: float
    low: float
    high: float


def usual(parts: Sequence[Float[Array, " N"]]) -> Usual:
    """The 98th percentile of peaks, and the range of all but two in a hundred samples."""
    low, high = np.percentile(np.concatenate(parts), [1, 99])
    peak = np.percentile(np.concatenate([_peaks(x) for x in parts]), 98)
    return Usual(float(peak), float(low), float(high))


def spikes(x: Float[Array, " N"], limits: Usual | None = None) -> Bool[Array, " N"]:
    """Which samples are spikes; none in a signal that is made of few levels."""
    if limits is None:
        if len(np.unique(x)) <= FEW_VALUES:
            return np.zeros(len(x), dtype=bool)
        limits = usual([x])
    peak, low, high = limits
    reach = BEYOND * (high - low)
    if reach <= 0:
        return np.zeros(len(x), dtype=bool)
    return (_peaks(x) > SPIKE * peak) & ((x < low - reach) | (x > high + reach))


def _peaks(x: Float[Array, " N"]) -> Float[Array, " N"]:
    """How far a sample is above or below both neighbours, one to three samples away."""
    best = np.zeros(len(x))
    for width in WIDTHS:
        if len(x) <= 2 * width:
            break
        before, after = x[width:-width] - x[: -2 * width], x[width:-width] - x[2 * width :]
        lone = np.where(before * after > 0, np.minimum(np.abs(before), np.abs(after)), 0.0)
        np.maximum(best[width:-width], lone, out=best[width:-width])
    return best
