"""Which order, which restarts: many short fits on part of the rows, few long ones on all of them.

Linear models of all orders are fitted side by side.  The order of a linear model is that of the
smallest BIC (:mod:`~occamid.training.criterion`) with ``k = n (nu + ny) + nu ny + ny``, the free
parameters of order n.  For networks with units that says little, and neither does the
evidence tell good restarts from bad ones (METHOD section 9): they are scored on rows that were held
back, and the best of all orders are finished; together they err less than those of one order.
The order that is told is found on the way from the best of them to smaller ones
(:mod:`~.reduction`).  Short pieces of a long record do not show what
drifts: there the best restarts of several orders run some iterations through all of it, and those
of the best order and of one with fewer states go on; whoever uses them knows best which starts well
from a few known outputs.  Long records can also tell how many units there are: models begin with
few, and get twice as many as long as the error falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.errors import DataError
from occamid.training.cores import side_by_side
from occamid.training.criterion import criterion, usable
from occamid.training.state_space import levenberg
from occamid.training.state_space.fit import (
    Data,
    Plan,
    Report,
    Stage,
    error,
    finished,
    linear,
    nonlinear,
    run,
    scored_data,
)
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.normal_equations import FreeRuns
from occamid.training.state_space.priors import (
    groups,
    order_mask,
    prior_of,
    standardised,
    weights_of,
)
from occamid.training.state_space.reduction import Reduction, free_weights, reading, reduced
from occamid.training.state_space.resizing import moved, picked, widened
from occamid.training.state_space.smaller import inputs_of
from occamid.training.state_space.start import Linear, Rows, excerpt
from occamid.training.state_space.subspace import best_order, subspace
from occamid.training.state_space.trajectory import split

Array = np.ndarray
SCORED = ((0.3, 0.4), (0.8, 0.9))  # shares of every record that restarts are scored on
AS_GOOD = 1.05  # times the best score: a smaller order, or fewer units, are taken
GROWING = 10.0  # times as large a mode may get in a fit: estimated poles scatter around one
SHORTEST = 60  # rows in all that a fit is made of
FINALISTS, TASTE = 4, 8  # orders of a long record that go on to all rows, for so many iterations
NONE = "no state-space model runs free on these records"
COST = 1e9  # rows × outputs × weights² of the fits that go on together


@dataclass(frozen=True)
class Search:
    """How a state-space model is looked for.

    Args:
        orders: numbers of states that are tried.
        units: number of units; 0 is a linear model.  Models of long records begin with half of them
            and may get twice as many, unless they are ``fixed``.
        restarts: starts of the units for every order.
        members: how many fits of each order are finished at most; of short records twice as many,
            of any orders.
        screening: iterations of every restart on part of the rows.
        iterations: of those that are finished, on all rows.
        rows: the most that restarts are screened on.
        bent: whether those that are finished follow bent valleys (geodesic correction).
        fixed: whether models of long records have just these units, too.
        projected: whether a linear model comes from projections alone (:mod:`~.subspace`), and
        offset: whether such a one has an offset.
        told: whether the first fit is the smallest that says as much (:mod:`~.reduction`), of short
            records and of linear models.
        seed: of the starts.
    """

    orders: tuple[int, ...]
    units: int = 0
    restarts: int = 4
    members: int = 4
    screening: int = 25
    iterations: int = 60
    rows: int = 3000
    bent: bool = True
    fixed: bool = False
    projected: bool = False
    offset: bool = True
    told: bool = True
    seed: int = 0

    @property
    def levenberg(self) -> levenberg.Settings:
        """How fits are finished."""
        return levenberg.Settings(self.iterations, bend=2.0 if self.bent else 0.0)

    @property
    def reduction(self) -> Reduction:
        """What may leave a fit: what the user fixed may not."""
        return Reduction(len(self.orders) > 1, not self.fixed, self.seed)

    def halved(self) -> Search:
        """Half of it, for models that are only compared; of fewer restarts none may be good."""
        members, iterations = max(2, self.members // 2), max(10, self.iterations // 2)
        restarts = max(min(4, self.restarts), self.restarts // 2)
        return replace(
            self, restarts=restarts, members=members, iterations=iterations, bent=False, told=False
        )


def search(rows: Sequence[Rows], plan: Search, report: Report | None = None) -> list[Fitted]:
    """The finished fits; inputs, outputs and weights in scaled units.

    There may be several orders: of short records the first tells the order, the smallest model
    that says as much as the best (:mod:`~.reduction`); of long ones it is of the best.
    """
    rows = [row for row in rows if np.any(row[2] > 0)]
    seen = int(sum(np.sum(weight > 0) for _, _, weight in rows))
    if seen < SHORTEST:
        raise DataError(f"{seen} rows are too few for a state-space model ({SHORTEST} at least)")
    whole = scored_data(rows, [np.zeros(len(u), bool) for u, _, _ in rows])
    if plan.projected:
        with jax.enable_x64(True):
            return finished(whole, projected(whole, plan))
    few, short = excerpt(rows, plan.rows), seen <= plan.rows
    quick = Plan(
        order=max(plan.orders),
        units=plan.units if short or plan.fixed else -(-plan.units // 2),
        restarts=plan.restarts,
        rounds=((plan.screening // 3, 0.5), (plan.screening - plan.screening // 3, 0.5)),
        linear_iterations=20,
        seed=plan.seed,
        levenberg=levenberg.Settings(bend=0.0),  # which doubles what a short fit costs
    )
    parts = in_two(tuple(n for n in plan.orders if n <= most_states(few)) or (1,))
    with jax.enable_x64(True):
        if not plan.units:
            data = scored_data(few, [np.zeros(len(u), bool) for u, _, _ in few])
            found = [linear(data, orders, quick, report) for orders in parts]
            stages = [moved(linear_one(data, found, plan, report), whole, short, plan.seed)]
        else:
            data = scored_data(few, [scored(len(u)) for u, _, _ in few])
            bases = [linear(data, orders, quick, report) for orders in parts]
            found = [nonlinear(data, base, quick, report) for base in bases]
            if short:
                best = by_score(data, found, 2 * plan.members)
                stages = [moved(stage, whole, short, plan.seed) for stage in best]
            else:
                each = finalists(data, found, plan.members)
                begun = [moved(stage, whole, short, plan.seed) for stage in each]
                stages = tasted(begun, whole, plan, report)

        def end(stage: Stage) -> Stage:
            with jax.enable_x64(True):  # each thread has its own
                if plan.units and not (short or plan.fixed):
                    stage = grown(stage, whole, plan, report)
                return run(stage, plan.levenberg, "last round", report)

        stages = side_by_side([partial(end, stage) for stage in stages])
        if plan.units and plan.told and short:
            stages = with_told(stages, whole, plan, report)
        fits = [fit for fit in chain(*(finished(whole, one) for one in stages)) if fit.sound]
        if not fits:
            raise DataError(NONE)
        return fits


def linear_one(data: Data, found: Sequence[Stage], plan: Search, report: Report | None) -> Stage:
    """The linear model with the smallest BIC, one that was made smaller among them."""
    found = tamed(data, found)
    if plan.told:
        found = tamed(data, [*found, reduced(found[-1], data, plan.reduction, report)])
    return by_criterion(data, found)


def tamed(data: Data, stages: Sequence[Stage]) -> list[Stage]:
    """Linear fits that may be used; wild is what grows by more than :data:`GROWING` in its rows.

    No few outputs could tell the first state of such a fit.
    """
    wild = together(stages, radii) > GROWING ** (1 / max(map(len, data.u)))
    errors = np.nan_to_num(together(stages, error), nan=np.inf)
    return those(stages, np.flatnonzero(usable(errors, wild)))


def with_told(
    stages: Sequence[Stage], data: Data, plan: Search, report: Report | None
) -> list[Stage]:
    """The fit that tells the order comes first; inputs that it does not read leave all fits."""
    errors = [np.min(np.nan_to_num(error(stage), nan=np.inf), initial=np.inf) for stage in stages]
    if not np.isfinite(errors).any():
        return list(stages)
    told = reduced(stages[int(np.argmin(errors))], data, plan.reduction, report)
    inputs = inputs_of(told.problem.sizes, told.state.mask)[0]
    others = [reading(stage, inputs) for stage in stages]
    for k, stage in enumerate(stages):
        if others[k] is not stage:
            others[k] = run(others[k], plan.levenberg, "fewer inputs", report)
    return [told, *others]


def projected(data: Data, plan: Search) -> Stage:
    """The linear model that projections find, with a prior as wide as its weights are large.

    Models of all orders have room for the largest, so that what is compiled serves every fold.
    """
    order = best_order(data.rows, plan.orders, plan.offset)
    sizes, fit = data.sizes(max(plan.orders), 0), subspace(data.rows, order, plan.offset)
    w = weights_of(sizes, Linear(fit.A, fit.B, fit.C, fit.D))
    at = split(sizes, w)
    at.out[:, sizes.nx + sizes.nu], at.first[:, :order] = fit.c, fit.first
    problem = FreeRuns(sizes, data.rows, seed=plan.seed)
    x, _ = problem.outputs(w[None], problem.carry(1))
    seen = problem.inside(data.weight)
    own = order_mask(sizes, order, plan.offset)
    x = x[0][seen[0]][seen[1]]
    w = np.where(own, standardised(sizes, w, x, plan.offset), 0.0)[None]
    alpha, settings = np.ones((1, groups(sizes)[1])), levenberg.Settings()
    begun = levenberg.begin(problem, w, own[None], alpha, problem.carry(1), settings)
    prior = prior_of(sizes, np.zeros_like(w))
    return Stage(problem, prior, levenberg.heard(problem, begun, prior, settings))


def in_two(orders: Sequence[int]) -> list[tuple[int, ...]]:
    """The orders up to half of the largest, and those above.

    The orders of a group run as one program of its largest; the small ones then cost a quarter.
    """
    half = max(orders) // 2
    small, large = (tuple(n for n in orders if (n > half) == above) for above in (False, True))
    return [small, large] if small else [large]


def most_states(rows: Sequence[Rows]) -> int:
    """Few rows cannot tell many states: ten for every number that a state brings."""
    u, y, _ = rows[0]
    seen = sum(np.sum(weight > 0) for _, _, weight in rows)
    return max(1, int(seen // (10 * (u.shape[1] + y.shape[1]))))


def scored(length: int) -> Bool[Array, " T"]:
    """Which rows of a record are scored."""
    at = (np.arange(length) + 0.5) / length
    return np.any([(at >= low) & (at < high) for low, high in SCORED], axis=0)


def by_criterion(data: Data, stages: Sequence[Stage]) -> Stage:
    """The linear model whose order has the smallest BIC."""
    rows, squares = stages[0].problem.rows, together(stages, _squares)
    free = together(stages, lambda s: free_weights(s.problem.sizes, s.state.mask))
    squares = squares / rows
    stage, lane = _place(stages, int(np.argmin(np.sum(np.log(squares), axis=1))))
    _, y = stage.problem.outputs(stage.state.w, stage.state.carry)
    inside, looked_at = stage.problem.inside(data.weight)
    miss = (y[lane][inside] - np.concatenate(data.whole))[looked_at]
    stage, lane = _place(stages, int(np.argmin(criterion(squares, free, [miss]))))
    return picked(stage, np.array([lane]))


def radii(stage: Stage) -> Float[Array, " M"]:
    """How far the poles of every fit, a linear one, are from zero."""
    own = split(stage.problem.sizes, np.where(stage.state.mask, stage.state.w, 0.0))
    A = own.state[:, :, : stage.problem.sizes.nx]
    return np.max(np.abs(np.linalg.eigvals(A)), axis=1)


def _squares(stage: Stage) -> Float[Array, "M ny"]:
    return np.where(np.isfinite(stage.state.squares), stage.state.squares, 1e300)


def together(stages: Sequence[Stage], of: Callable[[Stage], Array]) -> Array:
    """One array of what every fit of all stages has."""
    return np.concatenate([of(stage) for stage in stages])


def _place(stages: Sequence[Stage], fit: int) -> tuple[Stage, int]:
    """The stage of the fit with this number among all of them, and its number there."""
    for stage in stages:
        if fit < len(stage.orders):
            return stage, fit
        fit -= len(stage.orders)
    raise IndexError(fit)


def by_score(data: Data, stages: Sequence[Stage], members: int) -> list[Stage]:
    """The best restarts on the scored rows, whatever their order.

    The first is the best one of the smallest order about as good as the best.  However far the
    others are behind now: a median of a few errs less than one that was lucky on these rows.
    """
    orders, scores = all_scores(data, stages)
    best = {n: np.min(scores[orders == n]) for n in np.unique(orders)}
    order = next(n for n in sorted(best) if best[n] <= AS_GOOD * min(best.values()))
    ranked = np.argsort(np.where((orders == order) & (scores == best[order]), 0.0, scores))
    return those(stages, ranked[np.isfinite(scores[ranked])][:members])


def finalists(data: Data, stages: Sequence[Stage], restarts: int) -> list[Stage]:
    """The best restarts, on the scored rows, of each of the best orders."""
    orders, scores = all_scores(data, stages)
    ranked = np.argsort(scores, kind="stable")[: int(np.isfinite(scores).sum())]
    first = np.sort(np.unique(orders[ranked], return_index=True)[1])  # of each order
    best = [ranked[orders[ranked] == n][:restarts] for n in orders[ranked][first][:FINALISTS]]
    return those(stages, np.concatenate(best))


def those(stages: Sequence[Stage], fits: Int[Array, " m"]) -> list[Stage]:
    """Some of the fits of all stages, in their stages and in their order."""
    first = np.cumsum([0, *(len(stage.orders) for stage in stages)])
    place = np.searchsorted(first, fits, side="right") - 1
    return [picked(stages[k], fits[place == k] - first[k]) for k in dict.fromkeys(place.tolist())]


def tasted(stages: Sequence[Stage], data: Data, plan: Search, report: Report | None) -> list[Stage]:
    """The fits of the order that is best after some iterations on all rows, and of a smaller one.

    Each goes on with its own states only; where that is dear, not all of its restarts do.
    """

    def taste(stage: Stage) -> Stage:
        with jax.enable_x64(True):  # each thread has its own
            return run(stage, levenberg.Settings(TASTE, bend=0.0), "all rows", report)

    stages = side_by_side([partial(taste, stage) for stage in stages])
    errors, orders = together(stages, error), together(stages, lambda stage: stage.orders)
    sound = np.isfinite(errors)
    if not sound.any():
        raise DataError(NONE)
    ranked = orders[np.argsort(errors, kind="stable")][: sound.sum()]
    each = [ranked[0], *ranked[ranked < ranked[0]][:1]]
    own = []
    for n in each:
        stage = next(s for s in stages if n in s.orders)  # one order is in one stage
        lanes = np.isfinite(error(stage)) & (stage.orders == n)
        own.append(moved(picked(stage, np.flatnonzero(lanes)), data, False, plan.seed))
    units = own[0].problem.sizes.m
    return [one.best(max(affordable(one, units), plan.members // 2)) for one in own]


def grown(stage: Stage, data: Data, plan: Search, report: Report | None) -> Stage:
    """Fits with more and more units, as long as that makes the error clearly smaller."""
    settings = levenberg.Settings(plan.iterations // 2, bend=0.0)  # the last round is a full one
    stage = run(stage, settings, "some units", report)
    units, most = stage.problem.sizes.m, 2 * plan.units
    while units < most:
        units = min(2 * units, most)
        wide = widened(stage.best(affordable(stage, units)), data, units, plan.seed)
        wide = run(wide, settings, f"{units} units", report)
        if not AS_GOOD * np.min(error(wide)) < np.min(error(stage)):
            break
        stage = wide
    return stage


def affordable(stage: Stage, units: int) -> int:
    """How many fits with so many units may go on together."""
    weights = stage.problem.sizes._replace(m=units).total
    return max(1, int(COST / (np.sum(stage.problem.rows) * weights**2)))


def all_scores(data: Data, stages: Sequence[Stage]) -> tuple[Int[Array, " M"], Float[Array, " M"]]:
    """Orders and scores of the fits of all stages, one of which at least runs free."""
    scores = together(stages, partial(scores_of, data))
    if not np.isfinite(scores).any():
        raise DataError(NONE)
    return together(stages, lambda stage: stage.orders), scores


def scores_of(data: Data, stage: Stage) -> Float[Array, " M"]:
    """Root mean square over the scored rows and all outputs; infinite where a run is wild."""
    _, y = stage.problem.outputs(stage.state.w, stage.state.carry)
    inside, _ = stage.problem.inside(data.weight)
    held = np.concatenate(data.scored)
    miss = y[:, inside][:, held] - np.concatenate(data.whole)[held]
    with np.errstate(all="ignore"):
        found = np.sqrt(np.mean(miss**2, axis=(1, 2)))
    return np.where(np.isfinite(found), found, np.inf)
