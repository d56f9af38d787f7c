"""The inputs before a record begins, inferred where a free run starts before its lags are filled.

A model with long input lags needs inputs from before the first sample.  They are not in the
record, but the first measured outputs say much about them.  The past inputs ``v`` maximise

    ``− Σ ‖y(t) − f(z(t; v))‖² / (2 σ²) − ½ (v − m)ᵀ C⁻¹ (v − m)``,

the fit to the known outputs of the initial window and the input's own statistics: ``m`` and ``C``
are the mean and covariance of a stationary Gaussian signal with the record's autocovariance,
given the inputs that are known.  For a linear model that is one system of equations; for others
Levenberg's and Marquardt's method finds it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.linalg import toeplitz

from occamid.bands.mixture import Mixture
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms, lagged
from occamid.networks import MLP, Network, Observer
from occamid.networks.algebra import root
from occamid.networks.flat import unflatten
from occamid.training.levenberg import least_squares
from occamid.training.model import FIRST_OUTPUTS
from occamid.training.programs import kept

Array = np.ndarray
STARTS, ITERATIONS = 8, 30
CONDITION_ON = 60  # known inputs that the past is conditioned on
SMALLEST_NOISE = 0.02  # of a standard deviation of the output


def with_past(
    network: Network,
    terms: Terms,
    mixture: Mixture,
    scaling: Scaling,
    u: Float[Array, "N nu"],
    known: Float[Array, "n ny"],
) -> tuple[Float[Array, "M nu"], Float[Array, "m ny"], int]:
    """Inputs and known outputs from as far back as the lags reach, and how far that is.

    In the user's units.  Too little that is known, or other channels: nothing is inferred, and
    the model says so.  A filter's state is found from the last known outputs, so many for each of
    its states, and its past inputs are just the most probable.
    """
    enough = len(known) >= max(1, min(terms.max_lag, terms.output_lag))
    said = len(known)  # outputs that need no regressors
    if isinstance(network, Observer):
        said = max(terms.output_lag, said - FIRST_OUTPUTS * network.hidden[0])
    missing = max(0, terms.max_lag - said)
    shapes = (len(terms.input_names), len(terms.output_names))
    if not (enough and missing) or len(known) >= len(u) or (u.shape[1], known.shape[1]) != shapes:
        return u, known, 0
    scaled = scaling.apply_u(u)
    if isinstance(network, MLP):
        noise, y = mixture.noise_std, scaling.apply_y(known)
        past = past_inputs(network, terms, mixture.mean, noise, scaled, y, scaling.y_spread)
    else:
        past = np.stack([_conditional(v, missing)[0] for v in scaled.T], axis=1)
    past = past[-missing:]
    past = past * scaling.u_scale + scaling.u_offset
    longer = np.concatenate([np.repeat(known[:1], missing, axis=0), known])
    return np.concatenate([past, u]), longer, missing


def past_inputs(
    network: Network,
    terms: Terms,
    weights: Float[Array, "K P"],
    noise_std: Float[Array, "K ny"],
    u: Float[Array, "N nu"],
    y: Float[Array, "n ny"],
    spread: Float[Array, " ny"],
) -> Float[Array, "k nu"]:
    """Inputs of the ``max_lag − output_lag`` samples before the record, oldest first, scaled.

    All members of an ensemble are asked together: the past is one, whatever the model.  Several
    starting points are tried, because outputs may not tell the sign of what came before.
    """
    count = terms.max_lag - terms.output_lag
    laws = [_conditional(u[:, c], count) for c in range(u.shape[1])]
    mean = np.stack([m for m, _ in laws], axis=1)
    roots = np.stack([root for _, root in laws])
    sigma = np.maximum(noise_std, SMALLEST_NOISE * spread)
    if isinstance(network, MLP) and network.linear:
        return _solved(network, terms, weights, sigma, u[: len(y)], y, mean, roots)
    starts = np.random.default_rng(0).standard_normal((STARTS, count, u.shape[1]))
    starts[0] = 0.0
    with jax.enable_x64(True):
        found = _search(
            network, terms, weights, sigma, u[: len(y)], y, mean, roots, jnp.asarray(starts)
        )
    return np.asarray(found)


def _conditional(
    u: Float[Array, " N"], count: int
) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Mean of the past given the known inputs, and a square root of its covariance."""
    known = min(len(u), CONDITION_ON)
    centred = u - u.mean()
    lags = np.arange(min(count + known, len(u)))
    r = np.array([centred[: len(u) - k] @ centred[k:] for k in lags]) / len(u)
    r = np.concatenate([r, np.zeros(count + known - len(r))])
    r[0] = 1.001 * r[0] + 1e-9  # a little white noise keeps it invertible
    C = toeplitz(r)
    gain = np.linalg.solve(C[count:, count:], C[count:, :count]).T
    inner = C[:count, :count] - gain @ C[count:, :count]
    return u.mean() + gain @ centred[:known], root(inner)


