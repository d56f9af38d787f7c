"""The width of bands from errors on held-back data: the posterior gives the shape, they the scale.

It is assumed that scores ``|y − mean|/std`` on held-back data and on future data come from the same
distribution: the process and its excitation stay the same.  Errors of a free run are coloured, so
many of them say no more than a few independent ones would: they are counted by that number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import norm, t

from occamid.training.criterion import independent

Array = np.ndarray
HORIZONS = (1, 10, 100)  # steps ahead with an inflation of their own; a free run is the last
SHARE = 0.95  # the band that is made right
MARGIN = 1.05  # with which bands of four fifths of the folds held their share in the last fifth
OUTLIER = 3.0  # times that quantile: a larger score counts as this in the mean square
NARROWEST, WIDEST = 0.2, 50.0
FAR = 1e3  # a score beyond, or none at all, counts as this


def held_back_inflation(scores: Sequence[Float[Array, "T ny"]]) -> Float[Array, " ny"]:
    """The factor on the bands that makes the central band hold its share of held-back errors.

    ``scores`` are signed, ``(y − mean)/std``, one array for each uninterrupted run.  Their scale is
    the geometric mean of what their root mean square and their quantile ask for: the one is told
    better by few scores, the other is right whatever their distribution.  Student's factor for n
    independent scores, and a margin, allow for what is not known about it.
    """
    scores = [clipped(run) for run in scores]
    size = np.abs(np.concatenate(scores))
    n = np.array([independent([run[:, k] for run in scores]) for k in range(size.shape[1])])
    usual = norm.ppf(0.5 + SHARE / 2)
    wide = t.ppf(0.5 + SHARE / 2, np.maximum(n, 1.0)) / usual
    edge = np.quantile(size, SHARE, axis=0)
    mean_square = np.mean(np.minimum(size, OUTLIER * edge) ** 2, axis=0)
    found = MARGIN * wide * np.sqrt(np.sqrt(mean_square) * edge / usual)
    return np.clip(found, NARROWEST, WIDEST)


def clipped(scores: Float[Array, "T ny"]) -> Float[Array, "T ny"]:
    """Scores that can be counted with, whatever the model did."""
    return np.clip(np.nan_to_num(scores, nan=FAR), -FAR, FAR)
