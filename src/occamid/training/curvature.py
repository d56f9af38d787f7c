"""The diagonal of the Hessian of ``½ Σ (s r)²``, three ways behind one contract.

Each is a function ``(network, params, data, weight) -> diagonal`` with the names and shapes of
the parameters; ``weight`` is ``s²`` for every output.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from occamid.data.windows import Windows
from occamid.networks import Network, Params
from occamid.networks.simulate import one_step

Curvature = Callable[[Network, Params, Windows, Float[Array, " ny"]], Params]


def recursive(
    network: Network, params: Params, data: Windows, weight: Float[Array, " ny"]
) -> Params:
    """Lemmas 1 and 2: one backward sweep.  Exact for the last layer and for one hidden layer."""
    return network.sweep(
        params,
        data.z,
        lambda y: weight * (y - data.y) * data.valid,
        jnp.broadcast_to(weight * data.valid, data.y.shape),
    )


def gauss_newton(
    network: Network, params: Params, data: Windows, weight: Float[Array, " ny"]
) -> Params:
    """``Σ (s ∂ŷ/∂w)²``, one forward-mode pass for each parameter."""

    def outputs(p: Params) -> Float[Array, "R T ny"]:
        return jnp.sqrt(weight) * data.valid * _outputs(network, p, data)

    return _along_each(params, lambda e: jnp.sum(jax.jvp(outputs, (params,), (e,))[1] ** 2))


def exact(network: Network, params: Params, data: Windows, weight: Float[Array, " ny"]) -> Params:
    """``∂²/∂w²`` by forward over reverse differentiation, one pass for each parameter."""

    def energy(p: Params) -> Float[Array, ""]:
        return 0.5 * jnp.sum(weight * data.valid * (_outputs(network, p, data) - data.y) ** 2)

    def second(e: Params) -> Float[Array, ""]:
        moved = jax.jvp(jax.grad(energy), (params,), (e,))[1]
        return sum(jnp.vdot(moved[name], e[name]) for name in e)  # type: ignore[return-value]

    return _along_each(params, second)


CURVATURES: dict[str, Curvature] = {
    "recursive": recursive,
    "gauss-newton": gauss_newton,
    "exact": exact,
}


def _outputs(network: Network, params: Params, data: Windows) -> Float[Array, "R T ny"]:
    """Teacher-forced outputs through single steps, which differentiate in every mode."""
    return jax.vmap(lambda z: one_step(network, params, z))(data.z)


def _along_each(params: Params, value: Callable[[Params], Float[Array, ""]]) -> Params:
    """``value`` at every unit vector of the parameter space, 64 together to bound the memory."""
    flat, unravel = ravel_pytree(params)
    basis = jnp.arange(flat.size)

    def at(k: Array) -> Float[Array, ""]:
        return value(unravel((basis == k).astype(flat.dtype)))

    return unravel(jax.lax.map(at, basis, batch_size=64))
