"""Search: trials on held-back data, the front of error against size, and one of them fitted.

Optuna proposes options; the referee hears each in the same folds and over the same rows, one fold
after the other, and a trial that falls behind is not heard further.  The one that is taken is
identified as ``identify`` does with its options, so that its run can be repeated without a search.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record, as_records
from occamid.errors import DataError, SettingsError
from occamid.files.checkpoints import Checkpoints
from occamid.files.plain import plain
from occamid.identification.crew import Crew, Workers, crew_of
from occamid.identification.dead_time import dead_times
from occamid.identification.families import every_family
from occamid.identification.folds import Fold, folds
from occamid.identification.hearing import Hearing, mean_square, pieces_of, rmse_of
from occamid.identification.identify import Fit, identify
from occamid.identification.options import Options
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import hear
from occamid.identification.search import study as studies
from occamid.identification.search.space import Space, propose
from occamid.identification.search.trials import (
    SIMPLEST,
    Pick,
    Tried,
    checked,
    front,
    grounds,
    picked,
)
from occamid.identification.thinning import thin
from occamid.training.room import make_room

if TYPE_CHECKING:
    import optuna

Array = np.ndarray
LAST = 3.0  # trials that the last fit takes as long as, for the time left
MOST_TRIALS = 100_000


@dataclass(frozen=True, eq=False)
class Searched:
    """What was tried, and what was made of it.

    Attributes:
        fit: the trial that was taken, identified on all rows.
        trials: every trial of the study that has ended, in their order.
        chosen: the one that was taken.
    """

    fit: Fit
    trials: tuple[Tried, ...]
    chosen: Tried

    @property
    def front(self) -> tuple[Tried, ...]:
        """Trials to which no other is both smaller and better, the smallest first."""
        return front(self.trials)


def search(
    records: Record | Iterable[Record],
    options: Options | None = None,
    *,
    trials: int = 30,
    study: str | Path | None = None,
    resume: bool = False,
    pick: Pick = SIMPLEST,
    space: Space | None = None,
    progress: Callable[[Stage], None] | None = None,
    checkpoints: Checkpoints | None = None,
    workers: int | str | None = None,
    **changes: Any,
) -> Searched:
    """Search λ, lags, delay, widths, activations and orders on held-back data.

    Args:
        records: estimation data; several records are several experiments of one system.
        options: effort, seed, and what is to be fixed; the rest is searched.
        trials: how many to try.
        study: a journal file, or the address of a database, that other processes may share;
            without one nothing outlives this call.
        resume: trials that the study has already count towards ``trials``.
        pick: "simplest" (within one standard error of the best), "best", or a trial's number.
        space: the ranges that are searched.
        progress: called as the work goes on.
        checkpoints: where finished cycles of the last fit are kept.
        workers: as in :func:`occamid.identify`; as many trials run at once.
        **changes: single options by name, as in :func:`occamid.identify`.
    """
    options = Options(**((options.given() if options else {}) | changes))
    pick = check(trials, study, resume, pick)
    whole = as_records(records)
    court = Court.of(thin(whole, options.budget.rows), options, space or Space())
    name = studies.name_of(*_identity(whole), court.space, _asked(options))
    with studies.opened(study, name) as memory:
        known = studies.tried(memory)
        if isinstance(pick, int) and study is not None:
            picked(known, pick)  # before anything is tried
        missing = max(0, trials - len(known)) if resume else trials
        clock = _Clock(progress, missing)
        with crew_of(Workers.of(workers)) as crew:
            _try_all(memory, court, clock, crew, missing)
        found = studies.tried(memory)
    chosen = picked(found, pick)
    own = Options(**options.given() | chosen.knobs)
    fit = identify(whole, own, progress=clock.last, checkpoints=checkpoints, workers=workers)
    *_, last = fit.grounds.partition("; ")  # what became of the last training
    said = "; ".join([grounds(chosen, found), *([last] if last else [])])
    return Searched(replace(fit, grounds=said), found, chosen)


def check(trials: int, study: str | Path | None, resume: bool, pick: Any) -> Pick:
    """Refuse what cannot be before any work."""
    studies.require()
    least = 0 if study is not None else 1
    if isinstance(trials, bool) or not isinstance(trials, int) or not least <= trials:
        raise SettingsError(f"`trials` is a whole number, {least} or more (got {trials!r}).")
    if trials > MOST_TRIALS:
        raise SettingsError(f"`trials` is {MOST_TRIALS} at most (got {trials}).")
    if resume and study is None:
        raise SettingsError("there is nothing to go on with; name the `study` to `resume`.")
    found = checked(pick)
    if isinstance(found, int) and study is None:
        raise SettingsError(
            f"`pick`: a new search has no trial {found} yet; name the `study` that has it."
        )
    return found


def _identity(records: tuple[Record, ...]) -> list[Any]:
    """What tells these data from others."""
    found: list[Any] = []
    for r in records:
        found += [r.u.shape, r.y.shape, r.lead, r.sampling_time]
        found += [np.ascontiguousarray(v, dtype=np.float64).tobytes() for v in (r.u, r.y)]
    return found


def _asked(options: Options) -> dict[str, Any]:
    """What decides a trial's numbers, with the defaults."""
    return {k: v for k, v in options.model_dump().items() if k != "single"}


