"""The referee: every family in free run on data it has not seen, the choice, and what to expect.

For each fold every family is trained on what is left and simulates what was held back.  Errors are
compared piece by piece, so that a difference between two families comes with a standard error, and
a simpler kind is preferred where it is no worse than one of those, nor by more than a few per cent.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.assemble import Workshop, free_run_errors
from occamid.identification.families import Family, families
from occamid.identification.folds import Fold, Part, folds, whole
from occamid.identification.options import Options
from occamid.identification.progress import Clock
from occamid.identification.thinning import between, lighter, thin
from occamid.training.cores import side_by_side

Array = np.ndarray
PIECES = 6  # in which the errors of a held-back part are averaged
SHORTEST_PIECE = 20  # rows
PRICE = 1.05  # the most that simplicity may cost, in error on held-back data
HOPELESS = (4.0, 2.0)  # times the best error after one fold, and later: tried no further
MANY = 1000  # held-back rows without which one fold is not enough to say so
WORST_ERROR = 100.0  # standard deviations: an error beyond counts as this, so that means exist


class Trial(NamedTuple):
    """A family on held-back data."""

    family: str
    about: str
    rmse: tuple[float, ...]  # per output, in the user's units
    score: float  # over all outputs, in standard deviations
    error: float  # standard error of the difference to the best family's score
    seconds: float
    failed: str = ""  # why, in folds where it could not be tried


@dataclass
class Hearing:
    """What a family said in the folds: its models, its errors in all parts of each.

    The errors are those over rows that every family is judged on.
    """

    models: list[tuple[Ensemble, Fold]] = field(default_factory=list)
    misses: list[list[Float[Array, "T ny"]]] = field(default_factory=list)
    seconds: float = 0.0
    failed: str = ""
    hopeless: bool = False


@dataclass(frozen=True, eq=False)
class Judgement:
    """The outcome: what was tried, what was chosen, and on what grounds."""

    trials: tuple[Trial, ...]
    chosen: str
    grounds: str
    hearings: dict[str, Hearing]

    @property
    def heard(self) -> dict[str, Hearing]:
        """Those of families that were tried in every fold that could be judged."""
        return _heard(self.hearings)


def judge(
    records: tuple[Record, ...],
    options: Options,
    clock: Clock,
    checkpoints: Checkpoints | None = None,
) -> Judgement:
    """Try every family on held-back data and choose.

    Of very long records a part is learned from, and what lies between is judged on, too.
    What is far behind after the first fold, or the second, is not heard in the others.
    """
    given, rows, stream = sum(map(len, records)), options.budget.rows, options.budget.stream
    long = between(records, stream)
    records = thin(records, stream)
    tried = families(options, thin(records, rows), given)
    held = lighter(folds(records, options.budget.folds), rows)
    held = [f._replace(long=tuple(long[k :: len(held)])) for k, f in enumerate(held)]
    hearings = {family.name: Hearing() for family in tried}
    spread = np.std(np.concatenate([r.y for r in records]), axis=0)
    court = _Court(options, clock, checkpoints, given)
    for first, stop in ((0, 1), (1, 2), (2, len(held))):
        left = {name: h for name, h in hearings.items() if not h.hopeless}
        court.hear(held, range(first, min(stop, len(held))), left, tried)
        enough = first > 0 or _held_back(held[:1]) >= MANY
        if enough and stop < len(held):
            _give_up(left, spread, HOPELESS[min(first, 1)])
            lost = sum(h.hopeless for h in left.values())
            clock.fewer(lost * (len(held) - stop))
    if not _most(hearings):
        why = next((h.failed for h in hearings.values() if h.failed), "the records are too short")
        return _by_criterion(records, tried, options, why, clock, checkpoints)
    heard = _heard(hearings)
    trials = _trials(tried, heard, hearings, spread)
    chosen, grounds = choose(tried, trials, _pieces(heard, spread))
    if len(held) < options.budget.folds:
        grounds += f"; only {len(held)} folds, the records allow no more"
    return Judgement(trials, chosen, grounds, hearings)


def _most(hearings: dict[str, Hearing]) -> int:
    """In how many folds families could be tried."""
    return max((len(h.models) for h in hearings.values()), default=0)


def _heard(hearings: dict[str, Hearing]) -> dict[str, Hearing]:
    """Those of families that were tried as often as any."""
    return {name: h for name, h in hearings.items() if len(h.models) == _most(hearings)}


def _give_up(hearings: dict[str, Hearing], spread: Float[Array, " ny"], factor: float) -> None:
    """Mark families whose error is that many times the best of those heard as often."""
    if not _most(hearings):  # no fold could be judged so far: another may
        return
    heard = _heard(hearings)
    errors = {name: mean_square(piece) for name, piece in _pieces(heard, spread).items()}
    for name, hearing in hearings.items():
        behind = errors.get(name, np.inf) > factor**2 * min(errors.values(), default=np.inf)
        if behind or name not in errors:
            hearing.hopeless = True
            often = "1 fold" if _most(hearings) == 1 else f"{_most(hearings)} folds"
            hearing.failed = hearing.failed or f"left out after {often}: far behind"


def _held_back(held: Sequence[Fold]) -> int:
    return sum(len(p.record) - p.known for fold in held for p in fold.runs)


class _Answer(NamedTuple):
    """A family in one fold: its model and its misses, or why there are none."""

    model: Ensemble | None
    misses: list[Array]
    seconds: float
    failed: str = ""


@dataclass(frozen=True)
class _Court:
    """What all hearings have in common."""

    options: Options
    clock: Clock
    checkpoints: Checkpoints | None
    given: int | None

    def hear(
        self,
        held: Sequence[Fold],
        turns: Sequence[int],
        hearings: dict[str, Hearing],
        tried: Sequence[Family],
    ) -> None:
        """Families in some of the folds, side by side; those that share a training, together."""
        groups: dict[object, list[str]] = {}
        for family in tried:
            if family.name in hearings:
                groups.setdefault(family.settings or family.name, []).append(family.name)
        where = {k: f"fold {k + 1} of {len(held)}" for k in turns}
        # The most flexible take longest: begun first, none is left to run alone.
        units = [(k, names) for names in reversed(groups.values()) for k in turns]
        jobs = [partial(self.answers, held[k], where[k], names) for k, names in units]
        answers: dict[int, dict[str, _Answer]] = {k: {} for k in turns}
        for (k, _), found in zip(units, side_by_side(jobs), strict=True):
            answers[k] |= found
        for k in turns:
            _write_down(held[k], where[k], answers[k], hearings)

    def answers(self, fold: Fold, where: str, names: Sequence[str]) -> dict[str, _Answer]:
        """Some families in one fold; lags, scaling and orders are learned inside it."""
        shop = Workshop(fold.lesson, self.options.budget.for_folds(), self.checkpoints, fold.shape)
        missing = "too few rows"
        try:
            own = {f.name: f for f in families(self.options, fold.records, self.given)}
        except DataError as error:
            own, missing = {}, str(error)
        found = {}
        for name in names:
            began = time.perf_counter()
            bar = self.clock.sub(f"{where}: {name}")
            try:
                if name not in own:
                    raise DataError(missing)
                model = shop.model(own[name], bar)
                misses = [miss_of(model, part) for part in fold.runs]
                if not any(map(len, misses)):
                    raise DataError("held-back rows are fewer than the lags")
                found[name] = _Answer(model, misses, time.perf_counter() - began)
            except DataError as error:  # too short for these lags, or no model was usable
                why = f"{where}: {error}"
                found[name] = _Answer(None, [], time.perf_counter() - began, why)
            bar.close()
        return found


def hear(
    fold: Fold,
    where: str,
    options: Options,
    hearings: dict[str, Hearing],
    clock: Clock,
    widest: int = 0,
) -> None:
    """Families in one fold, one after the other.

    ``widest`` first rows of every held-back part are judged for none: so many a model that is
    tried elsewhere may know, with which these are compared.
    """
    answers = _Court(options, clock, None, None).answers(fold, where, list(hearings))
    _write_down(fold, where, answers, hearings, widest)


def _write_down(
    fold: Fold,
    where: str,
    answers: dict[str, _Answer],
    hearings: dict[str, Hearing],
    widest: int = 0,
) -> None:
    """Errors of all families over the same rows, in pieces."""
    for name, answer in answers.items():
        hearings[name].seconds += answer.seconds
        hearings[name].failed = answer.failed or hearings[name].failed
    judged = {n: (a.model, a.misses) for n, a in answers.items() if a.model is not None}
    common = [
        min((len(misses[k]) for _, misses in judged.values()), default=0)
        for k in range(len(fold.runs))
    ]
    common = [
        min(count, max(0, len(part.record) - max(part.known, widest)))
        for count, part in zip(common, fold.runs, strict=True)
    ]
    for name, (model, misses) in judged.items():
        hearing = hearings[name]
        if not any(common):
            hearing.failed = f"{where}: no held-back rows that every family can be judged on"
            continue
        hearing.models.append((model, fold))
        hearing.misses.append(
            [miss[len(miss) - rows :] for miss, rows in zip(misses, common, strict=True) if rows]
        )


def as_used(model: Ensemble, part: Part) -> Part:
    """A held-back part as a user's run begins: after the first outputs that the model asks for.

    More of them would tell a hidden state better than it will be known.  All rows are known
    where fewer than two would be left: such a part says nothing about the model.
    """
    more = max(0, part.known - model.window)
    record = part.record[more:] if more else part.record
    return Part(record, model.window if model.window + 2 <= len(record) else len(record))


def miss_of(model: Ensemble, part: Part) -> Float[Array, "T ny"]:
    """Errors of the free run through a held-back part after what it may know, perhaps none."""
    record, known = as_used(model, part)
    if known == len(record):
        return np.zeros((0, record.y.shape[1]))
    with np.errstate(all="ignore"):
        miss = (model.free_run(record.u, record.y[:known]) - record.y)[known:]
    worst = WORST_ERROR * model.first.scaling.y_std
    return np.clip(np.nan_to_num(miss, nan=np.inf), -worst, worst)


def _pieces(heard: dict[str, Hearing], spread: Float[Array, " ny"]) -> dict[str, Array]:
    """:func:`pieces_of` of every family."""
    return {name: pieces_of(h, spread) for name, h in heard.items()}


def pieces_of(hearing: Hearing, spread: Float[Array, " ny"]) -> Float[Array, "2 pieces"]:
    """Mean square of every piece over all outputs in squared standard deviations, and its rows."""
    squares, rows = squares_of(hearing)
    return np.stack([np.mean(squares / spread**2, axis=1), rows])


def squares_of(
    hearing: Hearing,
) -> tuple[Float[Array, "pieces ny"], Float[Array, " pieces"]]:
    """Mean square of every piece, per output, and its rows."""
    pieces = [
        piece
        for part in itertools.chain.from_iterable(hearing.misses)
        for piece in np.array_split(part, max(1, min(PIECES, len(part) // SHORTEST_PIECE)))
    ]
    squares = np.stack([np.mean(piece**2, axis=0) for piece in pieces])
    return squares, np.array([len(piece) for piece in pieces], dtype=float)


def rmse_of(hearing: Hearing) -> Float[Array, " ny"]:
    """The error over all pieces, per output, in the user's units."""
    squares, rows = squares_of(hearing)
    found: Array = np.sqrt(rows @ squares / rows.sum())
    return found


