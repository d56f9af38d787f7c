"""Simulation by scan: the free run with its shift register, and k-step prediction.

Every function here is for one model and one experiment and is meant to be mapped over batches of
both.  Row ``t`` is a row of :class:`occamid.data.windows.Windows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from occamid.data.windows import Terms, Windows
from occamid.networks import Network, Params

Register = Float[Array, "ly ny"]  # past outputs, oldest first
Registers = Float[Array, "T ly ny"]  # before every row


def read(register: Register, terms: Terms) -> Float[Array, " outputs"]:
    """The output regressors in the order of the terms."""
    channels, lags = np.array(terms.outputs, dtype=int).reshape(-1, 2).T
    length = register.shape[0]
    positions = (length - lags) * register.shape[1] + channels
    flat = register.reshape(-1)
    if np.array_equal(positions, np.arange(flat.shape[0])):
        return flat
    return flat[positions]


def push(register: Float[Array, " ly *y"], y: Float[Array, " *y"]) -> Float[Array, " ly *y"]:
    """Forget the oldest output, remember ``y``, or what belongs to each of them."""
    if register.shape[0] == 0:
        return register
    return jnp.concatenate([register[1:], y[None]])


def one_step(network: Network, params: Params, z: Float[Array, "T nz"]) -> Float[Array, "T ny"]:
    """One-step predictions along one experiment, by plain steps from a zero state.

    Unlike ``apply`` of a recurrent network this can be differentiated forwards.
    """
    if not jax.tree.leaves(network.initial_state(params)):
        return network.apply(params, z[None])[0]  # no state: all rows at once

    def step(state: Any, z_t: Array) -> tuple[Any, Array]:
        return network.step(params, state, z_t)

    return jax.lax.scan(step, network.initial_state(params), z)[1]


def free_run(
    network: Network,
    terms: Terms,
    params: Params,
    experiment: Windows,
    forced: Int[Array, ""] | int,
    count: Int[Array, ""] | int | None = None,
) -> Float[Array, "T ny"]:
    """Outputs when the model is fed its own: measured ones only for the first ``forced`` rows.

    During the forced rows the state of a recurrent network warms up on the measured outputs.
    What is returned there is the model's prediction, not the measurement.  ``experiment`` is one
    element of a :class:`Windows` batch.  With a ``count`` the run ends after so many rows, those
    left are zero, and it cannot be differentiated backwards.
    """
    n_inputs = len(terms.inputs)

    def step(
        carried: tuple[Any, Register], now: tuple[Array, Array, Array]
    ) -> tuple[tuple[Any, Register], Array]:
        state, register = carried
        u_part, measured, t = now
        z = jnp.concatenate([u_part, read(register, terms)])
        state, y = network.step(params, state, z)
        return (state, push(register, jnp.where(t < forced, measured, y))), y

    start = (network.initial_state(params), experiment.history.astype(experiment.y.dtype))
    rows = jnp.arange(experiment.y.shape[0])
    along = experiment.z[:, :n_inputs], experiment.y, rows
    if count is None:
        return jax.lax.scan(step, start, along)[1]
    return scan_first(step, start, along, count)


def scan_first(
    step: Callable[[Any, Any], tuple[Any, Any]], start: Any, along: Any, count: Array | int
) -> Any:
    """What a scan returns along the first ``count`` rows; the others are zero.

    Records of about one size share its program, and short ones do not run as far as long ones.
    """
    row = jax.tree.map(lambda x: x[0], along)
    rows = jax.tree.leaves(along)[0].shape[0]
    shapes = jax.eval_shape(step, start, row)[1]
    blank = jax.tree.map(lambda v: jnp.zeros((rows, *v.shape), v.dtype), shapes)

    def one(t: Array, so_far: tuple[Any, Any]) -> tuple[Any, Any]:
        carried, found = step(so_far[0], jax.tree.map(lambda x: x[t], along))
        return carried, jax.tree.map(lambda all_, v: all_.at[t].set(v), so_far[1], found)

    return jax.lax.fori_loop(0, count, one, (start, blank))[1]


def k_step(
    network: Network,
    terms: Terms,
    params: Params,
    experiment: Windows,
    horizon: int,
    noise: Float[Array, "k T ny"] | None = None,
    first: tuple[Any, Register] | None = None,
) -> tuple[Float[Array, "T ny"], tuple[Any, Registers]]:
    """``ŷ(t | t-k)``: every prediction starts from measured outputs ``horizon`` rows before.

    All origins run together: one teacher-forced scan finds the state before each row, then a scan
    of length ``horizon`` moves every origin one row ahead.  Rows before ``horizon - 1`` are
    predicted from the first row, the longest horizon they have.

    ``noise`` is added to what is fed back, ``first`` is the state before the first row.  The
    second value returned holds the state before every row.
    """
    n_inputs = len(terms.inputs)
    T = experiment.y.shape[0]

    def forced(
        carried: tuple[Any, Register], now: tuple[Array, Array]
    ) -> tuple[tuple[Any, Register], tuple[Any, Register]]:
        state, register = carried
        u_part, measured = now
        after, _ = network.step(params, state, jnp.concatenate([u_part, read(register, terms)]))
        return (after, push(register, measured)), (state, register)

    if first is None:
        first = (network.initial_state(params), experiment.history.astype(experiment.y.dtype))
    inputs = experiment.z[:, :n_inputs]
    origins = jax.lax.scan(forced, first, (inputs, experiment.y))[1]

    def ahead(
        carried: tuple[Any, Registers], now: tuple[Array, Array]
    ) -> tuple[tuple[Any, Registers], Float[Array, "T ny"]]:
        state, register = carried
        k, e = now
        rows = jnp.minimum(jnp.arange(T) + k, T - 1)

        def one(s: Any, r: Register, u_part: Array, e_t: Array) -> tuple[Any, Register, Array]:
            s, y = network.step(params, s, jnp.concatenate([u_part, read(r, terms)]))
            return s, push(r, y + e_t), y

        state, register, y = jax.vmap(one)(state, register, inputs[rows], e)
        return (state, register), y

    # path[k, t] is the prediction of row t + k from origin t
    if noise is None:
        noise = jnp.zeros((horizon, T, experiment.y.shape[1]), experiment.y.dtype)
    path = jax.lax.scan(ahead, origins, (jnp.arange(horizon), noise))[1]
    rows = jnp.arange(T)
    back = jnp.minimum(rows, horizon - 1)
    return path[back, rows - back], origins
