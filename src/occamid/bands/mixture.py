"""A mixture of posteriors as stacked arrays, and its centre."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Array = np.ndarray
Feedback = Literal["process", "none"]
WIDEST = 10.0  # standard deviations of the output: what leaves this range has diverged and
# counts as standing at its edge, where it widens the band


class Mixture(NamedTuple):
    """Stacked members in the parameters of one common network, scaled units."""

    mean: Float[Array, "K P"]
    factor: Float[Array, "K P r"] | Float[Array, "K P"]
    noise_std: Float[Array, "K ny"]
    weights: Float[Array, " K"]
    centre: Float[Array, " ny"]  # mean and standard deviation of the estimation outputs
    spread: Float[Array, " ny"]


def weighted_median(runs: Float[Array, "K ..."], weights: Float[Array, " K"]) -> Float[Array, ...]:
    """The centre of the members' runs, sample by sample; where two tie, their mean."""
    order = np.argsort(runs, axis=0)
    share = np.cumsum(weights[order], axis=0)
    middle = np.argmax(share >= 0.5 - 1e-12, axis=0)[None]
    upper = np.argmax(share > 0.5 + 1e-12, axis=0)[None]
    ranked = np.take_along_axis(runs, order, axis=0)
    ends = (np.take_along_axis(ranked, at, axis=0)[0] for at in (middle, upper))
    return np.mean(list(ends), axis=0)
