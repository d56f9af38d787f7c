"""Are the bands right?  Scores of predictive distributions against measurements."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

Array = np.ndarray
SHARES = (0.5, 0.8, 0.95)


class Scores(NamedTuple):
    """How a predictive distribution fared against measurements; user's units, per output."""

    coverage: dict[float, Float[Array, " ny"]]  # share of measurements inside each central band
    log_density: Float[Array, " ny"]  # mean negative log predictive density (Gaussian)
    crps: Float[Array, " ny"]  # mean continuous ranked probability score (Gaussian)
    width: Float[Array, " ny"]  # mean width of the widest band


def covered(
    y: Float[Array, "N ny"], band: tuple[Float[Array, "N ny"], Float[Array, "N ny"]]
) -> Float[Array, " ny"]:
    """Share of measurements inside a band."""
    return np.mean((y >= band[0]) & (y <= band[1]), axis=0)


def log_density(
    y: Float[Array, "N ny"], mean: Float[Array, "N ny"], std: Float[Array, "N ny"]
) -> Float[Array, " ny"]:
    """Mean of ``−log N(y; mean, std²)``."""
    z = (y - mean) / std
    return np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi), axis=0)


def crps(
    y: Float[Array, "N ny"], mean: Float[Array, "N ny"], std: Float[Array, "N ny"]
) -> Float[Array, " ny"]:
    """Mean continuous ranked probability score (Gneiting and Raftery, 2007) of Gaussians."""
    z = (y - mean) / std
    each = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return np.mean(each, axis=0)
