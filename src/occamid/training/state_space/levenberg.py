"""Levenberg's and Marquardt's method with MacKay's evidence, for several fits side by side.

It minimises ``E(w) = Σ_o S_o(w) / (2 σ_o²) + ½ Σ_i α_i (w_i − μ_i)²``, ``S_o`` the sum of squares
of output o, while precisions and noise follow from MacKay's fixed point (1992):

    ``α_g = γ_g / ‖w_g − μ_g‖²``,  ``γ_g = n_g − α_g tr_g A⁻¹``,  ``σ_o² = S_o / (T_o − γ / ny)``,

with ``A = Σ_o J_oᵀ J_o / σ_o² + diag α``.  What is fitted is a :class:`Problem`, which knows how to
sum over time; the loop and the small dense algebra here run on the host, so that a caller sees
every iteration and may stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

Array = np.ndarray


class Expansion(NamedTuple):
    """Squares of the residuals, and both sums of the quadratic expansion, of M fits."""

    squares: Float[Array, "M ny"]
    gradient: Float[Array, "M P"]
    normal: Float[Array, "M P P"]


class Problem(Protocol):
    """Free runs of M fits and their derivatives; ``carry`` is the problem's own memory."""

    @property
    def rows(self) -> Float[Array, " ny"]:
        """How many rows of each output are looked at."""

    def expand(
        self, w: Float[Array, "M P"], variance: Float[Array, "M ny"], carry: Any, exact: bool
    ) -> Expansion:
        """Squares, gradient and Gauss-Newton matrix; ``exact`` without short cuts."""

    def trial(
        self, w: Float[Array, "M P"], carry: Any, lanes: Bool[Array, " M"]
    ) -> tuple[Float[Array, "M ny"], Any]:
        """Squares only, of some of the fits; infinite where there is no trajectory."""

    def bend(
        self,
        w: Float[Array, "M P"],
        delta: Float[Array, "M P"],
        variance: Float[Array, "M ny"],
        carry: Any,
        lanes: Bool[Array, " M"],
    ) -> Float[Array, "M P"]:
        """``Σ Jᵀ ŷ'' / σ²``, ``ŷ''`` the second derivative along ``delta``; NaN where it fails."""

    def merge(self, kept: Bool[Array, " M"], new: Any, old: Any) -> Any:
        """The memory of fits whose step was kept, else the old one."""


@dataclass(frozen=True)
class Settings:
    """Numbers of the method, from METHOD section 9 unless a comment says otherwise."""

    iterations: int = 100
    damping: float = 1e-2
    down: float = 4.0
    up: float = 5.0
    tries: int = 6
    bend: float = 2.0  # limit of the geodesic correction relative to the step; 0 makes none
    first_update: int = 6
    every: int = 3
    smallest: float = 1e-4  # bounds of α, as in the refinement of NARX models
    largest: float = 1e8
    pruned: float = 1e7  # a group that may leave does so beyond this precision
    settled: float = 1e-4  # relative change of the energy per iteration that counts as rest
    patience: int = 6  # iterations at rest before a fit is finished (two evidence updates)


class Prior(NamedTuple):
    """Where the weights are drawn to, and which of them share a precision."""

    mean: Float[Array, "M P"]
    group: Int[Array, " P"]
    learned: Bool[Array, " G"]  # groups whose precision follows from the evidence
    leaves: Bool[Array, " G"]  # groups that are pruned when their precision runs away
    removes: Bool[Array, "G P"]  # the weights that leave with a group


class State(NamedTuple):
    """M fits on their way; a weight with mask zero stays at zero."""

    w: Float[Array, "M P"]
    mask: Bool[Array, "M P"]
    alpha: Float[Array, "M G"]
    variance: Float[Array, "M ny"]
    squares: Float[Array, "M ny"]
    damping: Float[Array, " M"]
    resting: Int[Array, " M"]
    carry: Any


class Fit(NamedTuple):
    """What is left of M fits."""

    state: State
    precision: Float[Array, "M P P"]
    effective: Float[Array, " M"]
    log_evidence: Float[Array, " M"]


Report = Callable[[int, State], bool | None]  # iteration and state; true stops


def begin(problem: Problem, w: Array, mask: Array, alpha: Array, carry: Any, s: Settings) -> State:
    """The state before the first iteration: noise as large as the residuals of the start."""
    squares, carry = problem.trial(w, carry, np.ones(len(w), bool))
    M = len(w)
    finite = np.where(np.isfinite(squares), squares, 1e6 * problem.rows)
    variance = np.maximum(finite / problem.rows, 1e-14)
    return State(w, mask, alpha, variance, squares, np.full(M, s.damping), np.zeros(M, int), carry)