def _solved(
    network: MLP,
    terms: Terms,
    weights: Float[Array, "K P"],
    sigma: Float[Array, "K ny"],
    u: Float[Array, "n nu"],
    y: Float[Array, "n ny"],
    mean: Float[Array, "k nu"],
    roots: Float[Array, "nu k k"],
) -> Float[Array, "k nu"]:
    """The past of linear models ``W z + c``: errors are affine in it, ``r + M x``."""
    rows = np.arange(terms.output_lag, len(y))
    whole = np.concatenate([mean, u])
    at = rows[:, None] + len(mean) - np.array([lag for _, lag in terms.inputs], dtype=int)
    channels = np.array([c for c, _ in terms.inputs], dtype=int)
    z = np.concatenate([whole[at, channels], lagged(y, terms.outputs, terms.output_lag)], axis=1)
    row, term = np.nonzero(at < len(mean))  # what reaches back before the record
    W, c = network.matrix(unflatten(network, weights))
    M = np.zeros((len(weights), len(rows), sigma.shape[1], *mean.shape))
    M[:, row, :, at[row, term], channels[term]] = np.moveaxis(W[:, :, term], 2, 0)
    M = np.einsum("mtoic,cij->mtojc", M, roots) / sigma[:, None, :, None, None]
    r = (np.einsum("tz,moz->mto", z, W) + c[:, None] - y[rows]) / sigma[:, None]
    A, r = M.reshape(-1, mean.size), r.ravel()
    x = -np.linalg.solve(A.T @ A + len(weights) * np.eye(mean.size), A.T @ r)
    return mean + np.einsum("cij,jc->ic", roots, x.reshape(mean.shape))


@kept((0, 1))
def _search(
    network: Network,
    terms: Terms,
    weights: Float[jax.Array, "K P"],
    sigma: Float[jax.Array, "K ny"],
    u: Float[jax.Array, "n nu"],
    y: Float[jax.Array, "n ny"],
    mean: Float[jax.Array, "k nu"],
    roots: Float[jax.Array, "nu k k"],
    starts: Float[jax.Array, "S k nu"],
) -> Float[jax.Array, "k nu"]:
    count, first = mean.shape[0], terms.output_lag
    rows = np.arange(first, len(y))
    in_channel, in_lag = np.array(terms.inputs, dtype=int).reshape(-1, 2).T
    out_channel, out_lag = np.array(terms.outputs, dtype=int).reshape(-1, 2).T
    outputs = y[rows[:, None] - out_lag, out_channel]

    def past(x: jax.Array) -> jax.Array:
        return mean + jnp.einsum("cij,jc->ic", roots, x.reshape(starts.shape[1:]))

    def residual(x: jax.Array) -> jax.Array:
        whole = jnp.concatenate([past(x), u])
        z = jnp.concatenate([whole[rows[:, None] + count - in_lag, in_channel], outputs], axis=1)
        runs = jax.vmap(lambda w: network.apply(unflatten(network, w), z))(weights)
        miss = (runs - y[rows]) / (sigma[:, None] * np.sqrt(len(weights)))
        return jnp.concatenate([miss.ravel(), x])

    found, costs = jax.lax.map(lambda x: least_squares(residual, x.ravel(), ITERATIONS), starts)
    return past(found[jnp.argmin(costs)])
