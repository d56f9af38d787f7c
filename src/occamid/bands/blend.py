"""Runs of several ensembles as one, and bands as wide as held-back errors ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.bands.mixture import together

Array = np.ndarray
_TINY = np.finfo(np.float64).tiny  # instead of a spread of zero


def blended(runs: Sequence[Run], shares: Float[Array, " m"]) -> Run:
    """The runs' mean by their shares; where they disagree, that is doubt about the model.

    How wide they are :func:`~occamid.bands.mixture.together`.  Quantiles lie around the centre as
    the runs' own lie around theirs, as much wider as ``std`` is.  Rows that one of the runs knows
    are known.
    """
    if len(runs) == 1:
        return runs[0]
    longest = max(runs, key=lambda run: run.n_init)
    unknown = (np.arange(len(longest)) >= longest.n_init)[:, None]

    def weigh(each: Sequence[Array]) -> Array:
        return np.tensordot(shares, np.stack(each), axes=1)

    def part(name: str) -> list[Array]:
        return [np.where(unknown, getattr(run, name), 0.0) for run in runs]

    means, widths = part("mean"), [np.where(unknown, w, 1.0) for w in part("std")]
    mean = weigh(means)
    own, noises = (np.stack(each) ** 2 for each in (widths, part("aleatoric_std")))
    doubt, noise = together(shares, np.stack(means) - mean, own, noises)
    std = np.sqrt(doubt + noise)
    around = weigh([q - m for q, m in zip(part("quantiles"), means, strict=True)])
    around = around * (std / np.maximum(weigh(widths), _TINY))
    centre = np.where(unknown, mean, longest.mean)
    return Run(
        mean=centre,
        n_init=longest.n_init,
        std=np.where(unknown, std, 0.0),
        epistemic_std=np.where(unknown, np.sqrt(np.maximum(doubt, 0.0)), 0.0),
        aleatoric_std=np.where(unknown, np.sqrt(noise), 0.0),
        levels=longest.levels,
        quantiles=centre + np.where(unknown, around, 0.0),
        diverged=float(shares @ [run.diverged for run in runs]),
    )


def widened(run: Run, factor: Float[Array, "N ny"]) -> Run:
    """The run with its band this many times as wide."""
    assert run.epistemic_std is not None
    assert run.aleatoric_std is not None
    assert run.quantiles is not None
    with np.errstate(invalid="ignore", over="ignore"):  # where nothing is left in the range
        return replace(
            run,
            std=factor * run.spread,
            epistemic_std=factor * run.epistemic_std,
            aleatoric_std=factor * run.aleatoric_std,
            quantiles=run.quantiles + (factor - 1) * (run.quantiles - run.mean),
        )
