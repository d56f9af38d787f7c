"""Levenberg's and Marquardt's step: damped where it fails, bold where it holds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

FIRST_DAMPING = 1e-2
LEAST, MOST = 1e-6, 1e6


def damped(
    precision: Float[jax.Array, "n n"],
    gradient: Float[jax.Array, " n"],
    damping: Float[jax.Array, ""],
) -> Float[jax.Array, " n"]:
    """``(A + μ diag A)⁻¹ g``, what to subtract."""
    return jnp.linalg.solve(precision + damping * jnp.diag(jnp.diag(precision)), gradient)


def lower(new: Float[jax.Array, ""], old: Float[jax.Array, ""]) -> Bool[jax.Array, ""]:
    """Whether a trial is to be kept: a finite and smaller energy."""
    return jnp.isfinite(new) & (new < old)


def next_damping(damping: Float[jax.Array, ""], kept: Bool[jax.Array, ""]) -> Float[jax.Array, ""]:
    """A third after a step that was kept, four times as much after one that was not."""
    return jnp.clip(jnp.where(kept, damping / 3, damping * 4), LEAST, MOST)
