"""Elimination by array operations against LAPACK, and its derivative against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.networks.algebra import inverse, root, solve

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_inverse_is_lapacks(n: int, kind: type, rng: np.random.Generator) -> None:
    A: np.ndarray = rng.normal(size=(5, n, n)).astype(kind)
    if kind is complex:
        A = A + 1j * rng.normal(size=A.shape)
    A[0, 0, 0] = 0.0 if n > 1 else 1.0  # a pivot must be looked for
    np.testing.assert_allclose(jax.vmap(inverse)(A), np.linalg.inv(A), rtol=1e-8, atol=1e-9)
    b = jnp.asarray(rng.normal(size=(n, 3)))
    np.testing.assert_allclose(
        solve(jnp.asarray(A[1]), b), np.linalg.solve(A[1], b), rtol=1e-8, atol=1e-9
    )


def test_the_slope_is_that_of_differences(rng: np.random.Generator) -> None:
    A, along = rng.normal(size=(2, 6, 6))
    slope = jax.jvp(inverse, (jnp.asarray(A),), (jnp.asarray(along),))[1]
    step = 1e-6
    apart = (np.linalg.inv(A + step * along) - np.linalg.inv(A - step * along)) / (2 * step)
    np.testing.assert_allclose(slope, apart, rtol=1e-5, atol=1e-6)


def test_a_singular_matrix_gives_no_finite_inverse() -> None:
    assert not np.isfinite(inverse(jnp.zeros((3, 3)))).all()


def test_a_root_gives_the_covariance_and_what_rounding_left_below_zero_is_none() -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(4, 2))
    R = root(half @ half.T)  # of rank two
    np.testing.assert_allclose(R @ R.T, half @ half.T, atol=1e-12)
    assert not root(np.diag([-1e-17, 0.0])).any()
