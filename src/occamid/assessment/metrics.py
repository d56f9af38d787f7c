"""Errors as engineers know them, per output, in the user's units."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

Array = np.ndarray


def rmse(
    measured: Float[Array, "N ny"], modelled: Float[Array, "N ny"], skip: int = 0
) -> Float[Array, " ny"]:
    """Root mean square error after the first ``skip`` samples."""
    return np.sqrt(np.mean((measured[skip:] - modelled[skip:]) ** 2, axis=0))


def fit_percent(
    measured: Float[Array, "N ny"], modelled: Float[Array, "N ny"], skip: int = 0
) -> Float[Array, " ny"]:
    """``100 (1 − ‖y − ŷ‖ / ‖y − mean(y)‖)``, the *fit* of MATLAB's ``compare``."""
    spread = np.std(measured[skip:], axis=0)
    return 100 * (1 - rmse(measured, modelled, skip) / spread)
