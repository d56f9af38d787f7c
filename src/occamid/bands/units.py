"""Runs in the user's units: scales undone, the known rows in front; a word about divergence."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.data.scaling import Scaling

Array = np.ndarray
TOLD = 1e-3  # share of the posterior from which on it is said that it diverged


class DivergedWarning(UserWarning):
    """Some posterior samples left the range of the data in free run."""


def in_user_units(
    run: Run,
    scale: Scaling,
    known: Float[Array, "n ny"],
    skip: int,
    centre: Float[Array, "N ny"] | None,
) -> Run:
    """The user's units, the known rows in front.

    The first ``skip`` rows of the run belong to known outputs.  The spread is about the centre,
    which is not the mean of a few samples.
    """
    certain, front = np.zeros_like(known), [known] * len(run.levels)
    mean = scale.undo_y(run.mean[skip:])
    whole = np.concatenate([known, mean]) if centre is None else centre
    middle = whole[len(known) :]
    assert run.std is not None
    assert run.epistemic_std is not None
    assert run.aleatoric_std is not None
    assert run.quantiles is not None
    with np.errstate(invalid="ignore", over="ignore"):  # where nothing is left in the range
        aside = (mean - middle) / scale.y_scale
        std, epistemic = (np.hypot(x[skip:], aside) for x in (run.std, run.epistemic_std))
        quantiles = scale.undo_y(run.quantiles[:, skip:])

    def spread(x: Float[Array, "T ny"]) -> Float[Array, "N ny"]:
        return np.concatenate([certain, x * scale.y_scale])

    return Run(
        mean=whole,
        n_init=len(known),
        std=spread(std),
        epistemic_std=spread(epistemic),
        aleatoric_std=spread(run.aleatoric_std[skip:]),
        levels=run.levels,
        quantiles=np.concatenate([front, quantiles], axis=1),
        diverged=run.diverged,
    )


def tell_divergence(run: Run) -> Run:
    """The run; a warning where more than a sample in thousands left the range."""
    if run.diverged >= TOLD:
        warnings.warn(
            f"{run.diverged:.1%} of the posterior diverged in free run, which widens the band; are "
            "the inputs within the range of the estimation data? If so, use a sparser model (a "
            "later cycle, a larger lam), the full posterior instead of the diagonal one, or an "
            "ensemble.",
            DivergedWarning,
            stacklevel=3,
        )
    return run
