"""Two plainer bands around the same runs: the paper's posterior, and split conformal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.posterior import Posterior

Array = np.ndarray
SHARE = 0.95  # of held-back errors that the constant band holds


def diagonal(model: Ensemble) -> Ensemble:
    """The same models with the paper's posterior: every weight by itself, nothing calibrated."""
    plain = combine([_alone(p) for p in model.posteriors], model.weights, model.feedback)
    beside = tuple(other._replace(model=diagonal(other.model)) for other in model.beside)
    return replace(plain, tail=model.tail, beside=beside)


def _alone(posterior: Posterior) -> Posterior:
    """Variances one over the diagonal of the precision: no weight knows of the others."""
    if posterior.factor.ndim == 1:
        return posterior
    covariance = posterior.factor @ posterior.factor.T
    precision = np.linalg.pinv(covariance, hermitian=True)
    factor = 1 / np.sqrt(np.maximum(np.diag(precision), 1 / np.diag(covariance)))
    return replace(posterior, factor=factor, method="diagonal")


def conformal(errors: Sequence[Float[Array, "T ny"]]) -> Float[Array, " ny"]:
    """A constant standard deviation whose band holds its share of the held-back errors."""
    sizes = np.abs(np.concatenate(errors))
    level = min(1.0, np.ceil((len(sizes) + 1) * SHARE) / len(sizes))
    return np.quantile(sizes, level, axis=0) / norm.ppf(0.5 + SHARE / 2)
