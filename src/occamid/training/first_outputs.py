"""Where a free run of a state-space model begins: the state that explains the known outputs best.

An observer's filter linearises along its way, from the mean of the states seen in training.  That
is good enough to follow outputs, but a long run keeps what is wrong at its beginning: a mass with
a wrong speed, an axis that is never pulled back.  So before a free run the state before the first
row is found by Levenberg's and Marquardt's method, over the first :data:`ROWS` known outputs,

    ``E(x₀) = Σ_t Σ_o (y_o(t) − ŷ_o(t; x₀))² / r_o + (x₀ − μ)ᵀ P⁻¹ (x₀ − μ)``,

from the best of the mean and of points around it, and takes the mean's place.  The filter then has
little to correct, and what the outputs leave open stays in its covariance.  Nothing disturbs the
states meanwhile, as in the fit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from occamid.data.windows import Windows, roomy
from occamid.networks import Network, Observer
from occamid.networks.algebra import root, solve
from occamid.networks.flat import flatten, unflatten
from occamid.training.levenberg import least_squares
from occamid.training.programs import kept
from occamid.training.wide import again, in_room

Array = np.ndarray
ROWS = 250  # known outputs at most: more would tell the state no better
AROUND = (0.5, 1.0, 2.0)  # standard deviations from the mean that are tried along each axis
BEST, STEPS = 4, 20  # of those, and steps of each
FAR = 1e6  # a scaled error beyond this counts as this large


def begun(
    network: Network, flat: Float[Array, "K P"], data: Windows, known: int
) -> Float[Array, "K P"]:
    """Flat weights of several models for a free run after the first ``known`` rows of a record.

    Those of networks without a filter come back as they are.
    """
    if not isinstance(network, Observer):
        return flat
    tree = unflatten(network, np.array(flat))
    tree["filter.Q"][:] = 0.0
    rows = min(known, ROWS)
    if rows:
        more = ((0, roomy(rows, 50) - rows), (0, 0))
        z, y = (np.pad(np.asarray(x)[0, :rows], more) for x in (data.z, data.y))
        seen = np.arange(len(y)) < rows
        u = z[:, : network.n_in - network.n_out]
        tree["filter.x"][:] = _in_room(network, flat, u, y, seen)
    return np.stack(
        [flatten(network, {n: v[k] for n, v in tree.items()}) for k in range(len(flat))]
    )


def _in_room(
    network: Observer,
    flat: Float[Array, "K P"],
    u: Float[Array, "n nu"],
    y: Float[Array, "n ny"],
    seen: Bool[Array, " n"],
) -> Float[Array, "K nx"]:
    """The first states of models in a network of a rounded size, several in a rounded number."""
    count = len(flat)
    large, wide = in_room(network, flat[again(count)])
    tree = unflatten(large, wide)
    roots = np.stack([root(P) for P in tree["filter.P"]])
    found = np.asarray(_first_states(large, tree, roots, u, y, seen))
    return found[:count, : network.hidden[0]]


@kept((0,))
def _first_states(
    network: Observer,
    params: Any,
    roots: Float[jax.Array, "K nx nx"],
    u: Float[jax.Array, "n nu"],
    y: Float[jax.Array, "n ny"],
    seen: Bool[jax.Array, " n"],
) -> Float[jax.Array, "K nx"]:
    """The states before the first row of several models."""

    def one(own: tuple[Any, jax.Array]) -> jax.Array:
        weights, L = own

        def miss(away: jax.Array) -> jax.Array:
            """All errors in standard deviations, of the outputs and of the state itself."""
            step = partial(network.plant.step, weights)
            found = jax.lax.scan(step, weights["filter.x"] + L @ away, u)[1]
            scaled = jnp.where(seen[:, None], found - y, 0.0) / jnp.sqrt(weights["filter.R"])
            safe = jnp.nan_to_num(scaled, nan=FAR, posinf=FAR, neginf=-FAR)
            return jnp.concatenate([jnp.clip(safe, -FAR, FAR).ravel(), away])

        n = len(L)
        axes = jnp.concatenate([s * jnp.eye(n, dtype=u.dtype) for s in AROUND])
        tried = jnp.concatenate([jnp.zeros((1, n), u.dtype), axes, -axes])
        costs = jax.vmap(lambda away: jnp.sum(miss(away) ** 2))(tried)
        still = ~jnp.any(L, axis=0)[jnp.argmax(jnp.abs(tried), axis=1)]  # what moves no state
        costs = jnp.where(still & jnp.any(tried, axis=1), jnp.inf, costs)
        begin = tried[jnp.argsort(costs)[:BEST]]
        ended, costs = jax.vmap(lambda away: least_squares(miss, away, STEPS, solve))(begin)
        return weights["filter.x"] + L @ ended[jnp.argmin(costs)]

    return jax.lax.map(one, (params, roots))
