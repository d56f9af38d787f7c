"""What to expect of the chosen model: its error, what more data brings, and bands by horizon.

All of it from the free runs that the :mod:`~occamid.identification.referee` heard in the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.bands.calibration import HORIZONS, held_back_inflation
from occamid.bands.ensemble import Ensemble
from occamid.bands.units import DivergedWarning
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.identification.assemble import Workshop
from occamid.identification.families import Family, families
from occamid.identification.folds import FEWEST_LEFT, Part
from occamid.identification.hearing import Hearing, as_used, difference, miss_of, squares_of
from occamid.identification.options import Options
from occamid.identification.progress import Clock
from occamid.training.cores import side_by_side

Array = np.ndarray
CURVE = 2  # folds that are trained again on fewer rows
LONG = 4_000  # rows in a fold, from which on no curve is drawn where all rows are few more:
FEW_MORE = 1.5  # times as many at most
RULERS = 2  # held-back parts on which the bands of the folds' models and of the last are compared
STEEPEST = 2.0  # exponent of the learning curve over as large a step as was tried
USUAL = 0.5  # at most, beyond: what errors of estimates fall with


def expected(hearing: Hearing, gain: float) -> tuple[Array, Array, Array]:
    """Free-run error to expect from the model of all data, per output, with a 95 % interval.

    The error on held-back data times what more data brings (:func:`learning_gain`).  The
    interval is the standard error of the pieces' mean, as in :func:`difference`.
    """
    squares, rows = squares_of(hearing)
    mean = gain**2 * (rows @ squares / rows.sum())
    error = gain**2 * np.array(
        [difference(np.stack([s, rows]), np.stack([0 * s, rows]))[1] for s in squares.T]
    )
    low, high = np.maximum(mean - 2 * error, 0.05 * mean), mean + 2 * error
    return np.sqrt(mean), np.sqrt(low), np.sqrt(high)


def own_error(model: Ensemble, records: Sequence[Record]) -> Array:
    """Free-run error on what the model has learned from, per output: new data bring no less.

    More rows bring an error down to the noise at best, and a learning curve does not see that far.
    """
    misses = [miss_of(model, Part(r[r.lead :] if r.lead else r, 0)) for r in records]
    squares = np.concatenate(misses) ** 2
    return np.sqrt(np.mean(squares, axis=0)) if len(squares) else np.zeros(squares.shape[1])


def learning_gain(
    family: Family,
    hearing: Hearing,
    options: Options,
    rows: int,
    clock: Clock,
    given: int | None = None,
) -> float:
    """By what factor the error falls from a fold's rows to all ``rows``.

    The error is taken as ``n^-β``.  β comes from models trained on yet fewer rows, judged on the
    same parts, in up to :data:`CURVE` folds; it is held between 0 and :data:`STEEPEST`, and to
    :data:`USUAL` beyond a step as large as the one that was tried.  Where a fold has many rows and
    few are left to be added, it is one.
    """
    streams = family.search is not None
    learned = min(fold.lesson.rows(streams) for _, fold in hearing.models)
    if learned >= LONG and rows <= FEW_MORE * learned:
        return 1.0
    step = max(1, -(-len(hearing.models) // CURVE))
    used = [
        (model, fold) for model, fold in hearing.models[::step] if fold.fewer.rows() >= FEWEST_LEFT
    ]

    def smaller(number: int) -> Ensemble | None:
        fold = used[number][1]
        bar = clock.sub(f"learning curve {number + 1}: {family.name}")
        try:
            tried = families(options, fold.fewer.records, given)
            own = next(f for f in tried if f.name == family.name)
            shop = Workshop(fold.fewer, options.budget.for_folds(), room=fold.shape)
            return shop.model(own, bar)
        except (DataError, StopIteration):  # too few rows: the curve has one point less
            return None
        finally:
            bar.close()

    smalls = side_by_side([partial(smaller, k) for k in range(len(used))])
    squares, shares = np.zeros(2), []
    for small, (model, fold) in zip(smalls, used, strict=True):
        if small is None:
            continue
        for part in fold.runs:
            few, many = miss_of(small, part), miss_of(model, part)
            common = min(len(few), len(many))
            both = np.stack([miss[len(miss) - common :] for miss in (few, many)])
            both = both / model.first.scaling.y_std
            squares += np.sum(both**2, axis=(1, 2))
        shares.append((fold.fewer.rows(streams), fold.lesson.rows(streams)))
    if not shares or not squares.all():
        return 1.0
    few_rows, many_rows = np.mean(shares, axis=0)
    if few_rows >= many_rows:  # of long records both are a part: nothing to be learned
        return 1.0
    beta = 0.5 * np.log(squares[0] / squares[1]) / np.log(many_rows / few_rows)
    beta = np.clip(beta, 0.0, STEEPEST)
    near = min(rows, many_rows**2 / few_rows)
    return float((many_rows / near) ** beta * (near / rows) ** min(beta, USUAL))


def cautious(gain: float, hearing: Hearing, rows: int, streams: bool) -> float:
    """What more data brings for certain: no more than errors of estimates fall with.

    A curve through two folds may be steep by luck; a band must hold all the same.
    """
    learned = np.mean([fold.lesson.rows(streams) for _, fold in hearing.models])
    return max(gain, min(1.0, float(learned / rows) ** USUAL))


class _Heard(NamedTuple):
    """Errors of a run in standard deviations of its band, and how wide the band was."""

    scores: Float[Array, "T ny"]
    width: Float[Array, " ny"]  # geometric mean over the rows: some may be very wide


def calibrated(model: Ensemble, hearing: Hearing, gain: float) -> Ensemble:
    """The model with bands as wide as errors on held-back data ask for, by horizon.

    ``gain`` is what more data brings; it makes no band narrower than the posterior says.  Where the
    bands of the folds' models were too wide, this one may be narrowed only until it is as wide as
    theirs should have been: its posterior may well be narrower than theirs.
    """
    parts = [
        (other, part, whole)
        for other, fold in hearing.models
        for whole, own in ((True, fold.parts), (False, fold.long))
        for part in own
        if _tells(other, part)
    ]
    heard = _side_by_side(parts)
    found = np.stack(
        [
            held_back_inflation([run[k].scores for run in heard if k in run])
            for k in range(len(HORIZONS))
        ]
    )
    shown = [k for k, (_, part, whole) in enumerate(parts) if whole and _tells(model, part)]
    shown = shown[:: max(1, -(-len(shown) // RULERS))]
    if shown and np.any(found < 1.0):
        again = _side_by_side([(model, parts[k][1], True) for k in shown])
        wider = _wider([heard[k] for k in shown], again)
        found = np.maximum(found, np.minimum(found * wider, 1.0))
    return replace(model, inflation=np.maximum(gain * found, np.minimum(found, 1.0)))


def _side_by_side(parts: Sequence[tuple[Ensemble, Part, bool]]) -> list[dict[int, _Heard]]:
    with warnings.catch_warnings():  # that a fold's model diverges is counted, not told
        warnings.simplefilter("ignore", DivergedWarning)
        return side_by_side([partial(_heard, *unit) for unit in parts])


def _tells(model: Ensemble, part: Part) -> bool:
    used = as_used(model, part)
    return used.known < len(used.record)


def _heard(model: Ensemble, part: Part, every: bool) -> dict[int, _Heard]:
    """What a run through a held-back part says, by number of the horizon.

    Of every horizon or of the free run alone.
    """
    record, known = as_used(model, part)
    runs = {len(HORIZONS) - 1: model.simulate(record, known)}
    if every:
        runs |= {k: model.predict(record, h) for k, h in enumerate(HORIZONS[:-1])}
    rest = {k: run.after(known) for k, run in runs.items()}
    return {
        k: _Heard((record.y[known:] - run.mean) / run.spread, _middle(run.spread))
        for k, run in rest.items()
    }


def _middle(values: Float[Array, "n ny"]) -> Float[Array, " ny"]:
    with np.errstate(all="ignore"):
        return np.exp(np.mean(np.log(values), axis=0))


def _wider(
    theirs: Sequence[dict[int, _Heard]], ours: Sequence[dict[int, _Heard]]
) -> Float[Array, "H ny"]:
    """By what factor the bands of the folds' models are wider, by horizon."""
    with np.errstate(all="ignore"):
        found = [
            _middle(np.array([run[k].width for run in theirs]))
            / _middle(np.array([run[k].width for run in ours]))
            for k in range(len(HORIZONS))
        ]
    return np.nan_to_num(np.stack(found), nan=1.0)
