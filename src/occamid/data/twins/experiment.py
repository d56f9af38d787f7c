"""What a twin is: two experiments with a simulated process and the truth beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record

Array = np.ndarray
Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Twin:
    """Data of a simulated process and what is true about it.

    ``noise_std`` is the standard deviation of what is added per output: to the measurement, or
    inside the difference equation where ``noise_enters`` is "equation".
    """

    name: str
    estimation: Record
    test: Record
    estimation_clean: Float[Array, "N ny"]
    test_clean: Float[Array, "M ny"]
    noise_std: tuple[float, ...]
    noise_enters: str
    true_regressors: tuple[str, ...] | None = None
    delay: int | None = None
    order: int | None = None  # how many states it has, where those are hidden


class Signals(NamedTuple):
    """One experiment: input, output without noise, output with noise."""

    u: Float[Array, "N nu"]
    clean: Float[Array, "N ny"]
    measured: Float[Array, "N ny"]


def multisine(rng: Rng, samples: int, band: float) -> Float[Array, "N 1"]:
    """Random-phase sum of sines up to ``band`` cycles per sample, unit standard deviation."""
    lines = np.arange(1, max(2, int(band * samples)) + 1)
    phases = rng.uniform(0, 2 * np.pi, len(lines))
    signal = np.cos(2 * np.pi * np.outer(np.arange(samples) / samples, lines) + phases).sum(axis=1)
    return (signal / signal.std())[:, None]


def steps(rng: Rng, samples: int, shortest: int, longest: int) -> Float[Array, "N 1"]:
    """Random levels in ±1, each held for a random number of samples."""
    holds = rng.integers(shortest, longest + 1, samples // shortest + 1)
    return np.repeat(rng.uniform(-1.0, 1.0, len(holds)), holds)[:samples, None]


def twin(
    name: str,
    seed: int,
    experiment: Callable[[Rng, int], Signals],
    samples: tuple[int, int],
    noise: tuple[float, ...],
    sampling_time: float,
    *,
    true: tuple[str, ...] | None = None,
    delay: int | None = None,
    order: int | None = None,
) -> Twin:
    """Two experiments from one generator.  True regressors are given for equation noise only."""
    rng = np.random.default_rng(seed)
    (est, est_clean), (test, test_clean) = (
        (
            Record(u=s.u, y=s.measured, sampling_time=sampling_time, name=f"{name} {part}"),
            s.clean,
        )
        for part, n in zip(("estimation", "test"), samples, strict=True)
        for s in (experiment(rng, n),)
    )
    enters = "measurement" if true is None else "equation"
    return Twin(name, est, test, est_clean, test_clean, noise, enters, true, delay, order)
