"""A plant historian's export: what an engineer gets on the first day, with everything in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.signal import lfilter

Array = np.ndarray
ROWS, DEAD_TIME, GAP = 21_600, 40, 1200
INPUTS, OUTPUTS = ("valve", "pump", "feed temperature"), ("temperature", "level")
UNITS = ("", "%", "rpm", "degC", "degC", "m")
STUCK = (9000, 9600)  # of the level, rows of the export
CHANGE = 15_000  # row at which the clock is set back by an hour
GAP_AT = 5000
BLANKS = 24


class Export(NamedTuple):
    """The process without faults, as columns, and the rows that the export leaves out."""

    frame: pd.DataFrame
    missing: slice


def process(seed: int = 0, rows: int = ROWS + GAP) -> pd.DataFrame:
    """Two outputs of three inputs at 1 Hz.

    The valve has an equal-percentage characteristic, ``flow = 50^(valve/100 − 1)``, and heats the
    vessel after 40 s; the pump fills it against an outflow through the same valve.
    """
    rng = np.random.default_rng(seed)
    valve = _levels(rng, rows, 30.0, 90.0, 120, 500)
    pump = _levels(rng, rows, 900.0, 1500.0, 150, 700)
    feed = 18 + lfilter([0.02], [1, -0.98], rng.standard_normal(rows))
    flow = 50.0 ** (valve / 100 - 1)
    late = np.concatenate([np.full(DEAD_TIME, flow[0]), flow[:-DEAD_TIME]])
    temperature = _lag(60.0, feed + 45 * late)
    level = _lag(120.0, 2.5 * pump / 1200 - 1.5 * flow)
    noisy = [x + s * rng.standard_normal(rows) for x, s in ((temperature, 0.15), (level, 0.01))]
    columns = (valve, pump, feed, *noisy)
    return pd.DataFrame(dict(zip((*INPUTS, *OUTPUTS), columns, strict=True))).round(4)


def write_export(path: Path, seed: int = 0) -> Path:
    """The export with units, jitter, a clock change, a gap, a stuck sensor and blank cells."""
    rng = np.random.default_rng(seed + 1)
    frame = process(seed).astype(object)
    seconds = np.arange(len(frame)) + rng.uniform(-0.005, 0.005, len(frame))
    kept = np.r_[:GAP_AT, GAP_AT + GAP : len(frame)]
    frame, seconds = frame.iloc[kept].reset_index(drop=True), seconds[kept]
    seconds[CHANGE:] -= 3600
    frame.loc[STUCK[0] : STUCK[1] - 1, "level"] = frame.loc[STUCK[0], "level"]
    for row in rng.choice(np.r_[100:4900, 5200:8900, 10_000:14_900, 16_000:ROWS], BLANKS):
        frame.loc[row, rng.choice([*INPUTS, *OUTPUTS])] = None
    stamps = pd.Timestamp("2024-10-26 22:00:00") + pd.to_timedelta(np.round(seconds, 3), unit="s")
    frame.insert(0, "timestamp", stamps.strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3])
    head, rest = frame.to_csv(index=False, lineterminator="\n").split("\n", 1)
    path.write_text(f"{head}\n{','.join(UNITS)}\n{rest}", encoding="utf-8")
    return path


def _levels(rng: np.random.Generator, rows: int, low: float, high: float, *hold: int) -> Array:
    holds = rng.integers(hold[0], hold[1], rows // hold[0] + 1)
    return np.repeat(np.round(rng.uniform(low, high, len(holds)), 1), holds)[:rows]


def _lag(seconds: float, x: Array) -> Array:
    pole = np.exp(-1 / seconds)
    found, _ = lfilter([1 - pole], [1, -pole], x, zi=[pole * x[0]])
    return found
