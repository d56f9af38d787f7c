"""What to expect of the chosen model: its error, what more data brings, and bands by horizon.

All of it from the free runs that the :mod:`~occamid.identification.referee` heard in the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import t

from occamid.assessment.run import Run
from occamid.bands.calibration import HORIZONS, clipped, held_back_inflation
from occamid.bands.ensemble import Ensemble
from occamid.bands.regions import Regions, factors_of, levels_of
from occamid.bands.units import DivergedWarning
from occamid.data.record import Record
from occamid.identification.folds import Part
from occamid.identification.hearing import Hearing, as_used, miss_of, rmse_of
from occamid.training.cores import side_by_side

Array = np.ndarray
BEFORE = 100  # rows from which predictions follow the outputs up to a held-back part
RULERS = 3  # held-back parts on which errors are counted in units of the last model's band, too
FREE = len(HORIZONS) - 1  # the number of the free run among the horizons
# Of the logs of errors from one held-back part to another, as rehearsals on the suite's estimation
# data have it, and how many parts that is worth.
SCATTER, WORTH = 0.36, 3


def expected(hearing: Hearing, gain: Float[Array, " ny"]) -> tuple[Array, Array, Array]:
    """Free-run error to expect from the model of all data, per output, with a 95 % interval.

    The geometric mean of the folds' errors times what more data brings (:func:`learning_gain`):
    errors differ from one part of a record to another by factors, and the root of their mean square
    is what one bad part says.  The interval is where the error on one more such part would be, by
    Student's t of the logs; few folds tell their scatter badly, so the usual one counts, too.
    """
    folds = [np.mean(np.concatenate(parts) ** 2, axis=0) for parts in hearing.misses]
    logs = 0.5 * np.log(np.maximum(folds, np.finfo(float).tiny))
    n, mean = len(logs), np.mean(logs, axis=0)
    freedom = WORTH + n - 1
    scatter = np.sqrt((WORTH * SCATTER**2 + np.sum((logs - mean) ** 2, axis=0)) / freedom)
    half = t.ppf(0.975, freedom) * scatter * np.sqrt(1 + 1 / n)
    low, middle, high = (gain * np.exp(mean + side * half) for side in (-1, 0, 1))
    return middle, low, high


def own_error(model: Ensemble, hearing: Hearing) -> Float[Array, " ny"]:
    """Free-run error of a model that has learned them, in the parts that the folds held back."""
    misses = [miss_of(model, part) for _, fold in hearing.models for part in fold.runs]
    squares = np.concatenate(misses) ** 2
    return np.sqrt(np.mean(squares, axis=0)) if len(squares) else np.zeros(squares.shape[1])


def learning_gain(
    model: Ensemble, hearing: Hearing, rows: int, streams: bool
) -> Float[Array, " ny"]:
    """By what factor errors fall from the folds' rows to all ``rows``, of which the model is.

    Its error in the parts that it has learned is what more rows will not mend; what the folds err
    beyond, in squares, comes from estimates and falls with ``1/n``.
    """
    learned = np.mean([fold.lesson.rows(streams) for _, fold in hearing.models])
    heard = np.maximum(rmse_of(hearing), np.finfo(float).tiny)
    stays = (own_error(model, hearing) / heard) ** 2
    gain: Array = np.sqrt(stays + min(1.0, float(learned / rows)) * np.maximum(0.0, 1.0 - stays))
    return gain


class _Said(NamedTuple):
    """What a run through a held-back part says, its centre and band, and what was there."""

    mean: Float[Array, "T ny"]
    spread: Float[Array, "T ny"]
    outputs: Float[Array, "T ny"]

    @property
    def misses(self) -> Float[Array, "T ny"]:
        """The errors of the centre."""
        return self.outputs - self.mean

    @property
    def scores(self) -> Float[Array, "T ny"]:
        """The errors in standard deviations of the band."""
        return clipped(self.misses / self.spread)

    def within(self, regions: Regions, horizon: int) -> _Said:
        """The same with a band that is wider in some regions than in others."""
        return self._replace(spread=self.spread * regions.at(self.mean)[horizon])


class _Listened(NamedTuple):
    """A model, a held-back part, and the numbers of the horizons that are looked at."""

    model: Ensemble
    part: Part
    horizons: tuple[int, ...]

    @property
    def tells(self) -> bool:
        """Whether the part is long enough for the model."""
        used = as_used(self.model, self.part)
        return used.known < len(used.record)

    def said(self) -> dict[int, _Said]:
        """By number of the horizon."""
        found = {}
        for k in self.horizons:
            if k == FREE:
                record, known = as_used(self.model, self.part)
                run = self.model.simulate(record, known)
            else:  # what follows the outputs knows what came before
                more = max(0, self.part.known - max(BEFORE, self.model.window))
                record = self.part.record[more:]
                known = max(self.part.known - more, self.model.window)
                run = self.model.predict(record, HORIZONS[k])
            found[k] = _said(run, record, known)
        return found


def _said(run: Run, record: Record, known: int) -> _Said:
    rest = run.after(known)
    return _Said(rest.mean, np.asarray(rest.spread), record.y[known:])


def calibrated(model: Ensemble, hearing: Hearing, gain: Float[Array, " ny"]) -> Ensemble:
    """The model with bands as wide as errors on held-back data ask for, by horizon.

    The errors are counted in units of the bands of the folds' models.  First they tell in which
    :class:`Regions` of every output bands must be wider than in others, then how wide all are.
    Where the folds' bands were too wide,
    the errors are counted in units of this model's band, too, on some of the same rows: its
    posterior may be much narrower than theirs.  No band is narrowed unless both ask for it; where
    the second asks for a wider one it gets half of it (the root): it may be as good as it says.
    ``gain`` is what more data brings; it makes no band wider, nor narrower than the posterior says.
    """
    units = [
        _Listened(other, part, horizons)
        for other, fold in hearing.models
        for horizons, parts in ((tuple(range(len(HORIZONS))), fold.parts), ((FREE,), fold.long))
        for part in parts
    ]
    units = [unit for unit in units if unit.tells]
    said = _heard(units)
    regions = _regions(said)
    said = [_within(run, regions) for run in said]
    found = np.stack([_factor(k, said, model) for k in range(len(HORIZONS))])
    wide = tuple(k for k in range(len(HORIZONS)) if np.any(found[k] < 1.0))
    again = {
        k: unit._replace(model=model, horizons=wide)
        for k, unit in enumerate(units)
        if unit.horizons != (FREE,)
    }
    few = [k for k, unit in again.items() if unit.tells]
    few = few[:: max(1, -(-len(few) // RULERS))]
    if few and wide:
        ours = [_within(run, regions) for run in _heard([again[k] for k in few])]
        pairs = list(zip([said[k] for k in few], ours, strict=True))
        for k in wide:
            asked = _asked(k, pairs)
            both = np.maximum(found[k], np.minimum(asked, np.sqrt(asked)))
            found[k] = np.where(found[k] < 1.0, both, found[k])
    inflation = np.maximum(np.minimum(gain, 1.0) * found, np.minimum(found, 1.0))
    return replace(model, inflation=inflation, regions=regions)


def _heard(units: Sequence[_Listened]) -> list[dict[int, _Said]]:
    """What they say, side by side; that a fold's model diverges is counted, not told."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        return side_by_side([unit.said for unit in units])


