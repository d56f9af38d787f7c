"""Runs with a band, whose parts are known to be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occamid import Ensemble, Record, Run

Array = np.ndarray


@dataclass(frozen=True)
class Banded:
    """A :class:`Run` that has a band."""

    mean: Array
    std: Array
    epistemic_std: Array
    aleatoric_std: Array
    levels: tuple[float, ...]
    quantiles: Array
    diverged: float


def banded(run: Run) -> Banded:
    """The parts of a run; one without a band fails."""
    assert run.std is not None
    assert run.epistemic_std is not None
    assert run.aleatoric_std is not None
    assert run.quantiles is not None
    return Banded(
        run.mean,
        run.std,
        run.epistemic_std,
        run.aleatoric_std,
        run.levels,
        run.quantiles,
        run.diverged,
    )


def simulate(model: Ensemble, record: Record, n_init: int | None = None, **options: Any) -> Banded:
    return banded(model.simulate(record, n_init, **options))


def predict(model: Ensemble, record: Record, horizon: int = 1, **options: Any) -> Banded:
    return banded(model.predict(record, horizon, **options))
