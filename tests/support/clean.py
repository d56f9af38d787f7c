"""Random sound records: linear and nonlinear systems, usual inputs, some noise, some delay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from occamid.data.record import Record
from occamid.data.twins import multisine

Array = np.ndarray
Rng = np.random.Generator


class Sound(NamedTuple):
    """A record without a fault, and what is true about it."""

    record: Record
    test: Record
    delay: int
    about: str


def sound(seed: int) -> Sound:
    """Record number ``seed``."""
    rng = np.random.default_rng(10_000 + seed)
    inputs = int(rng.choice([1, 1, 2]))
    kind = str(rng.choice(list(SIGNALS)))
    system = str(rng.choice(["linear", "linear", "hammerstein", "wiener", "bilinear"]))
    noise = float(rng.choice([0.0, 0.01, 0.05, 0.1, 0.2]))
    delay = int(rng.choice([1, 1, 2, 3, 5, 10, 20]))
    rows = int(rng.choice([600, 1000, 2000, 5000]))
    pace = int(rng.integers(3))
    step = float(rng.choice([0.01, 0.1, 1.0, 60.0]))
    a, gains = _poles(rng), rng.uniform(0.5, 2.0, 2)
    offset = rng.normal(0, 10, 3)

    def experiment(n: int, name: str) -> Record:
        u = np.column_stack([SIGNALS[kind](rng, n + 100, pace) for _ in range(inputs)])
        x = sum(gains[j] * _drive(system, u[:, j]) for j in range(inputs))
        late = np.concatenate([np.zeros(delay), x[: len(x) - delay]])
        y = lfilter([np.sum(a)], a, late)
        y = {"wiener": np.tanh(y) + 0.3 * y, "bilinear": y + 0.2 * y * np.abs(y)}.get(system, y)
        y = y[100:]
        colour = float(rng.choice([0.0, 0.7]))
        e = lfilter([1.0], [1.0, -colour], rng.standard_normal(n))
        y = y + noise * y.std() * e / e.std()
        scale = np.array([1.0, 7.0])[:inputs]
        return Record(
            u=scale * u[100:] + offset[:inputs], y=30 * y + offset[2], sampling_time=step, name=name
        )

    record, test = experiment(rows, f"sound {seed}"), experiment(rows // 2, f"sound {seed} test")
    return Sound(record, test, delay, f"{system}, {kind}, noise {noise:g}, {rows} rows, {inputs}")


def _poles(rng: Rng) -> Array:
    """First to third order, from quick to slow, some with a resonance."""
    poles: list[complex] = list(rng.uniform(0.5, 0.97, int(rng.integers(1, 3))))
    if rng.random() < 0.4:
        pole = rng.uniform(0.7, 0.95) * np.exp(1j * rng.uniform(0.1, 0.8))
        poles = [poles[0], pole, np.conj(pole)]
    return np.poly(poles).real


def _drive(system: str, u: Array) -> Array:
    return u + 0.5 * u**2 if system == "hammerstein" else u


def _prbs(rng: Rng, n: int, pace: int) -> Array:
    hold = (1, 3, 8)[pace]
    return np.repeat(np.where(rng.random(n // hold + 1) < 0.5, 1.0, -1.0), hold)[:n]


def _sines(rng: Rng, n: int, pace: int) -> Array:
    return multisine(rng, n, (0.02, 0.05, 0.2)[pace])[:, 0]


def _steps(rng: Rng, n: int, pace: int) -> Array:
    holds = rng.integers(5, (20, 40, 60)[pace], n // 5 + 1)
    return np.repeat(rng.uniform(-1, 1, len(holds)), holds)[:n]


def _filtered(rng: Rng, n: int, pace: int) -> Array:
    pole = (0.5, 0.8, 0.95)[pace]
    found = lfilter([1.0], [1.0, -pole], rng.standard_normal(n))
    return found / found.std()


SIGNALS: dict[str, Callable[[Rng, int, int], Array]] = {
    "prbs": _prbs,
    "multisine": _sines,
    "steps": _steps,
    "filtered noise": _filtered,
}
