"""From a state-space fit to a model: its network with a filter, and what is not certain in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.data.record import Record
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms, roomy
from occamid.networks import Live, Observer, is_matrix, of_filter
from occamid.networks.flat import flatten, unflatten
from occamid.training.model import Model
from occamid.training.programs import kept
from occamid.training.state_space.fitted import Fitted, as_network
from occamid.training.wide import in_room

Array = np.ndarray
# Variance that disturbs a state in one step, in shares of its own variance.
DISTURBANCES = np.concatenate([[0.0], 10.0 ** np.arange(-10.0, 0.5, 1.0)])
NO_BETTER = 1.01  # a larger disturbance is taken where errors grow by no more than this
ROWS = 3000  # at most, on which the disturbance is chosen


class Uncertain(NamedTuple):
    """A model, and the Gaussian over its weights and the state before a record."""

    model: Model
    positions: Int[Array, " n"]
    factor: Float[Array, "n n"]
    widths: Float[Array, " n"]


def observed(fitted: Fitted, record: Record, scaling: Scaling) -> Uncertain:
    """The fitted network with a filter that is tuned on the last rows of a record."""
    inner, params = as_network(fitted.sizes, fitted.w)
    nu, ny = inner.n_in, inner.n_out
    variances = np.diag(fitted.states.covariance)
    whole = Observer(nu + ny, (inner.states, inner.units), ny)
    params |= {
        "filter.x": fitted.states.mean,
        "filter.P": fitted.states.covariance,
        "filter.Q": np.diag(variances),
        "filter.R": fitted.variance,
    }
    live = whole.live({name: v != 0 for name, v in params.items() if is_matrix(name)})
    network, weights = whole.compact(params, live)
    share = disturbance(network, weights, scaling.apply(record), live.regressors[:nu])
    weights["filter.Q"] = share * weights["filter.Q"]
    terms = Terms(
        inputs=tuple((c, 0) for c in range(nu)),
        outputs=tuple((c, 1) for c in range(ny)),
        input_names=record.input_names,
        output_names=record.output_names,
    )
    nowhere = {n: np.full(np.shape(v), -1) for n, v in params.items() if of_filter(n)}
    place = flatten(network, whole.select(_places(fitted) | nowhere, live)).astype(int)
    model = Model(
        network=network,
        terms=terms.select(live.regressors),
        scaling=scaling,
        weights=weights,
        start=1,
        sampling_time=record.sampling_time,
        prior_widths=_widths(fitted, whole, live),
    )
    return Uncertain(model, *_gaussian(fitted, network, place, weights))


def _places(fitted: Fitted) -> dict[str, Array]:
    """For every parameter of the whole network its place among the fit's weights."""
    return as_network(fitted.sizes, np.arange(fitted.sizes.total))[1]


def _widths(fitted: Fitted, whole: Observer, live: Live) -> dict[str, Array]:
    """Prior variances of the matrices' weights."""
    tree = as_network(fitted.sizes, 1 / fitted.alpha)[1]
    return whole.select({n: v for n, v in tree.items() if is_matrix(n)}, live)


def _gaussian(
    fitted: Fitted, network: Observer, place: Int[Array, " P"], weights: dict[str, Array]
) -> tuple[Int[Array, " n"], Float[Array, "n n"], Float[Array, " n"]]:
    """Uncertain parameters: weights the fit left free, and the first state of a new record."""
    covariance, free = fitted.covariance()
    index = np.full(fitted.sizes.total, -1)
    index[free] = np.arange(len(free))
    inside = (place >= 0) & (index[place] >= 0)
    own = index[place[inside]]
    offset = list(network.specs()).index("filter.x")
    before = [int(np.prod(s.shape)) for s in list(network.specs().values())[:offset]]
    states = sum(before) + np.arange(network.hidden[0])
    positions = np.concatenate([np.flatnonzero(inside), states])
    n = len(own)
    factor = np.zeros((len(positions), len(positions)))
    factor[:n, :n] = root(covariance[np.ix_(own, own)])
    factor[n:, n:] = root(weights["filter.P"])
    widths = np.concatenate([1 / fitted.alpha[place[inside]], np.diag(weights["filter.P"])])
    return positions, factor, widths


def root(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A square root of a covariance that rounding may have left indefinite."""
    if not len(covariance):
        return covariance
    d = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / d / d[:, None])
    return d[:, None] * vectors * np.sqrt(np.maximum(values, 1e-12 * values.max()))


def disturbance(
    network: Observer,
    weights: dict[str, Array],
    record: Record,
    inputs: Bool[Array, " nu"] | slice = slice(None),
) -> float:
    """The share of their variance that disturbs the states: what predicts best one step ahead.

    ``record`` is scaled, ``inputs`` are those that the network reads.  Of about equal ones the
    largest is taken: it trusts the model least, which on other records is not as good as on the
    one it was fitted to.
    """
    rows = slice(max(record.lead, len(record) - ROWS), None)
    u, y = record.u[rows][:, inputs], record.y[rows]
    z = np.concatenate([u[1:], y[:-1]], axis=1)
    room = roomy(len(z), 1024, 1)  # models and records of about one size share a program
    more, seen = ((0, room - len(z)), (0, 0)), np.arange(room) < len(z)
    large, wide = in_room(network, flatten(network, weights))
    with jax.enable_x64(True):
        own = jax.device_put((unflatten(large, wide), np.pad(z, more), np.pad(y[1:], more), seen))
        misses = jax.device_get(_misses(large, *own, jax.device_put(DISTURBANCES)))
    misses = np.where(np.isfinite(misses), misses, np.inf)
    good = misses <= NO_BETTER**2 * np.min(misses)
    return float(DISTURBANCES[np.flatnonzero(good)[-1]])


@kept((0,))
def _misses(
    network: Observer,
    params: Any,
    z: jax.Array,
    y: jax.Array,
    seen: jax.Array,
    shares: jax.Array,
) -> Float[jax.Array, " n"]:
    """Squared errors one step ahead in units of the noise, over the rows that are seen."""

    def one(share: jax.Array) -> jax.Array:
        tuned = params | {"filter.Q": share * params["filter.Q"]}
        squares = (network.apply(tuned, z[None])[0] - y) ** 2 / params["filter.R"]
        return jnp.sum(jnp.where(seen[:, None], squares, 0.0)) / jnp.sum(seen)

    return jax.vmap(one)(shares)
