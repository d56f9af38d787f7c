"""The automatic mode: records in, an ensemble with bands out, nothing chosen by hand.

Every family of :mod:`occamid.identification.families` is cross-validated: a block of every record
is held back, the family is trained on the rest, and its ensemble simulates the block from the
block's own first samples.  The best family of the simplest kind whose free-run error is nearly
the smallest is trained again on everything.  The test record of a user is never seen here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble, combine, no_narrower_than_seen
from occamid.bands.posterior import LARGEST as MOST_WEIGHTS
from occamid.bands.posterior import Posterior, fit_posterior
from occamid.data.record import Record, as_records
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.families import Family, Plan, families
from occamid.training.batch import Result
from occamid.training.free_run import refine
from occamid.training.members import batch_of
from occamid.training.model import Model
from occamid.training.train import Progress, identify

Array = np.ndarray
SIMPLER = 1.10  # a simpler kind may be this much worse in cross-validation
PIECE = 500  # rows; very long records are trained on evenly spaced pieces
FEWEST_BLOCK = 20  # rows a held-back block must have after its initial window
WORST = 1.5  # members whose free-run error exceeds the median by this factor are left out


class Stage(NamedTuple):
    """Where the automatic mode stands."""

    what: str
    share: float  # of the whole work, 0 to 1
    seconds: float


class Trial(NamedTuple):
    """A family in cross-validation: free-run error on blocks it was not trained on."""

    family: str
    about: str
    rmse: tuple[float, ...]  # per output, in the user's units
    score: float  # over all outputs, in standard deviations
    seconds: float


@dataclass(frozen=True, eq=False)
class Automatic:
    """What the automatic mode found.

    Attributes:
        ensemble: the models with their bands.
        family: what was chosen.
        trials: every family with its cross-validated error, in the order they were tried.
        result: the last training, every restart and cycle.
        records: what was trained on (pieces of it, where the records were very long).
    """

    ensemble: Ensemble
    family: Family
    trials: tuple[Trial, ...]
    result: Result
    records: tuple[Record, ...]
    plan: Plan

    @property
    def expected_rmse(self) -> tuple[float, ...]:
        """Free-run error to expect on new data, per output: that of the cross-validation."""
        own = [t.rmse for t in self.trials if t.family == self.family.name]
        return own[0] if own else tuple(float("nan") for _ in self.ensemble.inflation)


def identify_auto(
    records: Record | Iterable[Record],
    plan: Plan | None = None,
    *,
    progress: Callable[[Stage], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Automatic:
    """Identify a dynamic system without choosing lags, widths, λ, cycles or restarts.

    Args:
        records: estimation data; several records are several experiments of one system.
        plan: effort, seed, and what is to be fixed; by default nothing is.
        progress: called as the work goes on.
        checkpoints: where finished cycles are kept.
    """
    plan = plan or Plan()
    data = thin(as_records(records), plan.budget.rows)
    tried = families(plan, data)
    clock = _Clock(progress, plan.budget.folds, tried)
    trials: list[Trial] = []
    if len(tried) > 1:
        trials = cross_validate(tried, data, plan, clock, checkpoints)
    chosen = choose(tried, trials)
    result = identify(
        data,
        chosen.settings,
        progress=clock.sub(f"training {chosen.name}"),
        checkpoints=checkpoints,
    )
    clock.tell(f"ensemble of {chosen.name}")
    ensemble = assemble(result, chosen, data, plan)
    clock.finish()
    return Automatic(ensemble, chosen, tuple(trials), result, data, plan)


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


def choose(tried: Sequence[Family], trials: Sequence[Trial]) -> Family:
    """The best family of the simplest kind whose cross-validated error is nearly the best."""
    scores = {t.family: t.score for t in trials}
    if not scores or not np.isfinite(min(scores.values())):
        return tried[0]
    near = SIMPLER * min(scores.values())
    kind = next(f.kind for f in tried if scores[f.name] <= near)
    return min((f for f in tried if f.kind == kind), key=lambda f: scores[f.name])


def cross_validate(
    tried: Sequence[Family],
    records: tuple[Record, ...],
    plan: Plan,
    clock: _Clock,
    checkpoints: Checkpoints | None,
) -> list[Trial]:
    """Free-run errors of every family on blocks of the records that it was not trained on."""
    spread = np.std(np.concatenate([r.y for r in records]), axis=0)
    squares: dict[str, list[Array]] = {f.name: [] for f in tried}
    seconds = dict.fromkeys(squares, 0.0)
    for fold in range(plan.budget.folds):
        blocks = [_block(len(r), fold, plan.budget.folds) for r in records]
        for group in _sharing_settings(tried):
            began = time.perf_counter()
            what = f"cross-validation {fold + 1} of {plan.budget.folds}, {group[0].name}"
            found = _fold(group, records, blocks, plan, clock.sub(what), checkpoints)
            for family, errors in zip(group, found, strict=True):
                squares[family.name].append(errors)
                seconds[family.name] += (time.perf_counter() - began) / len(group)
    trials = []
    for family in tried:
        rmse = np.sqrt(np.mean(np.concatenate(squares[family.name]), axis=0))
        rmse = np.where(np.isfinite(rmse), rmse, np.inf)
        score = float(np.sqrt(np.mean((rmse / spread) ** 2)))
        trials.append(
            Trial(family.name, family.about, tuple(map(float, rmse)), score, seconds[family.name])
        )
    return trials


def _sharing_settings(tried: Sequence[Family]) -> list[list[Family]]:
    """Families of the same settings together: they share a training."""
    found: list[list[Family]] = []
    for family in tried:
        if found and found[-1][0].settings == family.settings:
            found[-1].append(family)
        else:
            found.append([family])
    return found


def _block(rows: int, fold: int, folds: int) -> slice:
    return slice(rows * fold // folds, rows * (fold + 1) // folds)


def _fold(
    group: Sequence[Family],
    records: tuple[Record, ...],
    blocks: Sequence[slice],
    plan: Plan,
    progress: Callable[[Progress], None],
    checkpoints: Checkpoints | None,
) -> list[Float[Array, "N ny"]]:
    """Squared errors on the held-back blocks, for each family that shares this training."""
    settings = group[0].settings
    ny = records[0].y.shape[1]
    failed = [np.full((1, ny), np.inf)] * len(group)
    try:
        result = identify(
            records,
            settings.replace(restarts=max(2, settings.restarts // 2)),
            held_back=blocks,
            progress=progress,
            checkpoints=checkpoints,
        )
        models = chosen_models(result, plan.budget.members)
    except DataError:  # too short for these lags without the block, or no model was usable
        return failed
    found = []
    for family in group:
        members = models
        if family.refined:
            steps = max(1, plan.budget.iterations // 2)
            posteriors = refine(models, records, iterations=steps, held_back=blocks)
            members = [p.model for p in posteriors]
        found.append(_held_back_squares(members, records, blocks, result.start, ny))
    return found


def _held_back_squares(
    members: Sequence[Model],
    records: tuple[Record, ...],
    blocks: Sequence[slice],
    start: int,
    ny: int,
) -> Float[Array, "N ny"]:
    """Squared errors of the median free run through each block after its own first samples."""
    batch = batch_of(members)
    parts = []
    for record, rows in zip(records, blocks, strict=True):
        block = record[rows]
        if len(block) < start + FEWEST_BLOCK:
            continue
        runs = batch.simulate(block.u, block.y[:start])
        with np.errstate(all="ignore"):
            miss = (np.median(runs, axis=0) - block.y)[start:] ** 2
        parts.append(np.where(np.isfinite(miss), miss, np.inf))
    return np.concatenate(parts) if parts else np.full((1, ny), np.inf)


def chosen_models(result: Result, count: int) -> list[Model]:
    """The best models on the estimation data as Occam ranks them, one for each λ and restart.

    Always the same number (the best ones again where there are fewer), so that what is compiled
    for one fold serves the next.
    """
    order = result.ranking(count)
    return [result.model(index) for index in (order * count)[:count]]


def assemble(result: Result, family: Family, records: tuple[Record, ...], plan: Plan) -> Ensemble:
    """The ensemble of a family's best models, or the one nearest to it with ``plan.single``."""
    models = _distinct(chosen_models(result, plan.budget.members))
    if family.refined:
        posteriors = refine(models, records, iterations=plan.budget.iterations)
    else:
        posteriors = [fit_posterior(m, records, _method(m)) for m in models]
    feedback: Any = "none" if family.refined or family.settings.output_lags == 0 else "process"
    ensemble = combine(_usable(posteriors, records), feedback=feedback)
    if plan.single:
        return nearest_member(ensemble, records)
    return no_narrower_than_seen(ensemble, records)


