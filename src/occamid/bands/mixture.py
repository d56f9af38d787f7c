"""A mixture of posteriors as stacked arrays, and its centre."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Array = np.ndarray
Feedback = Literal["process", "none"]
WIDEST = 10.0  # standard deviations of the output: what leaves this range has diverged and
# counts as standing at its edge, where it widens the band
_TINY = np.finfo(np.float64).tiny  # instead of a variance of zero, where one is divided by


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


def together(
    shares: Float[Array, " m"],
    away: Float[Array, "m ..."],
    variance: Float[Array, "m ..."],
    noise: Float[Array, "m ..."],
) -> tuple[Float[Array, ...], Float[Array, ...]]:
    """Variances of doubt and of noise of several runs as one, around their common centre.

    ``w² + Σ s away²`` in all, with w² the geometric mean of the runs' own ``variance``: one that
    has diverged widens the band and does not drown the others.  Of w² the runs' mean share of
    ``noise`` is noise; that they disagree is doubt.
    """

    def weigh(each: Float[Array, "m ..."]) -> Float[Array, ...]:
        found: Array = np.tensordot(shares, each, axes=1)
        return found

    some = np.maximum(variance, _TINY)
    own = np.where(np.all(variance > 0, axis=0), np.exp(weigh(np.log(some))), 0.0)
    noisy = weigh(noise / some)
    return (1 - noisy) * own + weigh(away**2), noisy * own