def _trials(
    tried: Sequence[Family],
    heard: dict[str, Hearing],
    hearings: dict[str, Hearing],
    spread: Float[Array, " ny"],
) -> tuple[Trial, ...]:
    pieces = _pieces(heard, spread)
    best = min(pieces.values(), key=mean_square)
    found = []
    for family in tried:
        hearing = hearings[family.name]
        if not hearing.misses:
            none = tuple(np.full(len(spread), np.inf).tolist())
            score, error, rmse = np.inf, np.inf, none
        else:
            each = rmse_of(hearing)
            rmse = tuple(each.tolist())
            score = float(np.sqrt(np.mean(each**2 / spread**2)))
            error = np.nan
            if family.name in heard:
                error = difference(pieces[family.name], best)[1] / (2 * max(score, 1e-12))
        found.append(
            Trial(family.name, family.about, rmse, score, error, hearing.seconds, hearing.failed)
        )
    return tuple(found)


def mean_square(piece: Float[Array, "2 pieces"]) -> float:
    """Over all pieces of one family."""
    squares, rows = piece
    return float(rows @ squares / rows.sum())


def difference(
    one: Float[Array, "2 pieces"], other: Float[Array, "2 pieces"]
) -> tuple[float, float]:
    """Mean difference of two families' squared errors and its standard error.

    Pieces are paired; neighbours may be correlated, which widens the error by
    ``sqrt((1 + ρ)/(1 − ρ))`` for the correlation ρ of one with the next.
    """
    apart, rows = one[0] - other[0], one[1]
    mean = float(rows @ apart / rows.sum())
    n = len(apart)
    if n < 2:
        return mean, abs(mean)
    centred = apart - mean
    variance = float(rows @ centred**2 / rows.sum())
    if variance <= 0:
        return mean, 0.0
    rho = float(np.clip(np.mean(centred[1:] * centred[:-1]) / variance, 0.0, 0.8))
    return mean, float(np.sqrt(variance / (n - 1) * (1 + rho) / (1 - rho)))


