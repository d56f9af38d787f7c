"""Small linear systems inside compiled programs, and roots of covariances.

XLA hands ``jnp.linalg.solve`` to LAPACK.  On a CPU several such calls on batches of matrices in one
program wait for each other's threads and can lock up for ever (seen with jax 0.10 on two cores), so
matrices of a few dozen rows are eliminated here by plain array operations.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Inexact


@jax.custom_jvp
def inverse(A: Inexact[Array, "n n"]) -> Inexact[Array, "n n"]:
    """Gauss and Jordan with pivoting; infinities or NaN where there is no inverse."""
    n = A.shape[-1]
    rows = jnp.arange(n)

    def eliminate(k: int, both: Array) -> Array:
        pivot = jnp.argmax(jnp.where(rows >= k, jnp.abs(both[:, k]), -1.0))
        upper, lower = both[pivot], both[k]
        both = both.at[pivot].set(lower)
        row = upper / upper[k]
        both = both - jnp.outer(both[:, k], row)
        return both.at[k].set(row)

    both = jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)], axis=1)
    return jax.lax.fori_loop(0, n, eliminate, both)[:, n:]


@inverse.defjvp
def _slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """``d(A⁻¹) = −A⁻¹ dA A⁻¹``."""
    found = inverse(*primals)
    return found, -found @ tangents[0] @ found


def solve(A: Inexact[Array, "n n"], b: Inexact[Array, "n ..."]) -> Inexact[Array, "n ..."]:
    """``A⁻¹ b``."""
    return inverse(A) @ b


def root(covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """R with ``R Rᵀ`` the covariance, which rounding may have left indefinite; on the host."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
