"""Which order, which restarts: many short fits on part of the rows, few long ones on all of them.

Linear models of all orders are fitted side by side.  The order of a linear model is that of the
smallest BIC (:mod:`~occamid.training.criterion`) with ``k = n (nu + ny) + nu ny + ny``, the free
parameters of order n.  For networks with units that says little, and neither does the
evidence tell good restarts from bad ones (METHOD section 9): they are scored on rows that were held
back, the smallest order about as good as the best is taken, and its best restarts are finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Bool, Float

from occamid.errors import DataError
from occamid.training.criterion import criterion
from occamid.training.state_space import levenberg
from occamid.training.state_space.fit import (
    Data,
    Plan,
    Report,
    Stage,
    finished,
    linear,
    nonlinear,
    run,
    scored_data,
)
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.normal_equations import FreeRuns
from occamid.training.state_space.priors import groups, prior_of
from occamid.training.state_space.start import Rows, within
from occamid.training.state_space.trajectory import Sizes, split

Array = np.ndarray
SCORED = ((0.3, 0.4), (0.8, 0.9))  # shares of every record that restarts are scored on
AS_GOOD = 1.05  # times the best score: a smaller order is taken
SHORTEST = 60  # rows in all that a fit is made of
LONG = 2  # members where only a part of the rows is screened on


@dataclass(frozen=True)
class Search:
    """How a state-space model is looked for.

    Args:
        orders: numbers of states that are tried.
        units: number of units; 0 is a linear model.
        restarts: starts of the units for every order.
        members: how many fits are finished, of records that are not long.
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
    """The finished fits, the best score first; inputs, outputs and weights in scaled units."""
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
    orders = tuple(n for n in plan.orders if n <= most_states(few)) or (1,)
    with jax.enable_x64(True):
        if not plan.units:
            data = scored_data(few, [np.zeros(len(u), bool) for u, _, _ in few])
            stage = by_criterion(data, linear(data, orders, quick, report))
        else:
            data = scored_data(few, [scored(len(u)) for u, _, _ in few])
            base = linear(data, orders, quick, report)
            # Long records tell good restarts from bad ones; of short ones more are averaged.
            members = plan.members if seen <= plan.rows else min(LONG, plan.members)
            stage = by_score(data, nonlinear(data, base, quick, report), members)
        settings = levenberg.Settings(plan.iterations, bend=2.0 if plan.bent else 0.0)
        return finished(whole, run(moved(stage, whole, plan), settings, "last round", report))


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


def by_criterion(data: Data, stage: Stage) -> Stage:
    """The linear model whose order has the smallest BIC."""
    sizes, rows = stage.problem.sizes, stage.problem.rows
    free = stage.orders * (sizes.nu + sizes.ny) + sizes.nu * sizes.ny + sizes.ny
    squares = np.where(np.isfinite(stage.state.squares), stage.state.squares, 1e300) / rows
    largest = int(np.argmin(np.sum(np.log(squares), axis=1)))
    _, y = stage.problem.outputs(stage.state.w, stage.state.carry)
    inside, looked_at = stage.problem.inside(data.weight)
    miss = (y[largest][inside] - np.concatenate(data.whole))[looked_at]
    return picked(stage, np.array([np.argmin(criterion(squares, free, [miss]))]))


def by_score(data: Data, stage: Stage, members: int) -> Stage:
    """The best restarts, on the scored rows, of the smallest order about as good as the best."""
    scores = scores_of(data, stage)
    if not np.isfinite(scores).any():
        raise DataError("no state-space model runs free on these records")
    best = {n: np.min(scores[stage.orders == n]) for n in np.unique(stage.orders)}
    order = next(n for n in sorted(best) if best[n] <= AS_GOOD * min(best.values()))
    lanes = np.flatnonzero((stage.orders == order) & np.isfinite(scores))
    return picked(stage, lanes[np.argsort(scores[lanes], kind="stable")][:members])


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


def moved(stage: Stage, data: Data, plan: Search) -> Stage:
    """The fits, all of one order, on other records.

    States that they do not have are left out where the records are longer; where they are the same
    nothing new is compiled.
    """
    old = stage.problem.sizes
    same = sum(map(len, data.u)) <= plan.rows
    sizes = data.sizes(old.nx if same else int(stage.orders[0]), old.m)
    w, mask, mean = (
        repacked(old, sizes, v) for v in (stage.state.w, stage.state.mask, stage.prior.mean)
    )
    if not old.m:  # what grows on short pieces would blow up on long records
        A = split(sizes, w).state[..., : sizes.nx]
        A[:] = np.stack([within(one) for one in A])
    used = np.arange(sizes.nx) < stage.orders[0]
    split(sizes, mask).first[:] = used
    problem = FreeRuns(sizes, data.rows, lanes=len(w), seed=plan.seed)
    alpha = stage.state.alpha[:, : groups(sizes)[1]]
    begun = levenberg.begin(problem, w, mask, alpha, problem.carry(len(w)), levenberg.Settings())
    return Stage(problem, prior_of(sizes, mean), begun)


def repacked(old: Sizes, new: Sizes, w: Float[Array, "M P"]) -> Float[Array, "M Q"]:
    """Weights of a smaller order on other records; the first states there are not known yet."""
    found = np.zeros((len(w), new.total), w.dtype)
    source, target, n = split(old, w), split(new, found), new.nx
    keep = np.concatenate([np.arange(n), np.arange(old.nx, old.features)])
    target.state[:] = source.state[..., :n, :][..., keep]
    target.out[:] = source.out[..., keep]
    target.unit[:] = source.unit[..., keep[: n + old.nu + 1]]
    return found
