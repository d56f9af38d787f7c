"""A small identification that compiles and runs in a moment."""

from __future__ import annotations

import numpy as np

from occamid import Record, Settings

SMALL = Settings(
    hidden=(4,),
    input_lags=3,
    output_lags=2,
    restarts=4,
    cycles=3,
    epochs=30,
    lam=(2e-3,),
    precision="double",
)


def small_record(samples: int = 120, seed: int = 0, name: str = "small") -> Record:
    """A mildly nonlinear second-order process."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=samples)
    y = np.zeros(samples)
    for t in range(2, samples):
        y[t] = 0.6 * y[t - 1] - 0.2 * y[t - 2] + np.tanh(u[t - 1]) + 0.05 * rng.normal()
    return Record(u=u, y=2 + 3 * y, sampling_time=0.1, name=name)
