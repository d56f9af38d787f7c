"""Linear systems with known answers, and what every model that simulates must do."""

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from occamid import DataError, Record

Rng = np.random.Generator
A = np.array([1.0, -1.5, 0.7])  # poles of modulus 0.84
B = np.array([0.0, 0.0, 1.0, 0.5])  # two samples of delay
C = np.array([1.0, -0.6])


def system(rng: Rng, n: int, noise: str = "none", std: float = 0.1, offset: float = 0.0) -> Record:
    """A second-order system; noise in the equation, coloured by C, or at the output."""
    u = rng.normal(size=n + 100)
    e = std * rng.normal(size=n + 100)
    y = lfilter(B, A, u)
    if noise == "equation":
        y = y + lfilter([1.0], A, e)
    elif noise == "armax":
        y = y + lfilter(C, A, e)
    elif noise == "output":
        y = y + e
    return Record(u=u[100:] + offset, y=y[100:] + 3 * offset)


def check_free_run(model: Any, record: Record) -> None:
    """A free run copies its window, keeps its arguments and names what does not fit."""
    u, known = record.u[:60].copy(), record.y[:12].copy()
    run = model.free_run(u, known)
    assert run.shape == (60, 1)
    np.testing.assert_array_equal(run[:12], record.y[:12])
    np.testing.assert_array_equal(u, record.u[:60])
    np.testing.assert_array_equal(known, record.y[:12])
    np.testing.assert_array_equal(model.free_run(u[:, 0], known[:, 0]), run)
    run[:] = 0  # a copy: the caller's window is not touched
    assert known.any()
    with pytest.raises(FrozenInstanceError):
        model.criterion = 0.0
    lag = model.max_lag
    assert len(model.free_run(u, known[:lag])) == 60
    with pytest.raises(DataError, match=f"y_init has {lag - 1} samples; the model needs the fir"):
        model.free_run(u, known[: lag - 1])
    with pytest.raises(DataError, match="nothing is left to simulate"):
        model.free_run(u[:12], known)
    with pytest.raises(DataError, match=r"u has shape \(60, 2\); the model has 1 inputs"):
        model.free_run(np.ones((60, 2)), known)
    with pytest.raises(DataError, match=r"y_init has shape \(12, 3\); the model has 1 outputs"):
        model.free_run(u, np.ones((12, 3)))
    with pytest.raises(DataError, match="u holds values that are not finite"):
        model.free_run(np.full((60, 1), np.nan), known)
