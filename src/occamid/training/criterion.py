"""Which of several models: BIC of free runs, whose errors are coloured, and who runs away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

Array = np.ndarray
FEWEST = 10.0  # independent errors, however coloured they are
WORST = 1.5  # times the error of others is clearly worse


def criterion(
    squares: Float[Array, "K ny"], free: Int[Array, " K"], misses: Sequence[Float[Array, "T ny"]]
) -> Float[Array, " K"]:
    """BIC of models by their mean squares and free parameters, ``n Σ_o log σ_o² + k log n``.

    n is how many independent errors are worth as much as ``misses``, those of the most flexible
    model.  Counted in rows, any drift would pay for more orders.
    """
    n = effective_rows(misses)
    return n * np.sum(np.log(np.maximum(squares, 1e-300)), axis=1) + free * np.log(n)


def usable(errors: Float[Array, " K"], wild: Bool[Array, " K"]) -> Bool[Array, " K"]:
    """Which models may be used: the wild ones only where all others are clearly worse.

    Models of an unstable process run away; those of others with a pole beyond the circle fit any
    drift or ringing.
    """
    others = np.min(errors, initial=np.inf, where=~wild)
    return ~wild | (others >= WORST * np.min(errors, initial=np.inf))


def effective_rows(misses: Sequence[Float[Array, "T ny"]]) -> float:
    """How many independent errors are worth as much as these, the mean over the outputs."""
    outputs = range(misses[0].shape[1])
    counts = [independent([run[:, k] for run in misses]) for k in outputs]
    return max(FEWEST, float(np.mean(counts)))


def independent(runs: Sequence[Float[Array, " T"]]) -> float:
    """How many independent scores are worth as much as these: ``n / (1 + 2 Σ ρ_k)``.

    ρ is the autocorrelation of the scores' size, summed until it first falls to zero.
    """
    total = sum(map(len, runs))
    sizes = [np.abs(run) for run in runs]
    mean = np.mean(np.concatenate(sizes))
    centred = [size - mean for size in sizes]
    variance = sum(float(c @ c) for c in centred)
    if variance <= 0:
        return float(total)
    longest, correlated = max(map(len, runs)), 0.0
    for lag in range(1, longest):
        rho = sum(float(c[lag:] @ c[:-lag]) for c in centred if len(c) > lag) / variance
        if rho <= 0:
            break
        correlated += rho
    return total / (1 + 2 * correlated)
