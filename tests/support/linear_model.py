"""A linear model made by hand, whose bands have closed forms."""

from __future__ import annotations

from functools import cache

import numpy as np

from occamid import Model, Posterior, Record
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.networks import MLP


@cache
def linear_model(a: float = 0.9, b: float = 0.5) -> Model:
    """``y(t) = a y(t-1) + b u(t-1)`` in scaled units, the user's ones being others."""
    return Model(
        network=MLP(2, (1,), 1, "identity", bias=False),
        terms=Terms(((0, 1),), ((0, 1),), ("u",), ("y",)),
        scaling=Scaling(*(np.array([v]) for v in (0.3, 1.5, -2.0, 4.0, 0.3, 1.5, -2.0, 4.0))),
        weights={"layer0.W": np.array([[b, a]]), "layer1.W": np.array([[1.0]])},
        start=1,
        prior_widths={"layer0.W": np.ones((1, 2)), "layer1.W": np.ones((1, 1))},
    )


def linear_posterior(
    model: Model, sigma: float = 0.0, spread: tuple[float, float] = (0.0, 0.0)
) -> Posterior:
    """Doubt about b and a only, uncorrelated; noise in scaled units."""
    return Posterior(
        model=model,
        method="full",
        positions=np.array([0, 1]),
        factor=np.diag(spread),
        widths=np.ones(2),
        noise_variance=np.array([sigma**2]),
        effective=2.0,
        log_evidence=0.0,
    )


def linear_record(samples: int = 60, seed: int = 0) -> Record:
    rng = np.random.default_rng(seed)
    return Record(u=rng.normal(size=samples), y=-2 + 4 * rng.normal(size=samples))
