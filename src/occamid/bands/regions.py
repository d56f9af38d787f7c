"""Where in the range of an output its bands are wider than elsewhere, from held-back errors.

A posterior is as wide as the data were few; that a model is wrong in one part of its range, near
a limit or where a valve sticks, it does not know.  Errors on held-back data do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.training.criterion import independent

Array = np.ndarray
LEVELS = 5  # of an output, each in the middle of a fifth of its values
FIRM = 10.0  # independent errors that speak for no difference between levels
OUTLIER = 3.0  # times the 95 % quantile: a larger score counts as this in a mean square


class Regions(NamedTuple):
    """A factor on the band at some levels of every output, for each horizon; linear in between."""

    levels: Float[Array, "L ny"]
    factors: Float[Array, "H L ny"]

    def at(self, mean: Float[Array, "N ny"]) -> Float[Array, "H N ny"]:
        """The factors where the centre of a run is there; beyond the outermost as at those."""
        outputs = range(self.levels.shape[1])
        found = [between(mean[:, k], self.levels[:, k]) @ self.factors[:, :, k].T for k in outputs]
        return np.stack(found, axis=-1).swapaxes(0, 1)


def between(x: Float[Array, " N"], knots: Float[Array, " L"]) -> Float[Array, "N L"]:
    """Shares of both neighbouring knots in a linear interpolation; of the last one beyond."""
    x = np.nan_to_num(x)
    return np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))], axis=-1)


def levels_of(outputs: Float[Array, "N ny"]) -> Float[Array, "L ny"]:
    """Levels of every output with as many of its values around each, in rising order."""
    found = np.quantile(outputs, (np.arange(LEVELS) + 0.5) / LEVELS, axis=0)
    largest = np.abs(found).max(axis=0)
    # An output that often has one value has several levels there, and they must differ.
    apart = 1e-9 * np.where(largest > 0, largest, 1.0)
    return np.asarray(found + apart * np.arange(LEVELS)[:, None])


def factors_of(
    levels: Float[Array, "L ny"],
    means: Sequence[Float[Array, "T ny"]],
    scores: Sequence[Float[Array, "T ny"]],
) -> Float[Array, "L ny"]:
    """Factors in the proportion of the root mean squares of the scores around every level.

    One array of each for every uninterrupted run.  Scores are coloured and count as so many
    independent ones; :data:`FIRM` more say that all levels are alike.
    """
    found = np.ones_like(levels)
    for k in range(levels.shape[1]):
        n = independent([run[:, k] for run in scores])
        near = np.concatenate([between(mean[:, k], levels[:, k]) for mean in means])
        size = np.abs(np.concatenate([run[:, k] for run in scores]))
        squares = np.minimum(size, OUTLIER * np.quantile(size, 0.95)) ** 2
        rows, usual = near.sum(axis=0), np.mean(squares)
        if usual <= 0:
            continue
        seen = near.T @ squares / usual  # in each share: as many as rows where all are alike
        found[:, k] = np.sqrt((n / len(size) * seen + FIRM) / (n / len(size) * rows + FIRM))
    return found
