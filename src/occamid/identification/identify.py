"""Identify: records in, a model with bands out, nothing chosen by hand.

The referee tries every family of :mod:`occamid.identification.families` on held-back data and
chooses one, or several that make a better model together; they are trained again on everything,
and the bands are made as wide as the held-back errors ask for.  The test record of a
user is never seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.bands.combine import widen_to_residuals
from occamid.bands.ensemble import Beside, Ensemble
from occamid.bands.start import tail_of
from occamid.data.record import Record, as_records
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.assemble import Workshop, nearest_member
from occamid.identification.crew import Workers, crew_of
from occamid.identification.dead_time import dead_times, moved, staying
from occamid.identification.expected import (
    calibrated,
    expected,
    learning_gain,
    own_error,
)
from occamid.identification.families import Family, every_family
from occamid.identification.folds import rows_of
from occamid.identification.folds import whole as everything
from occamid.identification.hearing import Hearing, rmse_of
from occamid.identification.options import Budget, Options
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import Judgement, Trial, judge
from occamid.identification.stack import Stack, stacked
from occamid.identification.thinning import thin
from occamid.networks import Network, Observer
from occamid.networks.flat import size
from occamid.training.batch import Batch
from occamid.training.cores import side_by_side, small_algebra, suited_to
from occamid.training.criterion import WORST
from occamid.training.room import make_room

Array = np.ndarray
UNTRAINED = "could not be trained on all data"
DOUBTFUL = "errs more on data it learned from than it did on held-back data"
ROUNDING = 1e-6  # standard deviations: errors below this say nothing of a model


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
        shares: the family's share of every run and those of families beside it, if there are any.
        held_back: errors of the free runs through held-back data, what the bands rest on.
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
    shares: dict[str, float] = field(default_factory=dict)
    held_back: tuple[Float[Array, "T ny"], ...] = ()

    @property
    def coverage_of_data(self) -> str:
        """How much of the data was trained on, and which pieces."""
        rows = sum(len(r) - r.lead for r in self.records)
        said = f"trained on {rows} of {max(self.rows_given, rows)} rows"
        if rows >= self.rows_given:
            return said
        pieces = ", ".join(f"{r.name} ({len(r) - r.lead} rows)" for r in self.records)
        more = "a higher effort trains on more"
        if self.rows_given <= self.options.budget.rows:
            more = "what else there is, is too short for the lags"
        return f"{said}: {pieces}; {more}"


@small_algebra()
def identify(
    records: Record | Iterable[Record],
    options: Options | None = None,
    *,
    progress: Callable[[Stage], None] | None = None,
    checkpoints: Checkpoints | None = None,
    workers: int | str | None = None,
    **changes: Any,
) -> Fit:
    """Identify a dynamic system without choosing lags, widths, λ, cycles or restarts.

    Args:
        records: estimation data; several records are several experiments of one system.
        options: effort, seed, and what is to be fixed; by default nothing is.
        progress: called as the work goes on.
        checkpoints: where finished cycles are kept.
        workers: who tries families in the folds: so many processes of this machine, or a cluster
            by the address of its scheduler of dask; default: threads of this process.
        **changes: single options by name: ``identify(records, effort="quick", seed=1)``; see
            :class:`Options`.
    """
    options = Options(**((options.given() if options else {}) | changes))
    make_room()
    whole = as_records(records)
    with suited_to(sum(map(len, whole))):
        return _identified(whole, options, progress, checkpoints, Workers.of(workers))


def _identified(
    whole: tuple[Record, ...],
    options: Options,
    progress: Callable[[Stage], None] | None,
    checkpoints: Checkpoints | None,
    workers: Workers,
) -> Fit:
    """The families on trial, the chosen one on all data, and what the folds say about it."""
    data = thin(whole, options.budget.rows)
    given = sum(map(len, whole))
    dead = dead_times(whole, options)
    tried = every_family(options, moved(everything(data), dead).records, given)
    clock = Clock(progress)
    with crew_of(workers) as crew:
        judgement = judge(whole, options, clock, checkpoints, crew)
    long = staying(whole, dead), staying(data, dead)
    bench = _Bench(*long, options, checkpoints, clock, dead)
    make_room()
    judgement, family, shop, model = bench.lead(tried, bench.led(tried, judgement))
    clock.tell(f"bands of {family.name}")
    stack, model, expect = bench.trusted(tried, judgement, model)
    clock.finish()
    batch = None if family.settings is None else shop.batch(family.settings).later(dead)
    model = nearest_member(model, shown(bench.data, model)) if options.single else model
    candidates = size(_candidate(model, family) if batch is None else batch.network)
    return Fit(
        model=replace(_with_tail(model, whole), candidates=candidates),
        family=family,
        trials=judgement.trials,
        grounds="; ".join([judgement.grounds, *([stack.grounds] if stack else [])]),
        batch=batch,
        records=shown(bench.records(family), model),
        options=options,
        expected_rmse=tuple(expect[0].tolist()),
        expected_interval=tuple(zip(*(end.tolist() for end in expect[1:]), strict=True)),
        rows_given=given,
        shares=stack.shares if stack else {family.name: 1.0},
        held_back=_misses(stack.hearing if stack else judgement.hearings.get(family.name)),
    )


def _misses(hearing: Hearing | None) -> tuple[Float[Array, "T ny"], ...]:
    return tuple(part for parts in hearing.misses for part in parts) if hearing else ()


def shown(records: tuple[Record, ...], model: Ensemble) -> tuple[Record, ...]:
    """The records that the model can run through, without inputs from before them."""
    found = (r[r.lead :] if r.lead else r for r in records)
    return tuple(r for r in found if len(r) > model.start + 1)


@dataclass(frozen=True)
class _Bench:
    """The last trainings: of the chosen family, and of those beside it."""

    whole: tuple[Record, ...]
    data: tuple[Record, ...]
    options: Options
    checkpoints: Checkpoints | None
    clock: Clock
    dead: tuple[int, ...]  # times by which inputs are moved

    @cached_property
    def spread(self) -> Float[Array, " ny"]:
        """Standard deviations of the outputs."""
        return np.std(np.concatenate([r.y[r.lead :] for r in self.whole]), axis=0)

    def records(self, family: Family) -> tuple[Record, ...]:
        """What a family is trained on: what sums over time on every row, but for quick efforts."""
        streams = family.search is not None and self.options.effort != "quick"
        return self.whole if streams else self.data

    def shop(self, family: Family, budget: Budget) -> Workshop:
        """Where a family is trained on everything it can be trained on."""
        lesson = moved(everything(self.records(family)), self.dead)
        return Workshop(lesson, budget, self.checkpoints, dead=self.dead)

    def stack(self, tried: Sequence[Family], judgement: Judgement) -> Stack | None:
        """The chosen family and others that err less together with it, if any do."""
        if self.options.single or judgement.chosen not in judgement.hearings:
            return None
        return stacked(tried, judgement.heard, judgement.chosen, self.spread)

    def led(self, tried: Sequence[Family], judgement: Judgement) -> Judgement:
        """The judgement with the family in the lead that has the largest share of a stack."""
        stack = self.stack(tried, judgement)
        if stack is None:
            return judgement
        leader = max(stack.shares, key=lambda name: stack.shares[name])
        if leader == judgement.chosen:
            return judgement
        grounds = f"{judgement.grounds}; {leader} has the largest share of a stack"
        return replace(judgement, chosen=leader, grounds=grounds)

    def lead(
        self, tried: Sequence[Family], judgement: Judgement
    ) -> tuple[Judgement, Family, Workshop, Ensemble]:
        """The chosen family trained on everything.

        Where none of its models is usable there, or they err clearly more on what they learned than
        those of the folds on what they had not seen, it is trained as in the folds, and where that
        fails, too, the next best family takes its place; either is said.
        """
        failed: dict[str, str] = {}  # why, by family
        doubted: list[tuple[float, Family, Workshop, Ensemble]] = []  # and what they err
        for name, budget in self._turns(judgement):
            if doubted and self.heard(judgement, name) >= doubted[0][0]:
                break
            family = next((f for f in tried if f.name == name), None)
            if family is None:  # all records may allow less than the pieces of every fold do
                failed.setdefault(name, f"{name} {UNTRAINED} (too few rows)")
                continue
            shop = self.shop(family, budget)
            try:
                model = shop.model(family, self.clock.sub(f"training {name}"))
            except DataError as problem:
                failed.setdefault(name, f"{name} {UNTRAINED} ({str(problem).rstrip('.')})")
                continue
            own = self.own(judgement, name, model)
            worse = bool(doubted) and own >= doubted[0][0]
            if worse or self.doubtful(judgement, name, own):
                failed.setdefault(name, f"{name} {DOUBTFUL}")
                doubted = sorted([*doubted, (own, family, shop, model)], key=lambda one: one[0])
                continue
            if failed:
                again = "it was trained as in the folds" if name in failed else f"{name} is next"
                judgement = _given_way(judgement, name, failed, again)
            return judgement, family, shop, model
        if doubted:
            _, family, shop, model = doubted[0]
            again = f"{family.name} is taken all the same, for no other promises less"
            return _given_way(judgement, family.name, failed, again), family, shop, model
        raise DataError(f"{failed[judgement.chosen]}.")

    def in_spreads(self, error: Float[Array, " ny"]) -> float:
        """An error over all outputs, in standard deviations."""
        return float(np.sqrt(np.mean((error / self.spread) ** 2)))

    def heard(self, judgement: Judgement, name: str) -> float:
        """What a family erred on held-back data; infinite where it was not heard."""
        hearing = judgement.hearings.get(name)
        return self.in_spreads(rmse_of(hearing)) if hearing and hearing.misses else np.inf

    def own(self, judgement: Judgement, name: str, model: Ensemble) -> float:
        """What a model of the family errs there, which it has learned; zero if not heard."""
        hearing = judgement.hearings.get(name)
        return self.in_spreads(own_error(model, hearing)) if hearing and hearing.misses else 0.0

    def doubtful(self, judgement: Judgement, name: str, own: float) -> bool:
        """Whether a model errs clearly more on what it learned than was foretold for new data."""
        return own > max(WORST * self.heard(judgement, name), ROUNDING)

    def _turns(self, judgement: Judgement) -> list[tuple[str, Budget]]:
        """Families and budgets of the last training, in the order they are tried in."""
        full, best = self.options.budget, judgement.chosen
        others = sorted(judgement.heard.keys() - {best}, key=partial(self.heard, judgement))
        return [(best, full), (best, full.for_folds()), *((name, full) for name in others)]

    def trusted(
        self,
        tried: Sequence[Family],
        judgement: Judgement,
        model: Ensemble,
    ) -> tuple[Stack | None, Ensemble, Float[Array, "3 ny"]]:
        """What the folds say about the chosen family's model.

        Whether others belong beside it; the model with its bands; the error to expect and its
        interval.
        """
        hearing = judgement.hearings.get(judgement.chosen)
        if hearing is None:
            model = widen_to_residuals(model, shown(self.data, model))
            return None, model, np.full((3, model.inflation.shape[1]), np.nan)
        family = next(f for f in tried if f.name == judgement.chosen)
        stack = self.stack(tried, judgement)
        model, stack = self.beside(model, tried, judgement, stack)
        hearing = stack.hearing if stack else hearing
        rows, streams = rows_of(self.records(family)), family.search is not None
        gain = learning_gain(model, hearing, rows, streams)
        return stack, calibrated(model, hearing, gain), np.stack(expected(hearing, gain))

    def beside(
        self,
        leader: Ensemble,
        tried: Sequence[Family],
        judgement: Judgement,
        stack: Stack | None,
    ) -> tuple[Ensemble, Stack | None]:
        """The leading model with the others of its stack, trained as they were in the folds.

        Who is not usable on all rows is left out, and the others share what was its.
        """
        if stack is None:
            return leader, None

        def trained(family: Family) -> Ensemble | None:
            bar = self.clock.sub(f"training {family.name} beside it")
            shop = self.shop(family, self.options.budget.for_folds())
            try:
                model = shop.model(family, bar)
            except DataError:
                return None
            finally:
                bar.close()
            own = self.own(judgement, family.name, model)
            return None if self.doubtful(judgement, family.name, own) else model

        leading, *names = stack.shares
        others = [f for name in names for f in tried if f.name == name]
        self.clock.more(len(others))
        found = side_by_side([partial(trained, family) for family in others])
        usable = {
            f.name: model for f, model in zip(others, found, strict=True) if model is not None
        }
        if len(usable) < len(names):
            stack = stack.only([leading, *usable], judgement.heard, self.spread)
        if stack is None:
            return leader, None
        shares = {name: stack.shares[name] for name in usable if name in stack.shares}
        beside = tuple(Beside(usable[name], share) for name, share in shares.items())
        return replace(leader, beside=beside), stack


def _given_way(
    judgement: Judgement, chosen: str, failed: dict[str, str], instead: str
) -> Judgement:
    """The judgement without families that failed on all data, and what took their place."""
    return replace(
        judgement,
        chosen=chosen,
        grounds="; ".join([judgement.grounds, *failed.values(), instead]),
        hearings={n: h for n, h in judgement.hearings.items() if n == chosen or n not in failed},
    )


def _with_tail(model: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """The model, and those beside it, with the end of the estimation data."""
    others = tuple(b._replace(model=_with_tail(b.model, records)) for b in model.beside)
    return replace(model, tail=tail_of(records, model.window), beside=others)


def _candidate(model: Ensemble, family: Family) -> Network:
    """The network before its pruning, where it was not trained as a batch."""
    network = model.network
    if family.search is None or not isinstance(network, Observer):
        return network
    units = max(family.search.units, network.plant.units)  # of long records it may have grown
    return replace(network.plant, units=units)
