"""Long series made short enough to plot, without losing an extreme; numbers made short to write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int

Array = np.ndarray
LONGEST = 4000  # points of a plotted series
TOTAL = 100_000  # numbers in all free runs together: keeps the page below 6 MB
FINEST = 1e-5  # of the range of a series; finer differences cannot be seen


def decimate(columns: Float[Array, "N n"], limit: int = LONGEST) -> Int[Array, " K"]:
    """Rows to keep so that every column keeps its extremes in each of equally long buckets.

    At most ``limit`` rows, or two for each column if that is more, the first and the last row
    among them; all rows if there are no more.
    """
    count, width = columns.shape
    if count <= limit:
        return np.arange(count)
    buckets = max(1, (limit - 2) // (2 * width))
    edges = np.linspace(0, count, buckets + 1).astype(int)
    kept = {0, count - 1}
    for a, b in pairwise(edges.tolist()):
        kept |= set((a + np.argmin(columns[a:b], axis=0)).tolist())
        kept |= set((a + np.argmax(columns[a:b], axis=0)).tolist())
    return np.array(sorted(kept))


def share_of_points(series: int) -> int:
    """Points for each of this many series (measurements, bands, inputs, …) in one page."""
    return int(np.clip(TOTAL // max(1, series), 200, LONGEST))


def rounded(values: Float[Array, ...], span: float | None = None) -> list[Any]:
    """A list without digits that cannot be seen in a plot; what is not finite becomes None."""
    array = np.asarray(values, dtype=np.float64)
    finite = array[np.isfinite(array)]
    span = float(np.ptp(finite)) if span is None and finite.size else span
    if span:
        array = np.round(array, int(np.clip(np.ceil(-np.log10(span * FINEST)), -300, 300)))
    return _nulls(array.tolist())


def _nulls(values: Any) -> Any:
    if isinstance(values, list):
        return [_nulls(v) for v in values]
    return values if np.isfinite(values) else None


def number(value: Any) -> float | None:
    """A Python number, or None where it is not finite."""
    found = float(value)
    return found if np.isfinite(found) else None
