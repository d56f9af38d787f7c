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
FEWEST = 20  # independent scores below which the tail is not read off but taken from Student's t
NARROWEST, WIDEST = 0.2, 50.0
FAR = 1e3  # a score beyond, or none at all, counts as this


def held_back_inflation(scores: Sequence[Float[Array, "T ny"]]) -> Float[Array, " ny"]:
    """The factor on the bands that makes the central band hold its share of held-back errors.

    ``scores`` are signed, ``(y − mean)/std``, one array for each uninterrupted run.  With n
    independent scores it is split conformal: the ``⌈(n + 1) share⌉/n`` quantile of their size over
    the Gaussian one; with few, their root mean square times Student's factor.
    """
    scores = [np.clip(np.nan_to_num(run, nan=FAR), -FAR, FAR) for run in scores]
    size = np.abs(np.concatenate(scores))
    found = np.ones(size.shape[1])
    for k in range(size.shape[1]):
        n = independent([run[:, k] for run in scores])
        usual = norm.ppf(0.5 + SHARE / 2)
        if n < FEWEST:
            wide = t.ppf(0.5 + SHARE / 2, max(n, 1.0)) / usual
            found[k] = wide * np.sqrt(np.mean(size[:, k] ** 2))
        else:
            level = min(1.0, np.ceil((n + 1) * SHARE) / n)
            found[k] = np.quantile(size[:, k], level) / usual
    return np.clip(found, NARROWEST, WIDEST)