@dataclass(frozen=True, eq=False)
class Court:
    """What every trial is heard on: the same folds, and of them the same rows."""

    options: Options
    space: Space
    held: list[Fold]
    spread: Float[Array, " ny"]
    widest: int

    @classmethod
    def of(cls, records: tuple[Record, ...], options: Options, space: Space) -> Court:
        """The folds of the records, and ranges that leave something to judge in each."""
        held = folds(records, options.budget.folds)
        if not held:
            raise DataError("nothing can be held back of these records; use longer ones.")
        space = space.within(options, held)
        every_family(options, records)  # refuses what the user fixed and these records do not bear
        dead = max(max(dead_times(fold.lesson.records, options)) for fold in held)
        widest = space.widest(options, dead)
        if any(all(len(p.record) <= max(p.known, widest) for p in f.parts) for f in held):
            raise DataError(
                f"held-back parts are no longer than the {widest} rows that a model may know; "
                "fix fewer lags with `input_lags` and `output_lags`, or use longer records."
            )
        spread = np.std(np.concatenate([r.y for r in records]), axis=0)
        return cls(options, space, held, spread, widest)

    def score(self, hearing: Hearing) -> float:
        """Over all outputs, in standard deviations, as in the referee's trials."""
        return float(np.sqrt(mean_square(pieces_of(hearing, self.spread))))


def _try_all(study: optuna.Study, court: Court, clock: _Clock, crew: Crew, count: int) -> None:
    """So many trials: one after the other, or as many at once as there are workers."""
    if crew.client is None:
        for _ in range(count):
            make_room()
            _try(study, court, clock, crew)
        return
    pool = ThreadPoolExecutor(max(1, min(count, crew.size)))
    begun = [pool.submit(_try, study, court, clock, crew) for _ in range(count)]
    try:
        for trial in wait(begun, return_when=FIRST_EXCEPTION).done:
            trial.result()
    except BaseException:  # somebody stops it, or the workers are gone
        clock.stopped = True  # trials look at it between two folds
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _try(study: optuna.Study, court: Court, clock: _Clock, crew: Crew) -> None:
    """One trial, fold by fold, until it ends, falls behind or cannot be judged."""
    import optuna

    ended = optuna.trial.TrialState
    with clock.lock:  # what is proposed depends on the trial alone, however many run at once
        trial = studies.begin(study, court.options.seed)
        try:
            options = propose(trial, court.space, court.options)
        except BaseException:
            study.tell(trial, state=ended.FAIL)
            raise
    state = ended.FAIL  # also where somebody stops it
    hearing = Hearing()
    try:
        knobs = {k: v for k, v in options.given().items() if k not in court.options.given()}
        told = knobs | {"network": options.network}
        plain_states = options.network == "state-space" and not options.units
        name = "state-space-linear" if plain_states else options.network
        _keep(trial, court, hearing, told)
        for number, fold in enumerate(court.held):
            where = f"fold {number + 1} of {len(court.held)}"
            tell = clock.fold(trial.number, number, len(court.held), options.network)
            hear(fold, where, options, {name: hearing}, tell, court.widest, crew)
            _keep(trial, court, hearing, told)
            if clock.stopped:
                raise KeyboardInterrupt
            if hearing.failed:
                break
            trial.report(court.score(hearing), number)
            if number + 1 < len(court.held) and trial.should_prune():
                state = ended.PRUNED
                break
        else:
            state = ended.COMPLETE
    except BaseException:  # somebody stops it: it counts for nothing
        trial.set_user_attr(studies.HEARD, None)
        raise
    finally:
        values = court.score(hearing) if state == ended.COMPLETE else None
        study.tell(trial, values, state)
        clock.ended()


def _keep(trial: optuna.Trial, court: Court, hearing: Hearing, knobs: dict[str, Any]) -> None:
    """What is known of a trial so far, for whoever reads the study."""
    heard = bool(hearing.misses)
    sizes = [model.parameters for model, _ in hearing.models]
    values = {
        "knobs": knobs,
        "score": court.score(hearing) if heard else np.inf,
        "rmse": rmse_of(hearing).tolist() if heard else [],
        "size": int(np.median(sizes)) if sizes else 0,
        "folds": len(hearing.models),
        "seconds": round(hearing.seconds, 3),
        "why": hearing.failed,
        "pieces": pieces_of(hearing, court.spread).tolist() if heard else [],
    }
    trial.set_user_attr(studies.HEARD, plain(values))


class _Clock:
    """How far a search is: trials count alike, the last fit as :data:`LAST` of them."""

    def __init__(self, progress: Callable[[Stage], None] | None, trials: int) -> None:
        self._progress, self._trials = progress, trials
        self._began = time.perf_counter()
        self._done = 0
        self.lock, self.stopped = threading.Lock(), False

    def fold(self, trial: int, fold: int, count: int, network: str) -> Clock:
        """Says which fold of which trial goes on, where the referee asks for a clock."""

        def tell(_: Stage) -> None:
            what = f"trial {trial} ({self._done + 1} of {self._trials}), {network}, "
            self._tell(f"{what}fold {fold + 1} of {count}", self._done + fold / count)

        return Clock(tell, 1)

    def ended(self) -> None:
        """One more trial is over, after however many folds."""
        with self.lock:
            self._done += 1

    def last(self, stage: Stage) -> None:
        """Progress of the fit at the end."""
        self._tell(f"last fit: {stage.what}", self._trials + LAST * stage.share)

    def _tell(self, what: str, done: float) -> None:
        if self._progress:
            seconds = time.perf_counter() - self._began
            self._progress(Stage(what, min(1.0, done / (self._trials + LAST)), seconds))