def choose(
    tried: Sequence[Family], trials: Sequence[Trial], pieces: dict[str, Array]
) -> tuple[str, str]:
    """The best family of the simplest kind within one standard error and :data:`PRICE`."""
    scores = {t.family: t.score for t in trials if t.family in pieces}
    best = min(scores, key=lambda name: scores[name])
    kinds = {f.name: f.kind for f in tried}
    for kind in dict.fromkeys(kinds[f.name] for f in tried if f.name in scores):
        own = min((n for n in scores if kinds[n] == kind), key=lambda n: scores[n])
        mean, error = difference(pieces[own], pieces[best])
        if own == best or (mean <= error and scores[own] <= PRICE * scores[best]):
            break
    if own == best:
        return own, f"{own} has the smallest free-run error on held-back data"
    return own, (
        f"{own} is of a simpler kind than {best} and, within one standard error, as good on "
        "held-back data"
    )


def _by_criterion(
    records: tuple[Record, ...],
    tried: Sequence[Family],
    options: Options,
    why: str,
    clock: Clock,
    checkpoints: Checkpoints | None,
) -> Judgement:
    """Nothing can be held back: BIC of the free runs on the records themselves."""
    shop = Workshop(whole(records), options.budget.for_folds(), checkpoints)
    trials, scores = [], {}
    count = sum(len(r) * r.y.shape[1] for r in records)
    nothing = tuple(np.full(records[0].y.shape[1], np.nan).tolist())
    for family in tried:
        began = time.perf_counter()
        failed = ""
        try:
            model = shop.model(family, clock.sub(f"criterion: {family.name}"))
            error = float(np.median(free_run_errors([p.model for p in model.posteriors], records)))
            used = float(np.median([p.effective for p in model.posteriors]))
            scores[family.name] = count * np.log(max(error**2, 1e-12)) + used * np.log(count)
        except DataError as problem:
            failed = str(problem)
        seconds = time.perf_counter() - began
        trials.append(Trial(family.name, family.about, nothing, np.nan, np.nan, seconds, failed))
    if not scores:
        raise DataError(f"no family can be fitted to these records ({trials[0].failed})")
    chosen = min(scores, key=lambda name: scores[name])
    grounds = (
        f"nothing could be held back ({why}); "
        f"{chosen} has the smallest BIC on the estimation data itself"
    )
    return Judgement(tuple(trials), chosen, grounds, {})
