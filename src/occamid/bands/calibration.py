"""Conformal inflation: bands as wide as errors on held-back data ask for.

It assumes that the scores ``|y − mean|/std`` on held-back blocks of the estimation data and on
future data come from the same distribution: the process and its excitation stay the same, and
blocks are long against the memory of the process.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

Array = np.ndarray


def conformal_inflation(scores: Float[Array, "S ny"], share: float = 0.95) -> Float[Array, " ny"]:
    """The factor on the bands that makes the central ``share`` band hold that share of the scores.

    Split conformal: the ``ceil((S + 1) share)``-th smallest score over the Gaussian one.
    """
    rank = min(int(np.ceil((len(scores) + 1) * share)), len(scores)) - 1
    return np.sort(scores, axis=0)[rank] / norm.ppf(0.5 + share / 2)
