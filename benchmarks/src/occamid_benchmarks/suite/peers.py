"""Established models on the rows of the suite, fitted once for each record.

Only what needs no further package: ARX and output error with orders by BIC, and subspace
identification.  ``others`` has those that need an environment of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.assessment.metrics import rmse
from occamid.bands.ensemble import Ensemble
from occamid.data.record import Record
from occamid.errors import DataError, OccamidError
from occamid.identification.assemble import Workshop
from occamid.identification.families import CLASSICAL, Family
from occamid.identification.folds import whole
from occamid.identification.options import BUDGETS
from occamid.identification.thinning import thin
from occamid_benchmarks.baselines.grid import delays, tried
from occamid_benchmarks.baselines.subspace import StateSpace, fit_subspace

Array = np.ndarray
ROWS = 10_000  # what peers see at most, as the standard effort does
ORDERS, HORIZON = (1, 2, 3, 4, 6, 8, 10, 14), 20  # of the subspace models


class Peer(NamedTuple):
    """A fitted model; none where the records do not allow one, and ``about`` says why."""

    model: Ensemble | StateSpace | None
    about: str
    seconds: float

    @property
    def fewest_known(self) -> int:
        """How many first outputs its free run must know."""
        if self.model is None:
            return 0
        known = self.model.fewest_known if isinstance(self.model, Ensemble) else self.model.max_lag
        return max(1, known)

    def errors(self, record: Record, n_init: int) -> Float[Array, " ny"]:
        """RMSE of the free run after ``n_init`` known outputs, infinite where it diverges."""
        missing = np.full(record.y.shape[1], np.inf)
        if self.model is None or n_init >= len(record):
            return missing
        with np.errstate(all="ignore"):
            found = rmse(record.y, self.model.free_run(record.u, record.y[:n_init]), n_init)
        return np.where(np.isfinite(found), found, np.inf)


def fit_peers(records: Sequence[Record]) -> dict[str, Peer]:
    """Every peer on the same rows, at full strength whatever the effort of the suite."""
    data = thin(tuple(records), ROWS)
    shop = Workshop(whole(data), BUDGETS["standard"])
    fits: dict[str, Callable[[], tuple[Ensemble | StateSpace, str]]] = {
        family.name: partial(_classical, shop, family) for family in CLASSICAL
    }
    return {n: _fitted(fit) for n, fit in (fits | {"subspace": partial(_subspace, data)}).items()}


def _fitted(fit: Callable[[], tuple[Ensemble | StateSpace, str]]) -> Peer:
    began = time.perf_counter()
    try:
        model, about = fit()
    except (OccamidError, np.linalg.LinAlgError) as error:
        return Peer(None, f"failed: {error}", time.perf_counter() - began)
    return Peer(model, about, time.perf_counter() - began)


def _classical(shop: Workshop, family: Family) -> tuple[Ensemble, str]:
    model = shop.model(family)
    return model, f"{family.name} on {len(model.regressors)} regressors"


def _subspace(records: Sequence[Record]) -> tuple[StateSpace, str]:
    """The order and delay with the smallest BIC of the free run."""
    # It knows nothing of inputs from before a piece, whose outputs are blanked.
    data = tuple(r[r.lead :] if r.lead else r for r in records)
    grid = product(ORDERS, sorted({0, *delays(data)}))
    models = tried((partial(fit_subspace, data, n, d, HORIZON) for n, d in grid), data)
    if not models:
        raise DataError("the records are too short for subspace identification.")
    best: StateSpace = min(models, key=lambda model: model.criterion)
    return best, best.describe()
