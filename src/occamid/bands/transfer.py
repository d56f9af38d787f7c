"""What a linear model is: the coefficients of its difference equation, poles, gains, delays.

The layers of a linear network collapse into ``y(t) = c + Σ a y(t−k) + Σ b u(t−k)``.  Standard
errors are those of the posterior to first order, in the user's units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Complex, Float

from occamid.bands.posterior import Posterior
from occamid.networks import MLP
from occamid.networks.algebra import solve
from occamid.networks.flat import flatten, unflatten
from occamid.training.model import Model

Array = np.ndarray
CLEAR = 2.0  # standard errors from zero: a coefficient that is certainly there


class Transfer(NamedTuple):
    """A linear model; rows are outputs.

    Attributes:
        coefficients: of every regressor, (outputs, regressors).
        errors: their standard errors.
        offset: the constant c.
        poles: of the whole model, the slowest first.
        gain: static gain, (outputs, inputs); not a number where there is none.
        gain_errors: their standard errors.
        delays: the first lag whose coefficient is clearly not zero; -1 where none is.
    """

    coefficients: Float[Array, "ny nz"]
    errors: Float[Array, "ny nz"]
    offset: Float[Array, " ny"]
    poles: Complex[Array, " n"]
    gain: Float[Array, "ny nu"]
    gain_errors: Float[Array, "ny nu"]
    delays: tuple[tuple[int, ...], ...]


def is_linear(model: Model) -> bool:
    """Whether nothing bends: identities throughout, or no hidden unit is left."""
    network = model.network
    return isinstance(network, MLP) and (network.activation == "identity" or 0 in network.hidden)


def transfer(posterior: Posterior) -> Transfer:
    """The difference equation of a linear model (:func:`is_linear`) with standard errors."""
    model = posterior.model
    flat = flatten(model.network, model.weights)

    def whole(w: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return _collapsed(model, jnp.asarray(flat).at[posterior.positions].set(w))

    with jax.enable_x64(True):
        mean = jnp.asarray(flat[posterior.positions])
        C, c, gain = (np.asarray(part) for part in whole(mean))
        slopes = [np.asarray(part) for part in jax.jacfwd(whole)(mean)]
    F = np.diag(posterior.factor) if posterior.factor.ndim == 1 else posterior.factor
    errors, _, gain_errors = (np.sqrt(np.sum((J @ F) ** 2, axis=-1)) for J in slopes)
    return Transfer(C, errors, c, _poles(model, C), gain, gain_errors, _delays(model, C, errors))


def _collapsed(model: Model, flat: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Coefficients, constant and static gain of the weights ``flat``."""
    network, terms, scaling = model.network, model.terms, model.scaling
    params: Any = unflatten(network, flat)
    zero = jnp.zeros(network.n_in)

    def outputs(z: jax.Array) -> jax.Array:
        return network.step(params, (), z)[1]

    channels = np.array(terms.inputs, dtype=int).reshape(-1, 2)[:, 0]
    feeds = np.array(terms.outputs, dtype=int).reshape(-1, 2)[:, 0]
    scales = np.concatenate([scaling.u_scale[channels], scaling.y_scale[feeds]])
    offsets = np.concatenate([scaling.u_offset[channels], scaling.y_offset[feeds]])
    C = jax.jacfwd(outputs)(zero) * scaling.y_scale[:, None] / scales
    c = outputs(zero) * scaling.y_scale + scaling.y_offset - C @ offsets
    nu, ny, k = len(terms.input_names), len(terms.output_names), len(channels)
    B = C[:, :k] @ np.eye(nu)[channels]  # summed over the lags
    A = C[:, k:] @ np.eye(ny)[feeds]
    return C, c, solve(jnp.eye(ny) - A, B)


def _poles(model: Model, C: Float[Array, "ny nz"]) -> Complex[Array, " n"]:
    """Eigenvalues of the shift register that is fed the model's own outputs."""
    ny, lags = C.shape[0], model.terms.output_lag
    if not lags:
        return np.zeros(0, dtype=complex)
    A = np.eye(ny * lags, k=-ny)
    for j, (channel, lag) in enumerate(model.terms.outputs, len(model.terms.inputs)):
        A[:ny, (lag - 1) * ny + channel] = C[:, j]
    found = np.linalg.eigvals(A).astype(complex)
    return found[np.argsort(-np.abs(found))]


def _delays(
    model: Model, C: Float[Array, "ny nz"], errors: Float[Array, "ny nz"]
) -> tuple[tuple[int, ...], ...]:
    clear = np.abs(C) > CLEAR * errors
    return tuple(
        tuple(
            min((lag for j, (c, lag) in enumerate(model.terms.inputs) if c == channel and row[j]),
                default=-1)
            for channel in range(len(model.terms.input_names))
        )
        for row in clear
    )  # fmt: skip