def minimise(
    problem: Problem, state: State, prior: Prior, settings: Settings, report: Report | None = None
) -> State:
    """Iterate until every fit rests, the iterations are used up, or ``report`` says stop."""
    for k in range(settings.iterations):
        state = step(problem, state, prior, settings, k)
        if (report is not None and report(k, state)) or np.all(state.resting >= settings.patience):
            break
    return state


def step(problem: Problem, state: State, prior: Prior, s: Settings, k: int) -> State:
    """One damped step of every fit, and now and then new precisions and noise."""
    at = problem.expand(state.w, state.variance, state.carry, False)
    state = state._replace(squares=at.squares)
    state = _descend(problem, state, at, prior, s)
    due = k >= s.first_update and (k - s.first_update) % s.every == 0
    if due:
        state = _update(problem, state, at.normal, prior, s)
    elif k < s.first_update:  # nothing rests before the evidence was heard
        variance = np.maximum(state.squares / problem.rows, 1e-14)
        variance = np.where(np.isfinite(variance), variance, state.variance)
        state = state._replace(variance=variance, resting=np.zeros_like(state.resting))
    return state


def heard(problem: Problem, state: State, prior: Prior, s: Settings) -> State:
    """Precisions and noise from the evidence, the weights as they are."""
    at = problem.expand(state.w, state.variance, state.carry, True)
    state = state._replace(squares=at.squares)
    return _update(problem, state, at.normal, prior, s)


def _precision(state: State, prior: Prior, normal: Array) -> tuple[Array, Array]:
    """``A`` with a unit diagonal where the mask is zero, and α per weight."""
    alpha = state.alpha[:, prior.group]
    both = state.mask[:, :, None] & state.mask[:, None, :]
    found = np.where(both, normal, 0.0)
    place = np.arange(alpha.shape[1])
    found[:, place, place] += np.where(state.mask, alpha, 1.0)
    return found, alpha


def _energy(state: State, squares: Array, w: Array, alpha: Array, mean: Array) -> Array:
    away = np.where(state.mask, alpha * (w - mean) ** 2, 0.0)
    with np.errstate(over="ignore"):  # a run that explodes has no energy that is kept
        return 0.5 * np.sum(squares / state.variance, axis=1) + 0.5 * np.sum(away, axis=1)


def _descend(problem: Problem, state: State, at: Expansion, prior: Prior, s: Settings) -> State:
    """Try steps with growing damping until each fit has one that lowers its energy."""
    A, alpha = _precision(state, prior, at.normal)
    gradient = np.where(state.mask, at.gradient + alpha * (state.w - prior.mean), 0.0)
    before = _energy(state, at.squares, state.w, alpha, prior.mean)
    best, open_ = state, np.isfinite(before) & (state.resting < s.patience)
    open_ &= np.isfinite(A).all(axis=(1, 2))
    energy, damping = before.copy(), state.damping.copy()
    for _ in range(s.tries):
        if not open_.any():
            break
        delta = np.zeros_like(gradient)
        delta[open_] = -_solve(A[open_], damping[open_], gradient[open_])
        delta = np.where(state.mask, delta, 0.0)
        delta = delta + _acceleration(problem, state, A, damping, delta, open_, s)
        w = state.w + delta
        w = np.where(open_[:, None], w, state.w)
        squares, carry = problem.trial(w, state.carry, open_)
        new = _energy(state, squares, w, alpha, prior.mean)
        kept = open_ & np.isfinite(new) & (new < before)
        best = best._replace(
            w=np.where(kept[:, None], w, best.w),
            squares=np.where(kept[:, None], squares, best.squares),
            carry=problem.merge(kept, carry, best.carry),
        )
        energy = np.where(kept, new, energy)
        damping = np.where(kept, damping / s.down, np.where(open_, damping * s.up, damping))
        open_ = open_ & ~kept
    fall = (before - energy) / np.maximum(np.abs(before), 1e-300)
    slow = (fall < s.settled) & ((damping < 1) | open_)  # short steps of a damped fit are no rest
    resting = np.where(slow, state.resting + 1, 0)
    return best._replace(damping=np.clip(damping, 1e-9, 1e9), resting=resting)


def _acceleration(
    problem: Problem,
    state: State,
    A: Array,
    damping: Array,
    delta: Array,
    lanes: Array,
    s: Settings,
) -> Float[Array, "M P"]:
    """Transtrum's and Sethna's geodesic correction (2012): ``½ a``, ``a = −A⁻¹ Jᵀ ŷ''(δ) / σ²``.

    It follows a bent valley where a straight step would leave it.  Where ``2 ‖a‖ / ‖δ‖``, in units
    of the diagonal of ``A``, is beyond the limit the expansion is not to be trusted: none is made.
    """
    if not s.bend:
        return np.zeros_like(delta)
    pull = problem.bend(state.w, delta, state.variance, state.carry, lanes)
    known = np.where(state.mask & np.isfinite(pull), pull, 0.0)
    a = np.zeros_like(delta)
    a[lanes] = -_solve(A[lanes], damping[lanes], known[lanes])
    a = np.where(state.mask, a, 0.0)
    size = np.sqrt(np.einsum("mii->mi", A))
    with np.errstate(all="ignore"):  # what overflows is not trusted
        ratio = 2 * np.linalg.norm(a * size, axis=1) / np.linalg.norm(delta * size, axis=1)
    trusted = (ratio < s.bend) & np.isfinite(pull).all(axis=1)
    return np.where(trusted[:, None], 0.5 * a, 0.0)


