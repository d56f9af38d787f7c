"""Which order, which restarts: many short fits on part of the rows, few long ones on all of them.

Linear models of all orders are fitted side by side.  The order of a linear model is that of the
smallest BIC (:mod:`~occamid.training.criterion`) with ``k = n (nu + ny) + nu ny + ny``, the free
parameters of order n.  For networks with units that says little, and neither does the
evidence tell good restarts from bad ones (METHOD section 9): they are scored on rows that were held
back, the smallest order about as good as the best is taken, and its best restarts are finished.
Short pieces of a long record do not show what drifts: there the best restarts of several orders run
some iterations on all rows, and those of the best order and of one with fewer states are finished;
whoever uses them knows best which starts well from a few known outputs.
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
from occamid.training.criterion import criterion
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
from occamid.training.state_space.priors import prior_of
from occamid.training.state_space.start import Rows, within
from occamid.training.state_space.trajectory import Sizes, split

Array = np.ndarray
SCORED = ((0.3, 0.4), (0.8, 0.9))  # shares of every record that restarts are scored on
AS_GOOD = 1.05  # times the best score: a smaller order is taken
SHORTEST = 60  # rows in all that a fit is made of
FINALISTS, TASTE = 4, 8  # orders of a long record that go on to all rows, for so many iterations


@dataclass(frozen=True)
class Search:
    """How a state-space model is looked for.

    Args:
        orders: numbers of states that are tried.
        units: number of units; 0 is a linear model.
        restarts: starts of the units for every order.
        members: how many fits are finished; of long records half of them for each of two orders.
        screening: iterations of every restart on part of the rows.
        iterations: of those that are finished, on all rows.
        rows: the most that restarts are screened on.
        bent: whether those that are finished follow bent valleys (geodesic correction).
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
    seed: int = 0

    def halved(self) -> Search:
        """Half of it, for models that are only compared; of fewer restarts none may be good."""
        members, iterations = max(2, self.members // 2), max(10, self.iterations // 2)
        restarts = max(min(4, self.restarts), self.restarts // 2)
        return replace(self, restarts=restarts, members=members, iterations=iterations, bent=False)


def search(rows: Sequence[Rows], plan: Search, report: Report | None = None) -> list[Fitted]:
    """The finished fits; inputs, outputs and weights in scaled units.

    Of short records they are of one order, the best score first; of long ones of several.
    """
    rows = [row for row in rows if np.any(row[2] > 0)]
    seen = int(sum(np.sum(weight > 0) for _, _, weight in rows))
    if seen < SHORTEST:
        raise DataError(f"{seen} rows are too few for a state-space model ({SHORTEST} at least)")
    few = excerpt(rows, plan.rows)
    whole = scored_data(rows, [np.zeros(len(u), bool) for u, _, _ in rows])
    quick = Plan(
        order=max(plan.orders),
        units=plan.units,
        restarts=plan.restarts,
        rounds=((plan.screening // 3, 0.5), (plan.screening - plan.screening // 3, 0.5)),
        linear_iterations=20,
        seed=plan.seed,
        levenberg=levenberg.Settings(bend=0.0),  # which doubles what a short fit costs
    )
    groups = in_two(tuple(n for n in plan.orders if n <= most_states(few)) or (1,))
    with jax.enable_x64(True):
        if not plan.units:
            data = scored_data(few, [np.zeros(len(u), bool) for u, _, _ in few])
            found = [linear(data, orders, quick, report) for orders in groups]
            stages = [moved([by_criterion(data, found)], whole, plan)]
        else:
            data = scored_data(few, [scored(len(u)) for u, _, _ in few])
            bases = [linear(data, orders, quick, report) for orders in groups]
            found = [nonlinear(data, base, quick, report) for base in bases]
            if seen <= plan.rows:
                stages = [moved([by_score(data, found, plan.members)], whole, plan)]
            else:
                best = finalists(data, found, max(1, plan.members // 2))
                stages = tasted(moved(best, whole, plan), whole, plan, report)
        settings = levenberg.Settings(plan.iterations, bend=2.0 if plan.bent else 0.0)

        def end(stage: Stage) -> list[Fitted]:
            with jax.enable_x64(True):  # each thread has its own
                return finished(whole, run(stage, settings, "last round", report))

        return list(chain(*side_by_side([partial(end, stage) for stage in stages])))


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


def excerpt(rows: Sequence[Rows], most: int) -> list[Rows]:
    """Evenly spaced pieces of long records, about ``most`` rows in all."""
    total = sum(len(u) for u, _, _ in rows)
    if total <= most:
        return list(rows)
    found: list[Rows] = []
    for u, y, weight in rows:
        length = max(2, round(most * len(u) / total))
        pieces = min(3, max(1, length // 500))
        size = length // pieces
        for first in np.linspace(0, len(u) - size, pieces).round().astype(int):
            part = slice(int(first), int(first) + size)
            found.append((u[part], y[part], weight[part]))
    return found


def by_criterion(data: Data, stages: Sequence[Stage]) -> Stage:
    """The linear model whose order has the smallest BIC."""
    sizes, rows = stages[0].problem.sizes, stages[0].problem.rows
    orders, squares = _together(stages, lambda s: s.orders), _together(stages, _squares)
    free = orders * (sizes.nu + sizes.ny) + sizes.nu * sizes.ny + sizes.ny
    squares = squares / rows
    stage, lane = _place(stages, int(np.argmin(np.sum(np.log(squares), axis=1))))
    _, y = stage.problem.outputs(stage.state.w, stage.state.carry)
    inside, looked_at = stage.problem.inside(data.weight)
    miss = (y[lane][inside] - np.concatenate(data.whole))[looked_at]
    stage, lane = _place(stages, int(np.argmin(criterion(squares, free, [miss]))))
    return picked(stage, np.array([lane]))


def _squares(stage: Stage) -> Float[Array, "M ny"]:
    return np.where(np.isfinite(stage.state.squares), stage.state.squares, 1e300)


def _together(stages: Sequence[Stage], of: Callable[[Stage], Array]) -> Array:
    return np.concatenate([of(stage) for stage in stages])


def _place(stages: Sequence[Stage], fit: int) -> tuple[Stage, int]:
    """The stage of the fit with this number among all of them, and its number there."""
    for stage in stages:
        if fit < len(stage.orders):
            return stage, fit
        fit -= len(stage.orders)
    raise IndexError(fit)


def by_score(data: Data, stages: Sequence[Stage], members: int) -> Stage:
    """The best restarts, on the scored rows, of the smallest order about as good as the best."""
    orders, scores = all_scores(data, stages)
    best = {n: np.min(scores[orders == n]) for n in np.unique(orders)}
    order = next(n for n in sorted(best) if best[n] <= AS_GOOD * min(best.values()))
    fits = np.flatnonzero((orders == order) & np.isfinite(scores))
    fits = fits[np.argsort(scores[fits], kind="stable")][:members]
    stage, first = _place(stages, int(fits[0]))  # one order is in one stage
    return picked(stage, fits - (fits[0] - first))


def finalists(data: Data, stages: Sequence[Stage], restarts: int) -> list[Stage]:
    """The best restarts, on the scored rows, of each of the best orders."""
    orders, scores = all_scores(data, stages)
    ranked = np.argsort(scores, kind="stable")[: int(np.isfinite(scores).sum())]
    first = np.sort(np.unique(orders[ranked], return_index=True)[1])  # of each order
    best = [ranked[orders[ranked] == n][:restarts] for n in orders[ranked][first][:FINALISTS]]
    taken = np.isin(np.arange(len(orders)), np.concatenate(best))
    each = np.split(taken, np.cumsum([len(stage.orders) for stage in stages])[:-1])
    return [
        picked(stage, np.flatnonzero(own))
        for stage, own in zip(stages, each, strict=True)
        if own.any()
    ]


def tasted(stage: Stage, data: Data, plan: Search, report: Report | None) -> list[Stage]:
    """The fits of the order that is best after some iterations on all rows, and of a smaller one.

    Each goes on with its own states only.
    """
    stage = run(stage, levenberg.Settings(TASTE, bend=0.0), "all rows", report)
    errors, orders = error(stage), stage.orders
    sound = np.isfinite(errors)
    if not sound.any():
        raise DataError("no state-space model runs free on these records")
    ranked = orders[np.argsort(np.where(sound, errors, np.inf), kind="stable")][: sound.sum()]
    each = [ranked[0], *ranked[ranked < ranked[0]][:1]]
    return [moved([picked(stage, np.flatnonzero(sound & (orders == n)))], data, plan) for n in each]


def all_scores(data: Data, stages: Sequence[Stage]) -> tuple[Int[Array, " M"], Float[Array, " M"]]:
    """Orders and scores of the fits of all stages, one of which at least runs free."""
    scores = _together(stages, partial(scores_of, data))
    if not np.isfinite(scores).any():
        raise DataError("no state-space model runs free on these records")
    return _together(stages, lambda stage: stage.orders), scores


def scores_of(data: Data, stage: Stage) -> Float[Array, " M"]:
    """Root mean square over the scored rows and all outputs; infinite where a run is wild."""
    _, y = stage.problem.outputs(stage.state.w, stage.state.carry)
    inside, _ = stage.problem.inside(data.weight)
    held = np.concatenate(data.scored)
    miss = y[:, inside][:, held] - np.concatenate(data.whole)[held]
    with np.errstate(all="ignore"):
        found = np.sqrt(np.mean(miss**2, axis=(1, 2)))
    return np.where(np.isfinite(found), found, np.inf)


def picked(stage: Stage, lanes: Array) -> Stage:
    """Some of the fits."""
    state, prior = levenberg.choose(stage.state, stage.prior, lanes, stage.problem.pick)
    return Stage(stage.problem, prior, state)


def moved(stages: Sequence[Stage], data: Data, plan: Search) -> Stage:
    """Fits on other records, or again on the same ones.

    States that none of them has are left out where the records are longer; where they are short
    nothing new is compiled.
    """
    old, orders = stages[0].problem.sizes, _together(stages, lambda stage: stage.orders)
    same = sum(map(len, data.u)) <= plan.rows
    sizes = data.sizes(old.nx if same else int(orders.max()), old.m)

    def all_of(values: Callable[[Stage], Array]) -> Array:
        return np.concatenate([repacked(s.problem.sizes, sizes, values(s)) for s in stages])

    w, mask = all_of(lambda s: s.state.w), all_of(lambda s: s.state.mask)
    mean = all_of(lambda s: s.prior.mean)
    if not old.m:  # what grows on short pieces would blow up on long records
        A = split(sizes, w).state[..., : sizes.nx]
        A[:] = np.stack([within(one) for one in A])
    split(sizes, mask).first[:] = (np.arange(sizes.nx) < orders[:, None])[:, None]
    problem = FreeRuns(sizes, data.rows, lanes=len(w), seed=plan.seed)
    alpha = _together(stages, lambda stage: stage.state.alpha)
    begun = levenberg.begin(problem, w, mask, alpha, problem.carry(len(w)), levenberg.Settings())
    return Stage(problem, prior_of(sizes, mean), begun)


def repacked(old: Sizes, new: Sizes, w: Float[Array, "M P"]) -> Float[Array, "M Q"]:
    """Weights with fewer or more states; on other records the first states are not known yet."""
    found = np.zeros((len(w), new.total), w.dtype)
    source, target, n = split(old, w), split(new, found), min(old.nx, new.nx)
    own, there = (np.concatenate([np.arange(n), np.arange(s.nx, s.features)]) for s in (old, new))
    target.state[..., :n, there] = source.state[..., :n, :][..., own]
    target.out[..., there] = source.out[..., own]
    read = n + old.nu + 1
    target.unit[..., there[:read]] = source.unit[..., own[:read]]
    if old.records == new.records:
        target.first[..., :n] = source.first[..., :n]
    return found
