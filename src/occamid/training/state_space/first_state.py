"""The state before a new record: what explains its first outputs best.

The states seen in training, ``x ~ N(μ, Σ)``, are the prior.  Over the first ``n`` rows

    ``E(x₀) = Σ_t Σ_o (y_o(t) − ŷ_o(t; x₀))² / (2 σ_o²) + ½ (x₀ − μ)ᵀ Σ⁻¹ (x₀ − μ)``

is minimised by damped Gauss-Newton steps, from the best of some training states and ``μ``.  The
inverse of its second derivative is the covariance of ``x₀``, which belongs into a band.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occamid.training.state_space.trajectory import Sizes, Weights, features

Array = np.ndarray
STEPS, RESTS = 40, 1e-10  # of Gauss and Newton at most, and the relative fall that ends them
FAR = 1e8  # a scaled error beyond this counts as this large


class StatePrior(NamedTuple):
    """What training says about states: moments, and some of them as they were."""

    mean: Float[Array, " nx"]
    covariance: Float[Array, "nx nx"]
    seen: Float[Array, "n nx"]


class FirstState(NamedTuple):
    """The state before the first row and its covariance."""

    x: Float[Array, " nx"]
    covariance: Float[Array, "nx nx"]


def state_prior(x: Float[Array, "T nx"], count: int = 200) -> StatePrior:
    """Moments of the training states, and ``count`` of them evenly spread in time."""
    spread = np.cov(x.T).reshape(x.shape[1], x.shape[1])
    floor = 1e-8 * max(np.trace(spread) / max(len(spread), 1), 1e-12)
    chosen = x[np.linspace(0, len(x) - 1, min(count, len(x))).astype(int)]
    return StatePrior(x.mean(axis=0), spread + floor * np.eye(len(spread)), chosen)


def first_state(
    sizes: Sizes,
    w: Weights,
    u: Float[Array, "n nu"],
    y: Float[Array, "n ny"],
    variance: Float[Array, " ny"],
    prior: StatePrior,
) -> FirstState:
    """The state that best explains the first outputs ``y`` under the inputs ``u``."""
    weight = np.linalg.inv(prior.covariance)
    scale = 1 / np.sqrt(variance)
    with jax.enable_x64(True):
        tried = np.concatenate([prior.mean[None], prior.seen])
        misses = jax.device_get(_misses(sizes, w, u, y, scale, tried))
        energies = np.sum(misses**2, axis=1) + _distance(tried - prior.mean, weight)
        x, damping = tried[np.argmin(energies)], 1e-3
        r, J = _expansion(sizes, w, u, y, scale, x)
        for _ in range(STEPS):
            A = J.T @ J + weight
            step = J.T @ r + weight @ (x - prior.mean)
            new = x - np.linalg.solve(A + damping * np.diag(np.diag(A)), step)
            r_new, J_new = _expansion(sizes, w, u, y, scale, new)
            before = np.sum(r**2) + _distance(x - prior.mean, weight)
            after = np.sum(r_new**2) + _distance(new - prior.mean, weight)
            if after < before:
                x, r, J, damping = new, r_new, J_new, max(damping / 10, 1e-12)
            else:
                damping *= 10
            if abs(before - after) <= RESTS * before:
                break
    return FirstState(x, np.linalg.inv(J.T @ J + weight))


def _distance(away: Float[Array, "*n nx"], weight: Float[Array, "nx nx"]) -> Array:
    return np.einsum("...i,ij,...j->...", away, weight, away)


def _expansion(
    sizes: Sizes, w: Weights, u: Array, y: Array, scale: Array, x: Array
) -> tuple[Float[Array, " r"], Float[Array, "r nx"]]:
    r, J = jax.device_get(_miss_and_slope(sizes, w, u, y, scale, x))
    return r, np.where(np.isfinite(J), J, 0.0)


def simulate(
    sizes: Sizes, w: Weights, u: Float[Array, "T nu"], x: Float[Array, " nx"]
) -> tuple[Float[Array, "T nx"], Float[Array, "T ny"]]:
    """States and outputs of a free run from ``x``, row after row."""
    with jax.enable_x64(True):
        return jax.device_get(_simulate(sizes, w, jax.device_put(u), jax.device_put(x)))


@partial(jax.jit, static_argnums=0)
def _simulate(sizes: Sizes, w: Weights, u: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(x: jax.Array, u: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        phi = features(sizes, w, x, u)
        return w.state @ phi, (x, w.out @ phi)

    return jax.lax.scan(step, x, u)[1]


def _miss(sizes: Sizes, w: Weights, u: Any, y: Any, scale: Any, x: jax.Array) -> jax.Array:
    """Scaled errors of the window; what explodes counts as far away."""
    miss = (_simulate(sizes, w, u, x)[1] - y) * scale
    return jnp.clip(jnp.nan_to_num(miss, nan=FAR, posinf=FAR, neginf=-FAR), -FAR, FAR).ravel()


@partial(jax.jit, static_argnums=0)
def _misses(sizes: Sizes, w: Weights, u: Any, y: Any, scale: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda x: _miss(sizes, w, u, y, scale, x))(x)


@partial(jax.jit, static_argnums=0)
def _miss_and_slope(
    sizes: Sizes, w: Weights, u: Any, y: Any, scale: Any, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def miss(x: jax.Array) -> jax.Array:
        return _miss(sizes, w, u, y, scale, x)

    return miss(x), jax.jacfwd(miss)(x)
