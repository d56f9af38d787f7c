"""The referee: every family in free run on blocks it was not trained on, and the choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.assemble import best_models
from occamid.identification.families import Family
from occamid.identification.options import Options
from occamid.identification.progress import Clock
from occamid.training.free_run import refine
from occamid.training.members import members_of
from occamid.training.model import Model
from occamid.training.train import Progress, train

Array = np.ndarray
SIMPLER = 1.10  # a simpler kind may be this much worse in cross-validation
FEWEST_BLOCK = 20  # rows a held-back block must have after its initial window


class Trial(NamedTuple):
    """A family in cross-validation: free-run error on blocks it was not trained on."""

    family: str
    about: str
    rmse: tuple[float, ...]  # per output, in the user's units
    score: float  # over all outputs, in standard deviations
    seconds: float


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
    options: Options,
    clock: Clock,
    checkpoints: Checkpoints | None,
) -> list[Trial]:
    """Free-run errors of every family on blocks of the records that it was not trained on."""
    spread = np.std(np.concatenate([r.y for r in records]), axis=0)
    squares: dict[str, list[Array]] = {f.name: [] for f in tried}
    seconds = dict.fromkeys(squares, 0.0)
    for fold in range(options.budget.folds):
        blocks = [_block(len(r), fold, options.budget.folds) for r in records]
        for group in sharing_settings(tried):
            began = time.perf_counter()
            what = f"cross-validation {fold + 1} of {options.budget.folds}, {group[0].name}"
            found = _fold(group, records, blocks, options, clock.sub(what), checkpoints)
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


def sharing_settings(tried: Sequence[Family]) -> list[list[Family]]:
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
    options: Options,
    progress: Callable[[Progress], None],
    checkpoints: Checkpoints | None,
) -> list[Float[Array, "N ny"]]:
    """Squared errors on the held-back blocks, for each family that shares this training."""
    settings = group[0].settings
    ny = records[0].y.shape[1]
    failed = [np.full((1, ny), np.inf)] * len(group)
    try:
        batch = train(
            records,
            settings.replace(restarts=max(2, settings.restarts // 2)),
            held_back=blocks,
            progress=progress,
            checkpoints=checkpoints,
        )
        models = best_models(batch, options.budget.members)
    except DataError:  # too short for these lags without the block, or no model was usable
        return failed
    found = []
    for family in group:
        members = models
        if family.refined:
            steps = max(1, options.budget.iterations // 2)
            refined = refine(models, records, iterations=steps, held_back=blocks)
            members = [r.model for r in refined]
        found.append(_held_back_squares(members, records, blocks, batch.start, ny))
    return found


def _held_back_squares(
    members: Sequence[Model],
    records: tuple[Record, ...],
    blocks: Sequence[slice],
    start: int,
    ny: int,
) -> Float[Array, "N ny"]:
    """Squared errors of the median free run through each block after its own first samples."""
    together = members_of(members)
    parts = []
    for record, rows in zip(records, blocks, strict=True):
        block = record[rows]
        if len(block) < start + FEWEST_BLOCK:
            continue
        runs = together.free_run(block.u, block.y[:start])
        with np.errstate(all="ignore"):
            miss = (np.median(runs, axis=0) - block.y)[start:] ** 2
        parts.append(np.where(np.isfinite(miss), miss, np.inf))
    return np.concatenate(parts) if parts else np.full((1, ny), np.inf)
