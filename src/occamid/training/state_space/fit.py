"""State-space networks fitted to their own free run: start, restarts, screening, evidence.

A linear model comes first (:mod:`~.start`, then a linear fit of the free run).  It
is the centre of the prior of ``A B C D`` and the start of every restart; restarts differ in
``W V b``, and ``F`` and ``G`` begin near zero.  Many restarts run a few iterations together, the
better part goes on, few are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.errors import DataError
from occamid.training.state_space import levenberg, start
from occamid.training.state_space.fitted import Fitted, state_prior
from occamid.training.state_space.levenberg import Prior, Settings, State
from occamid.training.state_space.normal_equations import FreeRuns
from occamid.training.state_space.priors import (
    groups,
    order_mask,
    prior_of,
    restarts,
    standardised,
    weights_of,
)
from occamid.training.state_space.trajectory import Sizes, split

Array = np.ndarray
STARTS = 4  # linear candidates of every order that run a few iterations


@dataclass(frozen=True)
class Plan:
    """How a state-space network is fitted.

    Args:
        order: number of states.
        units: number of units; 0 is a linear model.
        restarts: how many starts of the units.
        rounds: iterations of each round, and the share of all restarts that is left after it.
        linear_iterations: of the linear model that they start from.
        seed: of the starts.
        memory_mb: what one expansion may hold.
        levenberg: settings of the method.
    """

    order: int
    units: int = 0
    restarts: int = 8
    rounds: tuple[tuple[int, float], ...] = ((10, 0.5), (20, 0.25), (70, 0.25))
    linear_iterations: int = 40
    seed: int = 0
    memory_mb: float = 1024.0
    levenberg: Settings = field(default_factory=Settings)


class Data(NamedTuple):
    """Records in scaled units: inputs, outputs, and weight zero where rows are held back."""

    u: tuple[Float[Array, "T nu"], ...]
    y: tuple[Float[Array, "T ny"], ...]  # zero where held back
    weight: tuple[Float[Array, " T"], ...]
    whole: tuple[Float[Array, "T ny"], ...]  # as measured, only to score a finished fit
    scored: tuple[Bool[Array, " T"], ...]  # held-back rows that a finished fit is scored on

    @property
    def rows(self) -> list[tuple[Array, Array, Array]]:
        """One tuple for every record."""
        return list(zip(self.u, self.y, self.weight, strict=True))

    def sizes(self, order: int, units: int) -> Sizes:
        """Sizes of a network for these records."""
        return Sizes(order, self.u[0].shape[1], self.y[0].shape[1], units, len(self.u))


def data_of(pairs: Sequence[tuple[Array, Array]], held_back: Sequence[slice] | None = None) -> Data:
    """Records with the outputs of the held-back rows blanked."""
    rows, scored = [], []
    for k, (inputs, outputs) in enumerate(pairs):
        held = np.zeros(len(inputs), bool)
        if held_back is not None:
            held[held_back[k]] = True
        rows.append((np.asarray(inputs, float), np.asarray(outputs, float), np.ones(len(inputs))))
        scored.append(held)
    return scored_data(rows, scored)


def scored_data(rows: Sequence[start.Rows], scored: Sequence[Bool[Array, " T"]]) -> Data:
    """Records of which some rows are not fitted but scored; weight zero is neither."""
    u, y, weight = zip(*rows, strict=True)
    left = tuple(np.where(held, 0.0, w) for w, held in zip(weight, scored, strict=True))
    fitted = tuple(np.where(w[:, None] > 0, values, 0.0) for w, values in zip(left, y, strict=True))
    judged = tuple(held & (w > 0) for w, held in zip(weight, scored, strict=True))
    return Data(tuple(u), fitted, left, tuple(y), judged)


class Stage(NamedTuple):
    """Fits on their way, with what they are fitted to."""

    problem: FreeRuns
    prior: Prior
    state: State

    @property
    def orders(self) -> Int[Array, " M"]:
        """The number of states of every fit."""
        return split(self.problem.sizes, self.state.mask).first[:, 0].sum(axis=-1)

    def best(self, count: int, each_order: bool = False) -> Stage:
        """The ``count`` fits with the smallest errors, of each order or of all."""
        ranked = np.argsort(error(self), kind="stable")
        orders = self.orders[ranked] if each_order else np.zeros(len(ranked), int)
        lanes = np.concatenate([ranked[orders == n][:count] for n in np.unique(orders)])
        state, prior = levenberg.choose(self.state, self.prior, lanes, self.problem.pick)
        return Stage(self.problem, prior, state)


def error(stage: Stage) -> Float[Array, " M"]:
    """Root mean square of the free run's error over all outputs, in scaled units."""
    return np.sqrt(np.sum(stage.state.squares, axis=1) / np.sum(stage.problem.rows))


Report = Callable[[str, int, Float[Array, " M"]], None]  # stage, iteration, errors


