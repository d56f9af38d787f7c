"""The referee: every family in free run on data it has not seen, the choice, and what to expect.

For each fold every family is trained on what is left and simulates what was held back.  Errors are
compared piece by piece, so that a difference between two families comes with a standard error, and
a simpler kind is preferred where it is no worse than one of those, nor by more than a few per cent.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.answers import Answers
from occamid.identification.assemble import Workshop, free_run_errors
from occamid.identification.court import Court, turn_of
from occamid.identification.crew import Crew
from occamid.identification.families import Family, families
from occamid.identification.folds import Fold, folds, whole
from occamid.identification.hearing import (
    Hearing,
    difference,
    mean_square,
    pieces_of,
    rmse_of,
)
from occamid.identification.options import Options
from occamid.identification.progress import Clock
from occamid.identification.thinning import between, lighter, thin

Array = np.ndarray
PRICE = 1.05  # the most that simplicity may cost, in error on held-back data,
SMALLER = 1.01  # and that fewer parameters may, where families are of one kind
HOPELESS = (4.0, 2.0)  # times the best error after one fold, and later: tried no further
PLENTY = 8  # cores, from which on all folds are heard at once, of what would be given up, too
MANY = 500  # held-back rows without which one fold is not enough to say so


class Trial(NamedTuple):
    """A family on held-back data."""

    family: str
    about: str
    rmse: tuple[float, ...]  # per output, in the user's units
    score: float  # over all outputs, in standard deviations
    error: float  # standard error of the difference to the best family's score
    seconds: float
    failed: str = ""  # why, in folds where it could not be tried


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
    crew: Crew | None = None,
) -> Judgement:
    """Try every family on held-back data and choose; the crew's workers do the work.

    Of very long records a part is learned from, and what lies between is judged on, too.
    What is far behind after the first fold, or the second, does not count in the others, and is not
    heard there unless there are cores enough to hear all at once; where nobody keeps the lead it is
    heard after all.
    """
    crew = crew or Crew()
    given, rows, stream = sum(map(len, records)), options.budget.rows, options.budget.stream
    long = between(records, stream)
    records = thin(records, stream)
    tried = families(options, thin(records, rows), given)
    held = lighter(folds(records, options.budget.folds), rows)
    held = [f._replace(long=tuple(long[k :: len(held)])) for k, f in enumerate(held)]
    spread = np.std(np.concatenate([r.y for r in records]), axis=0)
    clock.more(len(tried) * len(held))
    store = checkpoints.store if checkpoints else None
    court = Court(options, clock, checkpoints, given, store)
    hearings = _in_rounds(court, crew, held, tried, spread)
    if not _most(hearings):
        why = next((h.failed for h in hearings.values() if h.failed), "the records are too short")
        return _by_criterion(records, options, why, clock, checkpoints)
    heard = _heard(hearings)
    trials = _trials(tried, heard, hearings, spread)
    chosen, grounds = choose(tried, heard, spread)
    if len(held) < options.budget.folds:
        grounds += f"; only {len(held)} folds, the records allow no more"
    return Judgement(trials, chosen, grounds, hearings)


def _in_rounds(
    court: Court,
    crew: Crew,
    held: Sequence[Fold],
    tried: Sequence[Family],
    spread: Float[Array, " ny"],
) -> dict[str, Hearing]:
    """All families in the first fold, and those not far behind in the others."""
    hearings = {family.name: Hearing() for family in tried}
    answers: list[Answers] = [{} for _ in held]
    at_once = crew.size >= PLENTY

    def ask(turns: Sequence[int], names: Container[str]) -> None:
        asked = [f for f in tried if f.name in names]
        for k, found in court.hear(crew, held, turns, asked).items():
            answers[k] |= found

    if at_once:
        ask(range(len(held)), hearings)
    for first, stop in ((0, 1), (1, 2), (2, len(held))):
        left = {name: h for name, h in hearings.items() if not h.hopeless}
        turns = range(first, min(stop, len(held)))
        if not at_once:
            ask(turns, left)
        for k in turns:
            _write_down(held[k], turn_of(k, held), answers[k], left)
        enough = first > 0 or _held_back(held[:1]) >= MANY
        if enough and stop < len(held):
            _give_up(left, spread, HOPELESS[min(first, 1)])
            lost = sum(h.hopeless for h in left.values())
            court.clock.fewer(0 if at_once else lost * (len(held) - stop))
    if again := _given_up_too_soon(hearings, spread):
        if not at_once:
            court.clock.more(sum(name not in found for found in answers for name in again))
            for k, found in enumerate(answers):
                ask([k], [name for name in again if name not in found])
        back = {n: Hearing() for n, h in hearings.items() if n in again or not h.hopeless}
        for k, fold in enumerate(held):
            _write_down(fold, turn_of(k, held), answers[k], back)
        hearings |= back
    return hearings


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


def _given_up_too_soon(hearings: dict[str, Hearing], spread: Float[Array, " ny"]) -> list[str]:
    """Families that erred less where they were heard than all others do in the other folds."""

    def error(hearing: Hearing, first: int = 0) -> float:
        return mean_square(pieces_of(Hearing(misses=hearing.misses[first:]), spread))

    kept = [h for h in _heard(hearings).values() if not h.hopeless]
    return [
        name
        for name, own in hearings.items()
        if own.hopeless
        and 0 < len(own.misses) < _most(hearings)
        and error(own) < min(error(h, len(own.misses)) for h in kept)
    ]


def _held_back(held: Sequence[Fold]) -> int:
    return sum(len(p.record) - p.known for fold in held for p in fold.runs)


def hear(
    fold: Fold,
    where: str,
    options: Options,
    hearings: dict[str, Hearing],
    clock: Clock,
    widest: int = 0,
    crew: Crew | None = None,
) -> None:
    """Families in one fold, one after the other, here or on one of the crew's workers.

    ``widest`` first rows of every held-back part are judged for none: so many a model that is
    tried elsewhere may know, with which these are compared.
    """
    answer = partial(Court(options, clock, None, None).answers, fold, where, list(hearings))
    clock.tell(where)
    (answers,) = (crew or Crew()).do([answer])
    _write_down(fold, where, answers, hearings, widest)


def _write_down(
    fold: Fold,
    where: str,
    answers: Answers,
    hearings: dict[str, Hearing],
    widest: int = 0,
) -> None:
    """Errors of all families that are listened to over the same rows, in pieces."""
    answers = {name: answer for name, answer in answers.items() if name in hearings}
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


def _pieces(heard: Mapping[str, Hearing], spread: Float[Array, " ny"]) -> dict[str, Array]:
    """:func:`pieces_of` of every family."""
    return {name: pieces_of(h, spread) for name, h in heard.items()}


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


def choose(
    tried: Sequence[Family], heard: Mapping[str, Hearing], spread: Float[Array, " ny"]
) -> tuple[str, str]:
    """The best family of the simplest kind within one standard error and :data:`PRICE`.

    Of a kind the smallest one stands for it that errs within :data:`SMALLER` of its best.
    """
    pieces = _pieces(heard, spread)
    squares = {f.name: mean_square(pieces[f.name]) for f in tried if f.name in pieces}
    best = min(squares, key=lambda name: squares[name])
    kinds = {f.name: f.kind for f in tried}
    for kind in dict.fromkeys(kinds[name] for name in squares):
        of_kind = {n: square for n, square in squares.items() if kinds[n] == kind}
        least = min(of_kind.values())
        near = [n for n in of_kind if of_kind[n] <= SMALLER**2 * least]
        own = min(near, key=lambda n: (heard[n].parameters, of_kind[n]))
        mean, error = difference(pieces[own], pieces[best])
        if kind == kinds[best] or (mean <= error and squares[own] <= PRICE**2 * squares[best]):
            break
    if own == best:
        return own, f"{own} has the smallest free-run error on held-back data"
    if kind == kinds[best]:
        return own, (
            f"{own} is smaller than {best} and errs less than {SMALLER - 1:.0%} more on held-back "
            "data"
        )
    return own, (
        f"{own} is of a simpler kind than {best} and, within one standard error, as good on "
        "held-back data"
    )


def _by_criterion(
    records: tuple[Record, ...],
    options: Options,
    why: str,
    clock: Clock,
    checkpoints: Checkpoints | None,
) -> Judgement:
    """Nothing can be held back: BIC of the free runs on the records themselves.

    Only the simplest kind that can be fitted is tried: of so few rows a flexible model fits the
    noise, and no criterion on the same rows says so.
    """
    budget = options.budget.for_folds()
    shop = Workshop.of(whole(records), options, budget, checkpoints=checkpoints)
    tried = families(options, shop.records, sum(map(len, records)))
    clock.more(len(tried))
    trials: list[Trial] = []
    scores: dict[str, float] = {}
    fitted = ""  # the kind of those that could be
    count = sum(len(r) * r.y.shape[1] for r in records)
    nothing = tuple(np.full(records[0].y.shape[1], np.nan).tolist())
    for family in tried:
        if fitted and family.kind != fitted:
            continue
        began = time.perf_counter()
        failed = ""
        try:
            model = shop.model(family, clock.sub(f"criterion: {family.name}"))
            error = float(np.median(free_run_errors([p.model for p in model.posteriors], records)))
            used = float(np.median([p.effective for p in model.posteriors]))
            scores[family.name] = count * np.log(max(error**2, 1e-12)) + used * np.log(count)
            fitted = family.kind
        except DataError as problem:
            failed = str(problem)
        seconds = time.perf_counter() - began
        trials.append(Trial(family.name, family.about, nothing, np.nan, np.nan, seconds, failed))
    if not scores:
        raise DataError(f"no family can be fitted to these records ({trials[0].failed})")
    chosen = min(scores, key=lambda name: scores[name])
    grounds = (
        f"nothing could be held back ({why}), so only the simplest kind of models was tried; "
        f"{chosen} has the smallest BIC on the estimation data itself"
    )
    return Judgement(tuple(trials), chosen, grounds, {})
