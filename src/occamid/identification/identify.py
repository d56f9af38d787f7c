"""Identify: records in, a model with bands out, nothing chosen by hand.

Every family of :mod:`occamid.identification.families` is cross-validated by the referee: a block of
every record is held back, the family is trained on the rest, and its ensemble simulates the block
from the block's own first samples.  The best family of the simplest kind whose free-run error is
nearly the smallest is trained again on everything.  The test record of a user is never seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occamid.bands.ensemble import Ensemble
from occamid.data.record import Record, as_records
from occamid.files.checkpoints import Checkpoints
from occamid.identification.assemble import assemble
from occamid.identification.families import Family, families
from occamid.identification.options import Options
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import Trial, choose, cross_validate, sharing_settings
from occamid.training.batch import Batch
from occamid.training.train import train

PIECE = 500  # rows; very long records are trained on evenly spaced pieces


@dataclass(frozen=True, eq=False)
class Fit:
    """What was identified, and how it was chosen.

    Attributes:
        model: the models with their bands.
        family: what was chosen.
        trials: every family with its cross-validated error, in the order they were tried.
        batch: the last training, every restart and cycle.
        records: what was trained on (pieces of it, where the records were very long).
        options: what was asked for.
    """

    model: Ensemble
    family: Family
    trials: tuple[Trial, ...]
    batch: Batch
    records: tuple[Record, ...]
    options: Options

    @property
    def expected_rmse(self) -> tuple[float, ...]:
        """Free-run error to expect on new data, per output: that of the cross-validation."""
        own = [t.rmse for t in self.trials if t.family == self.family.name]
        return own[0] if own else tuple(float("nan") for _ in self.model.inflation)


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
    data = thin(as_records(records), options.budget.rows)
    tried = families(options, data)
    several = len(tried) > 1
    trainings = len(sharing_settings(tried)) * options.budget.folds if several else 0
    clock = Clock(progress, trainings)
    trials = cross_validate(tried, data, options, clock, checkpoints) if several else []
    chosen = choose(tried, trials)
    bar = clock.sub(f"training {chosen.name}")
    batch = train(data, chosen.settings, progress=bar, checkpoints=checkpoints)
    clock.tell(f"ensemble of {chosen.name}")
    model = assemble(batch, chosen, data, options)
    clock.finish()
    return Fit(model, chosen, tuple(trials), batch, data, options)


def thin(records: tuple[Record, ...], most: int) -> tuple[Record, ...]:
    """At most about this many rows: evenly spaced pieces where the records are longer."""
    total = sum(map(len, records))
    if total <= most:
        return records
    pieces: list[Record] = []
    for record in records:
        count = max(1, round(most / PIECE * len(record) / total))
        length = min(PIECE, len(record))
        starts = np.linspace(0, len(record) - length, count).round().astype(int)
        pieces += [
            replace(record[int(s) : int(s) + length], name=f"{record.name} from row {s}")
            for s in starts
        ]
    return tuple(pieces)
