"""Faults planted in a sound record, each with the kind of finding that must name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.signal import lfilter

from occamid.data.record import Record

Array = np.ndarray
N = 3000


def good(rows: int = N, seed: int = 0, inputs: int = 1) -> Record:
    """A first-order lag with a delay of 4 samples, random steps, 2 % noise."""
    rng = np.random.default_rng(seed)
    u = np.column_stack([_steps(rng, rows + 4) for _ in range(inputs)])
    y = lfilter([0.2], [1, -0.8], u[:-4].sum(axis=1)) + 0.02 * rng.standard_normal(rows)
    return Record(u=u[4:], y=10 * y + 40, sampling_time=0.5, name="log")


def _steps(rng: np.random.Generator, rows: int) -> Array:
    holds = rng.integers(4, 40, rows // 4 + 1)
    return np.repeat(rng.uniform(-1, 1, len(holds)), holds)[:rows]


def _changed(y: Callable[[Array], Array] | None = None, **changes: Array) -> Record:
    record = good()
    if y is not None:
        changes["y"] = y(record.y[:, 0].copy())
    return replace(record, **changes)  # type: ignore[arg-type]


def _stuck(y: Array) -> Array:
    y[1000:1150] = y[1000]
    return y


def _spike(y: Array) -> Array:
    y[[700, 2100]] = 1e6
    return y


def _one_step() -> Record:
    rng = np.random.default_rng(0)
    u = np.where(np.arange(N) < 500, 0.0, 1.0)
    return Record(u=u, y=lfilter([0.2], [1, -0.8], u) + 0.02 * rng.standard_normal(N))


def _sine() -> Record:
    rng = np.random.default_rng(0)
    u = np.sin(0.1 * np.arange(N))
    return Record(u=u, y=lfilter([0.2], [1, -0.8], u) + 0.02 * rng.standard_normal(N))


def _controlled() -> Record:
    """A proportional and integral controller rejects a disturbance."""
    rng = np.random.default_rng(0)
    y, u = np.zeros(N), np.zeros(N)
    disturbance = lfilter([1.0], [1, -0.95], 0.1 * rng.standard_normal(N))
    target, total = _steps(rng, N), 0.0
    for t in range(1, N):
        y[t] = 0.8 * y[t - 1] + 0.2 * u[t - 1] + disturbance[t] - 0.8 * disturbance[t - 1]
        total += 0.1 * (target[t] - y[t])
        u[t] = 0.8 * (target[t] - y[t]) + total
    return Record(u=u, y=y, name="log")


def _together() -> Record:
    record = good(inputs=2)
    rng = np.random.default_rng(1)
    copy = 3 * record.u[:, 0] + 0.05 * rng.standard_normal(N)
    return replace(record, u=np.column_stack([record.u[:, 0], copy]))


def _slow_plant() -> Record:
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1, 1, 20), 2000)
    y = lfilter([0.001], [1, -0.999], u)
    return Record(u=u, y=y + 0.005 * rng.standard_normal(len(u)), name="log")


def _quick_plant() -> Record:
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, N)
    y = lfilter([0.0, 0.99], [1, -0.01], u) + 0.02 * rng.standard_normal(N)
    return Record(u=u, y=y, name="log")


FAULTS: dict[str, Callable[[], Record]] = {
    "stuck": lambda: _changed(_stuck),
    "outlier": lambda: _changed(_spike),
    "excitation": _one_step,
    "excitation, one sine": _sine,
    "saturation": lambda: _changed(lambda y: np.minimum(y, np.quantile(y, 0.95))),
    "quantised": lambda: _changed(lambda y: 3.0 * np.round(y / 3.0)),
    "drift": lambda: _changed(lambda y: y + np.linspace(0, 8, N)),
    "feedback": _controlled,
    "together": _together,
    "dead": lambda: _changed(lambda y: np.full(N, 7.0)),
    "too fast": _slow_plant,
    "too slow": _quick_plant,
}
