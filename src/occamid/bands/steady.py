"""Steady states: where a model rests under constant inputs, and how sure that is.

The state x (hidden states, then past outputs) rests where ``F(x, u, w) = x``.  It is found by
Newton's method from several starts, each after a stretch of simulation.  Doubt about the weights
moves it by ``dx*/dw = (I − F_x)⁻¹ F_w``; noise that is fed back keeps a plant moving around it,
with the covariance of ``C = F_x C F_xᵀ + Q``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from scipy.linalg import solve_discrete_lyapunov

from occamid.bands.mixture import Feedback, Mixture, weighted_median
from occamid.data.windows import Terms
from occamid.errors import DataError
from occamid.networks import Network, unobserved
from occamid.networks.algebra import solve
from occamid.networks.flat import size, unflatten
from occamid.networks.simulate import push, read
from occamid.training.programs import kept

Array = np.ndarray
STARTS = (0.0, -1.0, 1.0, -2.0, 2.0)  # standard deviations of the output from its mean
BURN_IN, ITERATIONS = 200, 30
RESTS = 1e-8  # of a standard deviation: what may still move
FARTHEST = 10.0  # standard deviations of the output from its mean


class Steady(NamedTuple):
    """Outputs at rest, scaled, and a factor D of their covariance ``D Dᵀ``."""

    y: Float[Array, " ny"]
    doubt: Float[Array, "ny ny"]


def steady_state(
    network: Network, terms: Terms, mixture: Mixture, u: Float[Array, " nu"], feedback: Feedback
) -> Steady:
    """Where the members rest under the (scaled) inputs ``u``; those that do not are left out."""
    network, terms = unobserved(network, terms)
    used = slice(0, size(network))
    starts = mixture.centre + np.outer(STARTS, mixture.spread)
    channels = np.array(terms.inputs, dtype=int).reshape(-1, 2)[:, 0]
    with jax.enable_x64(True):
        found = _rest(
            network, terms, jnp.asarray(mixture.mean[:, used]), jnp.asarray(u[channels]), starts
        )
        x, y, moves, F_x, F_w = (np.asarray(part) for part in found)
    ny = y.shape[-1]
    rests, covariances, shares = [], [], []
    for k, share in enumerate(mixture.weights):
        at = _choice(y[k], moves[k], F_x[k], mixture)
        if at is None:
            continue
        factor = mixture.factor[k][used]
        pushed = F_w[k, at] @ factor if factor.ndim == 2 else F_w[k, at] * factor
        C = np.zeros((ny, ny))
        if terms.outputs:  # else no output is fed back, and its past does not matter
            S = np.linalg.solve(np.eye(x.shape[-1]) - F_x[k, at], pushed)[-ny:]
            C = S @ S.T
        if terms.outputs and feedback == "process":
            C = C + _stationary(F_x[k, at], mixture.noise_std[k])
        rests.append(y[k, at])
        covariances.append(C)
        shares.append(share)
    if not rests:
        raise DataError(
            "the model comes to no rest under the first inputs, so it cannot start there: start "
            "from measured outputs."
        )
    weights = np.array(shares) / np.sum(shares)
    centre = weighted_median(np.array(rests)[:, None], weights)[0]
    apart = np.array(rests) - centre
    total = np.tensordot(weights, covariances, axes=1) + (apart.T * weights) @ apart
    values, vectors = np.linalg.eigh(total)
    return Steady(centre, vectors * np.sqrt(np.maximum(values, 0.0)))


def _choice(
    y: Float[Array, "S ny"], moves: Float[Array, " S"], F_x: Float[Array, "S n n"], mixture: Mixture
) -> int | None:
    """Which of the points found is the plant's: at rest, stable, and nearest to the data."""
    far = np.max(np.abs(y - mixture.centre) / mixture.spread, axis=1)
    usable = np.isfinite(far) & (far < FARTHEST) & (moves < RESTS)
    radius = np.array(
        [
            np.max(np.abs(np.linalg.eigvals(J)), initial=0.0) if ok else np.inf
            for J, ok in zip(F_x, usable, strict=True)
        ]
    )
    usable &= radius < 1
    return int(np.argmin(np.where(usable, far, np.inf))) if usable.any() else None


def _stationary(F_x: Float[Array, "n n"], noise_std: Float[Array, " ny"]) -> Float[Array, "ny ny"]:
    """Covariance of the newest output when noise is fed back for ever."""
    ny = len(noise_std)
    Q = np.zeros_like(F_x)
    Q[-ny:, -ny:] = np.diag(noise_std**2)
    return solve_discrete_lyapunov(F_x, Q)[-ny:, -ny:]


@kept((0, 1))
def _rest(
    network: Network,
    terms: Terms,
    weights: Float[jax.Array, "K P"],
    u_part: Float[jax.Array, " inputs"],
    starts: Float[jax.Array, "S ny"],
) -> tuple[jax.Array, ...]:
    """For every member and start: state, outputs, what still moves, ``F_x`` and ``F_w``."""

    def settle(w: jax.Array, y0: jax.Array) -> tuple[jax.Array, ...]:
        first: Any = (
            network.initial_state(unflatten(network, w)),
            jnp.tile(y0, (terms.output_lag, 1)),
        )
        x0, restore = ravel_pytree(first)

        def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
            state, register = restore(x)
            z = jnp.concatenate([u_part, read(register, terms)])
            state, y = network.step(unflatten(network, w), state, z)
            return ravel_pytree((state, push(register, y)))[0], y

        def newton(_: int, x: jax.Array) -> jax.Array:
            miss = step(x, w)[0] - x
            J = jax.jacfwd(lambda v: step(v, w)[0])(x) - jnp.eye(x.size)
            new = x - solve(J, miss)
            better = jnp.sum((step(new, w)[0] - new) ** 2) < jnp.sum(miss**2)
            return jnp.where(better, new, x + 0.5 * miss)

        if not x0.size:  # no state: it rests at once
            nothing = jnp.zeros((0, 0)), jnp.zeros((0, w.size))
            return x0, step(x0, w)[1], jnp.zeros(()), *nothing
        x = jax.lax.fori_loop(0, BURN_IN, lambda _, v: step(v, w)[0], x0)
        x = jnp.where(jnp.isfinite(x).all(), x, x0)
        x = jax.lax.fori_loop(0, ITERATIONS, newton, x)
        after, y = step(x, w)
        F_x, F_w = jax.jacfwd(lambda v, p: step(v, p)[0], argnums=(0, 1))(x, w)
        return x, y, jnp.max(jnp.abs(after - x), initial=0.0), F_x, F_w

    return jax.lax.map(lambda w: jax.vmap(lambda y0: settle(w, y0))(starts), weights)