def _method(model: Model) -> Any:
    small = model.compact()
    return "full" if small.parameters <= MOST_WEIGHTS else "diagonal"


def _distinct(models: Sequence[Model]) -> list[Model]:
    """Each model once."""
    seen: dict[bytes, Model] = {}
    for model in models:
        seen.setdefault(b"".join(np.asarray(v).tobytes() for v in model.weights.values()), model)
    return list(seen.values())


def _usable(posteriors: Sequence[Posterior], records: tuple[Record, ...]) -> list[Posterior]:
    """Members whose free run on the estimation data is not far worse than the others'."""
    batch = batch_of([p.model for p in posteriors])
    squares = []
    with np.errstate(all="ignore"):
        for r in records:
            miss = (batch.simulate(r.u, r.y[: batch.like.start]) - r.y)[:, batch.like.start :]
            squares.append((miss / batch.like.scaling.y_scale) ** 2)
        errors = np.sqrt(np.mean(np.concatenate(squares, axis=1), axis=(1, 2)))
    finite = np.where(np.isfinite(errors), errors, np.inf)
    if not np.isfinite(finite).any():
        raise DataError("no model is usable in free run; use more data, other lags or --effort.")
    worst = WORST * np.median(finite[np.isfinite(finite)])
    return [p for p, e in zip(posteriors, finite, strict=True) if e <= worst]


