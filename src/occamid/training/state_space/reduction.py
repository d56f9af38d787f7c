"""The smallest model that says as much: units, inputs and states leave a finished fit by BIC.

Restarts of different orders differ more in luck than in order, so they tell little about it.  A
model with more states than needed is easily fitted, though, and each smaller one starts from a
larger one that fits (:mod:`~.smaller`), is fitted again, and is kept while BIC falls
(:mod:`~occamid.training.criterion`).  Units leave first, half of them at a time where that can be:
with few of them a state has few weights, and little that it explains is enough to keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.training.criterion import effective_rows
from occamid.training.state_space import levenberg
from occamid.training.state_space.fit import Data, Report, Stage, run
from occamid.training.state_space.normal_equations import FreeRuns, Starts
from occamid.training.state_space.priors import groups, order_mask, prior_of
from occamid.training.state_space.resizing import picked, repacked
from occamid.training.state_space.smaller import (
    along,
    inputs_of,
    opened,
    turned,
    without_input,
    without_state,
    without_units,
)
from occamid.training.state_space.trajectory import Sizes, split

Array = np.ndarray
MORE = 100  # iterations of the fit that is made smaller,
REFIT = 30  # of one with fewer units or inputs,
GLANCE, LAST = 12, 40  # and of ones with fewer states: of all candidates, and of the best
LEAST = 2  # of its states a model may lose one of these
KEPT = 3  # models of one order, each with other units, that go on
WIDE = 5  # units beyond which states do not leave yet
RISES = 2  # orders in a row without a smaller BIC, after which none follows


@dataclass(frozen=True)
class Reduction:
    """What may leave.

    Args:
        states: whether states may.
        units: whether units may.
        seed: of the rows that are left out of the normal equations.
    """

    states: bool = True
    units: bool = True
    seed: int = 0


def free_weights(sizes: Sizes, mask: Bool[Array, "M P"]) -> Int[Array, " M"]:
    """How many weights a basis of the states leaves free; first states do not count.

    ``n (nu + ny) + nu ny + ny`` for a linear model, ``2 n + nu + 1 + ny`` more for every unit.
    """
    at = split(sizes, mask)
    n, m, nu = at.first[:, 0].sum(axis=-1), at.unit[..., -1].sum(axis=-1), inputs_of(sizes, mask)
    u, y = nu.sum(axis=-1), sizes.ny
    return n * (u + y) + u * y + y + m * (2 * n + u + 1 + y)


def bic(stage: Stage, rows: float) -> Float[Array, " M"]:
    """``n Σ_o log σ_o² + k log n`` of every fit, n independent errors; infinite if wild."""
    squares = stage.state.squares / stage.problem.rows
    with np.errstate(all="ignore"):
        found = rows * np.sum(np.log(np.maximum(squares, 1e-300)), axis=1)
    found = found + free_weights(stage.problem.sizes, stage.state.mask) * np.log(rows)
    return np.where(np.isfinite(found), found, np.inf)


def reduced(stage: Stage, data: Data, plan: Reduction, report: Report | None = None) -> Stage:
    """The fit with the smallest BIC on the way from the best one of a stage to small ones."""
    stage = run(stage.best(2), levenberg.Settings(MORE), "before reduction", report)
    rows = independent_rows(stage, data)
    stage = _best(stage, rows)
    if not np.isfinite(bic(stage, rows)[0]):
        return stage
    visited = _fewer_units(stage, data, rows, report) if plan.units else [stage]
    stage = _fewer_inputs(visited[-1], data, rows, report)
    if not plan.states:
        return stage
    narrow = [one for one in visited if _units(one)[0] <= max(WIDE, _units(stage)[0])]
    masks = inputs_of(stage.problem.sizes, stage.state.mask)[0]
    starts = [reading(one, masks) for one in narrow]
    several = _varied(_together([*starts, stage], data, plan.seed), rows)
    return fewer_states(several, data, rows, report) if len(several.state.w) else stage


def independent_rows(stage: Stage, data: Data) -> float:
    """How many independent errors the best fit of a stage has."""
    best = stage.best(1)
    _, y = best.problem.outputs(best.state.w, best.state.carry)
    inside, looked_at = best.problem.inside(data.weight)
    return effective_rows([(y[0][inside] - np.concatenate(data.whole))[looked_at]])


def _best(stage: Stage, rows: float) -> Stage:
    return picked(stage, np.argsort(bic(stage, rows), kind="stable")[:1])


def _units(stage: Stage) -> Int[Array, " M"]:
    return split(stage.problem.sizes, stage.state.mask).unit[..., -1].sum(axis=-1)


def exactly(sizes: Sizes, data: Data, w: Float[Array, " P"]) -> Stage:
    """A fit that begins at these weights."""
    problem = FreeRuns(sizes, data.rows, lanes=LEAST + 3)
    return _begun(problem, [w], [np.ones(sizes.total, bool)], [np.ones(groups(sizes)[1])])


def _begun(
    problem: FreeRuns,
    w: Sequence[Array],
    mask: Sequence[Array],
    alpha: Sequence[Array],
    carry: Starts | None = None,
) -> Stage:
    """Fits that begin here, which is the centre of the prior of their linear part.

    ``carry`` is where models with the same states run; a few are not found from nowhere.
    """
    chosen = np.stack(mask)
    weights, precisions = np.where(chosen, np.stack(w), 0.0), np.array(alpha)
    precisions[:, :2] = 1.0
    carry = problem.carry(len(weights)) if carry is None else carry
    state = levenberg.begin(problem, weights, chosen, precisions, carry, levenberg.Settings())
    return Stage(problem, prior_of(problem.sizes, weights), state)


def _fewer_units(stage: Stage, data: Data, rows: float, report: Report | None) -> list[Stage]:
    """What was best on the way, the last one best of all."""
    visited = [stage]
    while (count := int(_units(stage)[0])) > 1:
        (fit,) = along(stage, data)
        found = [without_units(fit, leave) for leave in sorted({1, -(-count // 4), count // 2})]
        alpha = [stage.state.alpha[0]] * len(found)
        carry = stage.problem.pick(stage.state.carry, np.zeros(len(found), int))
        tried = _begun(stage.problem, [w for w, _ in found], [m for _, m in found], alpha, carry)
        tried = run(tried, levenberg.Settings(REFIT), "fewer units", report)
        tried = picked(tried, np.argsort(bic(tried, rows), kind="stable"))
        if not bic(tried, rows)[0] < bic(stage, rows)[0]:
            break
        visited += [picked(tried, np.array([k])) for k in range(len(found))[::-1]]
        stage = visited[-1]
    return visited


def _fewer_inputs(stage: Stage, data: Data, rows: float, report: Report | None) -> Stage:
    """The best one without inputs that are not worth their weights."""
    while len(read := np.flatnonzero(inputs_of(stage.problem.sizes, stage.state.mask)[0])) > 1:
        (fit,) = along(stage, data)
        count = len(read)
        tried = _begun(
            stage.problem,
            [fit.w] * count,
            [without_input(fit, int(k)) for k in read],
            [stage.state.alpha[0]] * count,
            stage.problem.pick(stage.state.carry, np.zeros(count, int)),
        )
        tried = _best(run(tried, levenberg.Settings(REFIT), "fewer inputs", report), rows)
        if not bic(tried, rows)[0] < bic(stage, rows)[0]:
            break
        stage = tried
    return stage


def _of_inputs(sizes: Sizes, inputs: Bool[Array, " nu"]) -> Bool[Array, " P"]:
    """The weights of these inputs."""
    found = np.zeros(sizes.total, bool)
    for part in split(sizes, found)[:3]:
        part[:, sizes.nx : sizes.nx + sizes.nu] = inputs
    return found


def reading(stage: Stage, inputs: Bool[Array, " nu"]) -> Stage:
    """The same fits without the inputs that have left."""
    sizes, state = stage.problem.sizes, stage.state
    mask = state.mask & ~_of_inputs(sizes, ~inputs)
    return (
        stage
        if np.array_equal(mask, state.mask)
        else _begun(stage.problem, list(state.w), list(mask), list(state.alpha), state.carry)
    )


def _together(stages: Sequence[Stage], data: Data, seed: int) -> Stage:
    """One stage of all fits, with no more room for units than they have."""
    old, most = stages[0].problem.sizes, max(int(_units(one)[0]) for one in stages)
    sizes = data.sizes(old.nx, most)
    w: list[Array] = []
    masks: list[Array] = []
    alpha = []
    for stage in stages:
        state = stage.state
        own = split(old, state.mask).unit[0, :, -1]
        order = np.argsort(~own, kind="stable")  # those that are left come first
        for values, to in ((state.w, w), (state.mask, masks)):
            to.append(repacked(old, sizes, _permuted(old, values, order))[0])
        units = state.alpha[0, 4:].reshape(2, old.m)[:, order[:most]]
        alpha.append(np.concatenate([state.alpha[0, :4], units.ravel()]))
    lanes = len(stages) * (LEAST + 3)
    problem = FreeRuns(sizes, data.rows, lanes=min(lanes, KEPT * (LEAST + 3)), seed=seed)
    carry = jax.tree.map(lambda *v: np.concatenate(v), *(one.state.carry for one in stages))
    return _begun(problem, w, masks, alpha, carry)


def _permuted(sizes: Sizes, w: Array, units: Int[Array, " m"]) -> Array:
    """The same weights with the units in another order."""
    new, read = w.copy(), sizes.nx + sizes.nu + 1
    old, to = split(sizes, w), split(sizes, new)
    to.unit[:] = old.unit[..., units, :]
    for part, was in ((to.state, old.state), (to.out, old.out)):
        part[..., read:] = was[..., read + units]
    return new


def fewer_states(stage: Stage, data: Data, rows: float, report: Report | None = None) -> Stage:
    """State by state, as long as BIC falls; the fit where it was smallest."""
    best, rises = _best(stage, rows), 0
    while rises < RISES and len(stage.state.w) and (order := int(stage.orders[0])) > 1:
        w, masks, alpha = [], [], []
        own = order_mask(stage.problem.sizes, order - 1)
        for fit, precisions in zip(along(stage, data), stage.state.alpha, strict=True):
            basis = turned(fit)
            least = range(order - 1, max(order - 1 - LEAST, -1), -1)
            found = [without_state(fit.sizes, basis, order, k) for k in least]
            found += [one for one in opened(fit, order - 1) if one.any()]
            w += found
            masks += [fit.mask & own] * len(found)
            alpha += [precisions] * len(found)
        stage = _begun(stage.problem, w, masks, alpha)
        stage = run(stage, levenberg.Settings(GLANCE, bend=0.0), f"{order - 1} states", report)
        stage = _varied(stage, rows)
        if not len(stage.state.w):  # all of them run away
            break
        stage = run(stage, levenberg.Settings(LAST), f"{order - 1} states", report)
        stage = _varied(stage, rows)
        if len(stage.state.w) and bic(stage, rows)[0] < bic(best, rows)[0]:
            best, rises = _best(stage, rows), 0
        else:
            rises += 1
    return best


def _varied(stage: Stage, rows: float) -> Stage:
    """For every number of units the best fit; the best few of those, the best first; none wild."""
    units, scores = _units(stage), bic(stage, rows)
    ranked = np.argsort(scores, kind="stable")[: np.isfinite(scores).sum()]
    first = np.sort(np.unique(units[ranked], return_index=True)[1])[:KEPT]
    return picked(stage, ranked[first])