def _regions(said: Sequence[dict[int, _Said]]) -> Regions:
    """What held-back parts say about levels of the outputs, for each horizon."""
    runs = [run[FREE] for run in said]
    levels = levels_of(np.concatenate([run.outputs for run in runs]))
    factors = np.ones((len(HORIZONS), *levels.shape))
    for k in range(len(HORIZONS)):
        there = [run[k] for run in said if k in run]
        if there:
            factors[k] = factors_of(levels, [r.mean for r in there], [r.scores for r in there])
    return Regions(levels, factors)


def _within(said: dict[int, _Said], regions: Regions) -> dict[int, _Said]:
    return {k: run.within(regions, k) for k, run in said.items()}


def _factor(horizon: int, said: Sequence[dict[int, _Said]], model: Ensemble) -> Float[Array, " ny"]:
    """The factor on the band at one horizon; one where every part is too short for predictions."""
    scores = [run[horizon].scores for run in said if horizon in run]
    return held_back_inflation(scores) if scores else np.ones(model.inflation.shape[1])


def _asked(
    horizon: int, pairs: Sequence[tuple[dict[int, _Said], dict[int, _Said]]]
) -> Float[Array, " ny"]:
    """The same for errors of the folds' models in units of another one's band, on the same rows."""
    scores = []
    for theirs, ours in pairs:
        rows = min(len(run[horizon].misses) for run in (theirs, ours))
        scores.append(theirs[horizon].misses[-rows:] / ours[horizon].spread[-rows:])
    return held_back_inflation(scores)
