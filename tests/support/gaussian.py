"""Measurements and the Gaussian distribution that made them."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from occamid import Record, Run
from occamid.bands.ensemble import LEVELS


def gaussian(
    samples: int, levels: tuple[float, ...] = LEVELS, stretch: float = 1.0, n_init: int = 0
) -> tuple[Record, Run]:
    """Measurements of two outputs, and the distribution that made them (or a wider one)."""
    rng = np.random.default_rng(3)
    mean, std = rng.normal(size=(samples, 2)), rng.uniform(0.5, 3.0, (samples, 2))
    y = mean + std * rng.normal(size=mean.shape)
    wide = stretch * std
    quantiles = norm(mean, wide).ppf(np.array(levels)[:, None, None])
    record = Record(u=np.zeros(samples), y=y)
    return record, Run(mean, n_init, wide, wide, 0 * wide, levels, quantiles)
