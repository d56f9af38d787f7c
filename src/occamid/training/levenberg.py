"""Levenberg's and Marquardt's step: damped where it fails, bold where it holds."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

FIRST_DAMPING = 1e-2
LEAST, MOST = 1e-6, 1e6


def damped(
    precision: Float[jax.Array, "n n"],
    gradient: Float[jax.Array, " n"],
    damping: Float[jax.Array, ""],
    solve: Callable[[jax.Array, jax.Array], jax.Array] = jnp.linalg.solve,
) -> Float[jax.Array, " n"]:
    """``(A + μ diag A)⁻¹ g``, what to subtract."""
    return solve(precision + damping * jnp.diag(jnp.diag(precision)), gradient)


def least_squares(
    residual: Callable[[Float[jax.Array, " n"]], Float[jax.Array, " r"]],
    start: Float[jax.Array, " n"],
    steps: int,
    solve: Callable[[jax.Array, jax.Array], jax.Array] = jnp.linalg.solve,
) -> tuple[Float[jax.Array, " n"], Float[jax.Array, ""]]:
    """Where so many damped steps from ``start`` end, and the sum of squares there.

    Inside a batch ``solve`` must not be LAPACK's (:mod:`occamid.networks.algebra`).
    """

    def step(_: int, carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, damping = carried
        r, J = residual(x), jax.jacfwd(residual)(x)
        new = x - damped(J.T @ J, J.T @ r, damping, solve)
        better = lower(jnp.sum(residual(new) ** 2), jnp.sum(r**2))
        return jnp.where(better, new, x), next_damping(damping, better)

    begun = (start, jnp.asarray(FIRST_DAMPING, start.dtype))
    x, _ = jax.lax.fori_loop(0, steps, step, begun)
    return x, jnp.sum(residual(x) ** 2)


def lower(new: Float[jax.Array, ""], old: Float[jax.Array, ""]) -> Bool[jax.Array, ""]:
    """Whether a trial is to be kept: a finite and smaller energy."""
    return jnp.isfinite(new) & (new < old)


def next_damping(damping: Float[jax.Array, ""], kept: Bool[jax.Array, ""]) -> Float[jax.Array, ""]:
    """A third after a step that was kept, four times as much after one that was not."""
    return jnp.clip(jnp.where(kept, damping / 3, damping * 4), LEAST, MOST)