def run(stage: Stage, settings: Settings, name: str, report: Report | None = None) -> Stage:
    """Iterate the fits of a stage."""

    def tell(k: int, state: State) -> None:
        if report is not None:
            report(name, k, error(stage._replace(state=state)))

    state = levenberg.minimise(stage.problem, stage.state, stage.prior, settings, tell)
    return stage._replace(state=state)


def linear(data: Data, orders: Sequence[int], plan: Plan, report: Report | None = None) -> Stage:
    """For every order the linear model that free-runs best.

    Of candidates from several ridges and horizons the best few run a few iterations, two
    are refined, one is kept.
    All orders are one program: a smaller one has its last states masked.
    """
    sizes = data.sizes(max(orders), 0)
    found = start.responses(data.rows)
    if not found:
        raise DataError("every linear model to start from runs away on these records")
    pairs = [(start.realise(r, n), n) for n in orders for r in found]
    w = np.stack([weights_of(sizes, model) for model, _ in pairs])
    mask = np.stack([order_mask(sizes, n) for _, n in pairs])
    problem = FreeRuns(sizes, data.rows, memory_mb=plan.memory_mb, lanes=len(w), seed=plan.seed)
    alpha = np.ones((len(w), 4))
    alpha[:, :3] = plan.levenberg.smallest
    begun = levenberg.begin(problem, w, mask, alpha, problem.carry(len(w)), plan.levenberg)
    stage = Stage(problem, prior_of(sizes, w), begun).best(STARTS, each_order=True)
    stage = run(stage, levenberg.with_iterations(plan.levenberg, 6), "linear start", report)
    refine = levenberg.with_iterations(plan.levenberg, plan.linear_iterations)
    return run(stage.best(2, each_order=True), refine, "linear", report).best(1, each_order=True)


def nonlinear(data: Data, base: Stage, plan: Plan, report: Report | None = None) -> Stage:
    """Restarts around linear models, in rounds of successive halving (within each order)."""
    few = base.problem.sizes
    sizes = data.sizes(few.nx, plan.units)
    x, _ = base.problem.outputs(base.state.w, base.state.carry)
    seen = np.moveaxis(np.asarray(base.problem.data.weight), 0, 1).ravel() > 0
    begun = []
    for k, order in enumerate(base.orders):
        centre = split(few, standardised(few, base.state.w[k], x[k][seen]))
        begun.append(restarts(sizes, centre, int(order), plan.restarts, plan.seed))
    w, mean, mask = (np.concatenate(v) for v in zip(*begun, strict=True))
    problem = FreeRuns(sizes, data.rows, memory_mb=plan.memory_mb, lanes=len(w), seed=plan.seed)
    alpha = np.ones((len(w), groups(sizes)[1]))
    state = levenberg.begin(problem, w, mask, alpha, problem.carry(len(w)), plan.levenberg)
    stage = Stage(problem, prior_of(sizes, mean), state)
    for number, (iterations, share) in enumerate(plan.rounds):
        settings = levenberg.with_iterations(plan.levenberg, iterations)
        stage = run(stage, settings, f"round {number + 1}", report)
        stage = stage.best(max(1, round(share * plan.restarts)), each_order=True)
    return stage


def fit_state_space(data: Data, plan: Plan, report: Report | None = None) -> list[Fitted]:
    """Fit a state-space network in free run; the finished restarts, smallest error first."""
    with jax.enable_x64(True):
        stage = linear(data, [plan.order], plan, report)
        if plan.units:
            stage = nonlinear(data, stage, plan, report)
        return finished(data, stage)


def finished(data: Data, stage: Stage) -> list[Fitted]:
    """Covariance, evidence, errors and states of every fit of a stage."""
    problem, sizes = stage.problem, stage.problem.sizes
    found = levenberg.finish(problem, stage.state, stage.prior)
    state = found.state
    x, y = problem.outputs(state.w, state.carry)
    inside, looked_at = problem.inside(data.weight)
    target = np.concatenate(data.whole)
    fits = []
    for k in range(len(state.w)):
        squares = (y[k][inside] - target) ** 2
        fits.append(
            Fitted(
                sizes=sizes,
                w=state.w[k],
                mask=state.mask[k],
                alpha=state.alpha[k][stage.prior.group],
                precision=found.precision[k],
                variance=state.variance[k],
                log_evidence=float(found.log_evidence[k]),
                effective=float(found.effective[k]),
                error=_root_mean(squares[looked_at]),
                held_back=_root_mean(squares[np.concatenate(data.scored)]),
                states=state_prior(x[k][inside][looked_at]),
            )
        )
    return fits


def _root_mean(squares: Float[Array, "n ny"]) -> Float[Array, " ny"]:
    return np.sqrt(squares.mean(axis=0)) if len(squares) else np.full(squares.shape[1], np.nan)