def nearest_member(ensemble: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """The member whose free runs are nearest to the ensemble's, by itself."""
    distance = np.zeros(len(ensemble.weights))
    for record in records:
        known = record.y[: ensemble.start]
        apart = ensemble.batch.simulate(record.u, known) - ensemble.simulate(record.u, known)
        distance += np.sum((apart / ensemble.first.scaling.y_scale) ** 2, axis=(1, 2))
    member = ensemble.posteriors[int(np.argmin(distance))]
    return no_narrower_than_seen(combine([member], feedback=ensemble.feedback), records)


class _Clock:
    """Turns the progress of many trainings into one: equal shares for folds and the last run."""

    def __init__(
        self, progress: Callable[[Stage], None] | None, folds: int, tried: Sequence[Family]
    ) -> None:
        self._progress = progress
        self._began = time.perf_counter()
        trainings = len(_sharing_settings(tried)) * folds if len(tried) > 1 else 0
        self._share = 1.0 / (trainings + 2)  # the last training counts twice
        self._before, self._done = -self._share, 0.0

    def sub(self, what: str) -> Callable[[Progress], None]:
        """Progress of one more training."""
        self._before += self._share
        self._done = self._before
        self.tell(what)

        def step(p: Progress) -> None:
            self._done = self._before + self._share * p.done / p.total
            self.tell(what)

        return step

    def tell(self, what: str) -> None:
        """Say what goes on."""
        if self._progress:
            seconds = time.perf_counter() - self._began
            self._progress(Stage(what, min(1.0, self._done), seconds))

    def finish(self) -> None:
        """All is done."""
        self._done = 1.0
        self.tell("done")