def _solve(A: Array, damping: Array, gradient: Array) -> Array:
    """``(A + λ diag A)⁻¹ g``, scaled to a unit diagonal first."""
    d = np.sqrt(np.einsum("mii->mi", A))
    scaled = A / d[:, :, None] / d[:, None, :]
    place = np.arange(A.shape[1])
    scaled[:, place, place] += damping[:, None]
    return np.linalg.solve(scaled, (gradient / d)[..., None])[..., 0] / d


def _determined(A: Array, alpha: Array, mask: Array) -> Float[Array, "M P"]:
    """``γ`` of every weight; zero where a wild run left no numbers in ``A``."""
    sound = np.isfinite(A).all(axis=(1, 2))
    inverse = _inverse_diagonal(np.where(sound[:, None, None], A, np.eye(A.shape[1])))
    return np.where(mask & sound[:, None], 1.0 - alpha * inverse, 0.0)


def _inverse_diagonal(A: Array) -> Array:
    """Diagonal of ``A⁻¹``; where rounding left ``A`` indefinite, of its nearest positive part."""
    d = np.sqrt(np.einsum("mii->mi", A))
    scaled = A / d[:, :, None] / d[:, None, :]
    try:
        half = np.linalg.inv(np.linalg.cholesky(scaled))
        return np.einsum("mki,mki->mi", half, half) / d**2
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(scaled)
        values = np.maximum(values, 1e-13)
        return np.einsum("mik,mk->mi", vectors**2, 1 / values) / d**2


def _grouped(values: Array, prior: Prior) -> Array:
    found = np.zeros((len(values), len(prior.learned)))
    np.add.at(found.T, prior.group, values.T)
    return found


def _update(problem: Problem, state: State, normal: Array, prior: Prior, s: Settings) -> State:
    """MacKay's fixed point, and pruning of what has no width left."""
    A, alpha = _precision(state, prior, normal)
    gamma = _determined(A, alpha, state.mask)
    away = np.where(state.mask, (state.w - prior.mean) ** 2, 0.0)
    found = np.maximum(_grouped(gamma, prior), 1e-6) / np.maximum(_grouped(away, prior), 1e-14)
    found = np.clip(found, s.smallest, s.largest)
    ny = state.squares.shape[1]
    freedom = problem.rows - np.sum(gamma, axis=1)[:, None] / ny
    variance = state.squares / np.maximum(freedom, 0.1 * problem.rows)
    finite = np.isfinite(variance).all(axis=1, keepdims=True)
    state = state._replace(
        alpha=np.where(prior.learned & finite, found, state.alpha),
        variance=np.where(finite, np.maximum(variance, 1e-14), state.variance),
    )
    gone = ((state.alpha > s.pruned) & prior.leaves).astype(float) @ prior.removes > 0
    mask = state.mask & ~gone
    return state._replace(mask=mask, w=np.where(mask, state.w, 0.0))


def finish(problem: Problem, state: State, prior: Prior) -> Fit:
    """Expand once more, without short cuts, for covariance and evidence.

    ``log p(D) = −½ [Σ_o S_o/σ_o² + T_o log 2πσ_o² + Σ α (w−μ)² − Σ log α + log det A]``.
    """
    at = problem.expand(state.w, state.variance, state.carry, True)
    state = state._replace(squares=at.squares)
    A, alpha = _precision(state, prior, at.normal)
    gamma = _determined(A, alpha, state.mask)
    fit = np.sum(
        at.squares / state.variance + problem.rows * np.log(2 * np.pi * state.variance), axis=1
    )
    away = np.where(state.mask, alpha * (state.w - prior.mean) ** 2 - np.log(alpha), 0.0)
    occam = np.sum(away, axis=1) + np.linalg.slogdet(A)[1]
    return Fit(state, A, np.sum(gamma, axis=1), -0.5 * (fit + occam))


def choose(state: State, prior: Prior, lanes: Array, pick: Callable[[Any, Array], Any]) -> tuple:
    """Only some of the fits; ``pick`` takes them out of the problem's memory."""
    few = State(*(v if v is state.carry else v[lanes] for v in state))
    few = few._replace(carry=pick(state.carry, lanes))
    return few, prior._replace(mean=prior.mean[lanes])


def with_iterations(settings: Settings, iterations: int) -> Settings:
    """The same settings for another number of iterations."""
    return replace(settings, iterations=iterations)
