"""Identify: records in, a model with bands out, nothing chosen by hand.

The referee tries every family of :mod:`occamid.identification.families` on held-back data and
chooses; the chosen one is trained again on everything, and its bands are made as wide as the
held-back errors ask for.  The test record of a user is never seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occamid.bands.ensemble import Ensemble, widen_to_residuals
from occamid.bands.start import tail_of
from occamid.data.record import Record, as_records
from occamid.files.checkpoints import Checkpoints
from occamid.identification.assemble import Workshop, nearest_member
from occamid.identification.expected import CURVE, calibrated, expected, learning_gain, own_error
from occamid.identification.families import Family, families
from occamid.identification.folds import rows_of
from occamid.identification.folds import whole as everything
from occamid.identification.options import Options
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import Trial, judge
from occamid.identification.thinning import thin
from occamid.networks import Network, Observer
from occamid.networks.flat import size
from occamid.training.batch import Batch
from occamid.training.cores import small_algebra


@dataclass(frozen=True, eq=False)
class Fit:
    """What was identified, and how it was chosen.

    Attributes:
        model: the models with their bands.
        family: what was chosen.
        trials: every family with its error on held-back data, in the order they were tried.
        grounds: why this family was chosen, a sentence for people.
        batch: the last training, every restart and cycle; none where there is no such thing.
        records: what was trained on (pieces of it, where the records were very long).
        options: what was asked for.
        expected_rmse: free-run error to expect on new data, per output, from held-back data;
            not a number where nothing could be held back.
        expected_interval: its 95 % interval, (low, high) per output.
        rows_given: rows of all estimation records, of which ``records`` may be a part.
    """

    model: Ensemble
    family: Family
    trials: tuple[Trial, ...]
    grounds: str
    batch: Batch | None
    records: tuple[Record, ...]
    options: Options
    expected_rmse: tuple[float, ...]
    expected_interval: tuple[tuple[float, float], ...]
    rows_given: int = 0

    @property
    def coverage_of_data(self) -> str:
        """How much of the data was trained on, and which pieces."""
        rows = sum(len(r) - r.lead for r in self.records)
        said = f"trained on {rows} of {max(self.rows_given, rows)} rows"
        if rows >= self.rows_given:
            return said
        pieces = ", ".join(f"{r.name} ({len(r) - r.lead} rows)" for r in self.records)
        return f"{said}: {pieces}; a higher effort trains on more"


@small_algebra()
def identify(
    records: Record | Iterable[Record],
    options: Options | None = None,
    *,
    progress: Callable[[Stage], None] | None = None,
    checkpoints: Checkpoints | None = None,
    **changes: Any,
) -> Fit:
    """Identify a dynamic system without choosing lags, widths, λ, cycles or restarts.

    Args:
        records: estimation data; several records are several experiments of one system.
        options: effort, seed, and what is to be fixed; by default nothing is.
        progress: called as the work goes on.
        checkpoints: where finished cycles are kept.
        **changes: single options by name: ``identify(records, effort="quick", seed=1)``; see
            :class:`Options`.
    """
    options = Options(**((options.given() if options else {}) | changes))
    whole = as_records(records)
    data = thin(whole, options.budget.rows)
    shown = tuple(r[r.lead :] if r.lead else r for r in data)  # without inputs from before them
    given = sum(map(len, whole))
    tried = families(options, data, given)
    clock = Clock(progress, len(tried) * options.budget.folds + CURVE)
    judgement = judge(whole, options, clock, checkpoints)
    family = next(f for f in tried if f.name == judgement.chosen)
    # What sums over time can be trained on every row; the quick effort does not.
    every = family.search is not None and options.effort != "quick"
    shop = Workshop(everything(whole if every else data), options.budget, checkpoints)
    model = shop.model(family, clock.sub(f"training {family.name}"))
    clock.tell(f"bands of {family.name}")
    hearing = judgement.hearings.get(family.name)
    if hearing:
        gain = learning_gain(family, hearing, options, rows_of(shop.records), clock, given)
        model = calibrated(model, hearing, gain)
        own = own_error(model, shop.records)
        error, low, high = (np.maximum(own, value) for value in expected(hearing, gain))
    else:
        model = widen_to_residuals(model, shown)
        error = low = high = np.full(model.inflation.shape[1], np.nan)
    clock.finish()
    batch = None if family.settings is None else shop.batch(family.settings)
    model = nearest_member(model, shown) if options.single else model
    candidates = size(_candidate(model, family) if batch is None else batch.network)
    return Fit(
        model=replace(model, tail=tail_of(whole, model.start), candidates=candidates),
        family=family,
        trials=judgement.trials,
        grounds=judgement.grounds,
        batch=batch,
        records=whole if every else shown,
        options=options,
        expected_rmse=tuple(error.tolist()),
        expected_interval=tuple(zip(low.tolist(), high.tolist(), strict=True)),
        rows_given=given,
    )


def _candidate(model: Ensemble, family: Family) -> Network:
    """The network before its pruning, where it was not trained as a batch."""
    network = model.network
    if family.search is None or not isinstance(network, Observer):
        return network
    return replace(network.plant, units=family.search.units)
