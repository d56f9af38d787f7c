"""Free runs through many records as a few long ones, and their derivative along every weight.

Records of unequal length, padded to one, would be mostly padding.  Here they lie one after the
other in lanes: where one begins, the past outputs are its own, and a state begins anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from occamid.data.windows import Terms, Windows, one_after_the_other
from occamid.networks import Network, Recurrent
from occamid.networks.flat import unflatten
from occamid.networks.simulate import push, read


class Lanes(NamedTuple):
    """Input terms and targets of all records; ``begins`` is the number of one in its first row.

    It is -1 in every other row.  ``history`` are the outputs before each record.
    """

    inputs: Float[jax.Array, "L T nu"]
    y: Float[jax.Array, "L T ny"]
    valid: Float[jax.Array, "L T 1"]
    begins: Int[jax.Array, "L T"]
    history: Float[jax.Array, "R ly ny"]


def in_lanes(data: Windows, terms: Terms, lanes: int = 1) -> Lanes:
    """Windows without most of their padding, in so many lanes, or more where they need them."""
    z, y, valid = (np.asarray(x) for x in data[:3])
    lengths = valid.sum(axis=(1, 2)).astype(int)
    places = one_after_the_other(lengths, y.shape[1])
    shape = max([lanes, *(lane + 1 for lane, _ in places)]), y.shape[1]
    inputs = np.zeros((*shape, len(terms.inputs)), z.dtype)
    targets, used = (np.zeros((*shape, x.shape[-1]), x.dtype) for x in (y, valid))
    begins = np.full(shape, -1)
    begins[:, 0] = 0  # of an empty lane, too
    for number, (length, (lane, first)) in enumerate(zip(lengths, places, strict=True)):
        rows = slice(first, first + length)
        inputs[lane, rows] = z[number, :length, : len(terms.inputs)]
        targets[lane, rows], used[lane, rows] = y[number, :length], 1.0
        if length:
            begins[lane, first] = number
    inputs, targets, used, begins = jax.device_put((inputs, targets, used, begins))
    return Lanes(inputs, targets, used, begins, data.history)


def runs(
    network: Network, terms: Terms, w: Float[jax.Array, " P"], data: Lanes
) -> tuple[Float[jax.Array, "L T ny"], Float[jax.Array, "L T outputs"]]:
    """Outputs of a network that is fed its own, and what it was fed."""
    params = unflatten(network, w)
    first = network.initial_state(params)
    history = data.history.astype(data.y.dtype)

    def step(carried: tuple[jax.Array, Any], now: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        u, number = now
        register = jnp.where(number >= 0, history[number], carried[0])
        state = jax.tree.map(lambda new, old: jnp.where(number >= 0, new, old), first, carried[1])
        fed = read(register, terms)
        state, y = network.step(params, state, jnp.concatenate([u, fed]))
        return (push(register, y), state), (y, fed)

    def one(inputs: jax.Array, begins: jax.Array) -> tuple[jax.Array, jax.Array]:
        begun = history[0], first
        found: tuple[jax.Array, jax.Array] = jax.lax.scan(step, begun, (inputs, begins))[1]
        return found

    return jax.vmap(one)(data.inputs, data.begins)


def sensitivities(
    network: Network, terms: Terms, w: Float[jax.Array, " P"], data: Lanes
) -> tuple[Float[jax.Array, "L T ny"], Float[jax.Array, "L T ny P"]]:
    """The free runs and their derivative along every weight.

    With ``z(t)`` the regressors of the run, ``dŷ(t)/dw = ∂f/∂w + Σ_j ∂f/∂y(t-j) · dŷ(t-j)/dw``:
    the partial derivatives of all rows are taken at once, and only the sum over the past outputs
    is a recursion.  A network with a state is derived along with its run, in forward mode.
    """
    if isinstance(network, Recurrent):

        def ran(w: jax.Array) -> tuple[jax.Array, jax.Array]:
            return (runs(network, terms, w, data)[0],) * 2

        by_all, y = jax.jacfwd(ran, has_aux=True)(w)
        return y, by_all
    y, fed = runs(network, terms, w, data)

    def f(w: jax.Array, u: jax.Array, past: jax.Array) -> jax.Array:
        return network.apply(unflatten(network, w), jnp.concatenate([u, past])[None])[0]

    derivatives = jax.vmap(jax.vmap(jax.jacrev(f, argnums=(0, 2)), (None, 0, 0)), (None, 0, 0))
    by_w, by_y = derivatives(w, data.inputs, fed)
    if not len(terms.outputs):
        return y, by_w
    channels, lags = np.array(terms.outputs, dtype=int).reshape(-1, 2).T
    length = data.history.shape[1]

    def step(register: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        own, through, number = now
        register = jnp.where(number >= 0, 0.0, register)  # what was measured has no derivative
        S = own + jnp.einsum("oj,jp->op", through, register[length - lags, channels])
        return push(register, S), S

    def one(*now: jax.Array) -> jax.Array:
        zeros = jnp.zeros((length, y.shape[2], w.size), y.dtype)
        return jax.lax.scan(step, zeros, now)[1]

    return y, jax.vmap(one)(by_w, by_y, data.begins)
