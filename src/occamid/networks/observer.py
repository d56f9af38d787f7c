"""A state-space network that follows measured outputs: an extended Kalman filter in every step.

The regressors of a step are this time's inputs and the last outputs.  What the last outputs miss,
``ν = y(t−1) − ŷ(t−1)``, corrects the state; a model that is fed its own outputs has ``ν = 0`` and
runs free.  So the first outputs of a record find its state, a prediction k steps ahead starts from
the filtered state, and a free run is the network's own.  With ``F = ∂x⁺/∂x``, ``C = ∂y/∂x``:

    ``x = x⁻ + K ν``,   ``y = g(x, u)``,   ``x⁻⁺ = f(x, u)``,
    ``L = P Cᵀ (C P Cᵀ + R)⁻¹``,   ``K⁺ = F L``,   ``P⁺ = F (P − L C P) Fᵀ + Q``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from occamid.data.windows import Terms
from occamid.errors import SettingsError
from occamid.networks.base import Live, Masks, Network, Params, Spec
from occamid.networks.state_space import StateSpace


class Moving(NamedTuple):
    """What weights and noise move: the predicted state and the last output."""

    x: Float[Array, " nx"]
    y: Float[Array, " ny"]


class Filter(NamedTuple):
    """The gain on the last miss and the covariance of the predicted state; zero before a start."""

    K: Float[Array, "nx ny"]
    P: Float[Array, "nx nx"]


class Observed(NamedTuple):
    """The state of an observer."""

    moving: Moving
    filter: Filter


def parted(state: Any) -> tuple[Any, Any]:
    """What weights and noise move in a network's state, and what is only carried along."""
    return (state.moving, state.filter) if isinstance(state, Observed) else (state, ())


def joined(moving: Any, carried: Any) -> Any:
    """The state that :func:`parted` took apart."""
    return Observed(moving, carried) if isinstance(carried, Filter) else moving


@dataclass(frozen=True)
class Observer:
    """A :class:`StateSpace` network and its filter.

    ``filter.x`` and ``filter.P`` are mean and covariance of the state before a record, ``filter.Q``
    and ``filter.R`` what disturbs the state in a step and the variance of the outputs' noise.
    """

    n_in: int
    hidden: tuple[int, int]  # states and units
    n_out: int
    bias: bool = True
    activation: str = "tanh"

    @property
    def plant(self) -> StateSpace:
        """The network without the filter."""
        states, units = self.hidden
        return StateSpace(self.n_in - self.n_out, states, units, self.n_out, self.bias)

    def specs(self) -> dict[str, Spec]:
        """Those of the network, then the filter's."""
        states = self.hidden[0]
        own = {"x": (states,), "P": (states, states), "Q": (states, states), "R": (self.n_out,)}
        return self.plant.specs() | {f"filter.{k}": Spec(shape, 1) for k, shape in own.items()}

    def initial_state(self, params: Params) -> Observed:
        """The mean of the states; the first outputs will tell more."""
        x, P = params["filter.x"], params["filter.P"]
        none = jnp.zeros((self.hidden[0], self.n_out), x.dtype)
        return Observed(Moving(x, jnp.zeros(self.n_out, x.dtype)), Filter(none, P))

    def step(
        self, params: Params, state: Observed, z: Float[Array, " nz"]
    ) -> tuple[Observed, Float[Array, " ny"]]:
        """Correct the state by the last miss, then one step of the network and of the filter."""
        moving, (K, P) = state
        u, last = z[: self.n_in - self.n_out], z[self.n_in - self.n_out :]
        x = moving.x + K @ (last - moving.y)
        after, y = self.plant.step(params, x, u)
        return Observed(Moving(after, y), self.filtered(params, x, u, P)), y

    def filtered(self, params: Params, x: Array, u: Array, P: Array) -> Filter:
        """Gain and covariance along the way; what follows is not differentiated.

        The outputs' noises are independent, so they are taken in one after the other.
        """
        params, x, P = jax.lax.stop_gradient((params, x, P))
        F, C = self.slopes(params, x, u)
        L = jnp.zeros((self.hidden[0], self.n_out), x.dtype)
        for k, (c, r) in enumerate(zip(C, params["filter.R"], strict=True)):
            gain = P @ c / (jnp.maximum(c @ P @ c, 0.0) + r)
            L = (L - jnp.outer(gain, c @ L)).at[:, k].add(gain)
            P = P - jnp.outer(gain, c @ P)
        P = F @ (0.5 * (P + P.T)) @ F.T + params["filter.Q"]
        return Filter(jax.lax.stop_gradient(F @ L), jax.lax.stop_gradient(P))

    def slopes(
        self, params: Params, x: Float[Array, " nx"], u: Float[Array, " nu"]
    ) -> tuple[Float[Array, "nx nx"], Float[Array, "ny nx"]]:
        """``∂x⁺/∂x`` and ``∂y/∂x``."""
        a = params["unit.W_x"] @ x + params["unit.W_u"] @ u
        h = jnp.tanh(a + params["unit.b"] if self.bias else a)
        inner = (1 - h**2)[:, None] * params["unit.W_x"]
        F = params["state.W_x"] + params["state.W_h"] @ inner
        return F, params["out.W_x"] + params["out.W_h"] @ inner

    def apply(self, params: Params, z: Float[Array, "R T nz"]) -> Float[Array, "R T ny"]:
        """Predictions one step ahead along sequences."""

        def along(one: Array) -> Array:
            def step(state: Any, z_t: Array) -> tuple[Any, Array]:
                return self.step(params, state, z_t)

            return jax.lax.scan(step, self.initial_state(params), one)[1]

        return jax.vmap(along)(z)

    def sweep(
        self,
        params: Params,
        z: Float[Array, "R T nz"],
        gradient: Callable[[Float[Array, "R T ny"]], Float[Array, "R T ny"]],
        curvature: Float[Array, "R T ny"],
    ) -> Params:
        """A filter is not trained one step ahead; the network inside it can be."""
        raise SettingsError(
            "a state-space model is fitted in free run and has no recursive curvature one step "
            "ahead; take another method."
        )

    def live(self, masks: Masks) -> Live:
        """What is live in the network; every output is read by the filter."""
        inner = self.plant.live(masks)
        outputs = np.ones((*inner.regressors.shape[:-1], self.n_out), bool)
        return Live(np.concatenate([inner.regressors, outputs], axis=-1), inner.neurons)

    def select(self, tree: Mapping[str, np.ndarray], live: Live) -> dict[str, np.ndarray]:
        """Rows and columns of live states and units."""
        x = live.neurons[0]
        found = self.plant.select(
            {n: v for n, v in tree.items() if not of_filter(n)}, self._of(live)
        )
        for name in filter(of_filter, tree):
            value = tree[name]
            if name != "filter.R":
                value = value[np.ix_(x, x)] if value.ndim == 2 else value[x]
            found[name] = value
        return found

    def compact(
        self, params: dict[str, np.ndarray], live: Live
    ) -> tuple[Observer, dict[str, np.ndarray]]:
        """Drop what is not live; the filter keeps its live states."""
        plain = {name: value for name, value in params.items() if not of_filter(name)}
        inner, found = self.plant.compact(plain, self._of(live))
        rest = self.select(params, live)
        found |= {name: value for name, value in rest.items() if of_filter(name)}
        hidden = (inner.states, inner.units)
        return replace(self, n_in=inner.n_in + self.n_out, hidden=hidden), found

    def _of(self, live: Live) -> Live:
        return live._replace(regressors=live.regressors[..., : self.n_in - self.n_out])


def unobserved(network: Network, terms: Terms) -> tuple[Network, Terms]:
    """The network without its filter, which does nothing at rest; others as they are.

    Its flat parameters are the first ones of the observer's.
    """
    if not isinstance(network, Observer):
        return network, terms
    return network.plant, replace(terms, outputs=())


def of_filter(name: str) -> bool:
    """Whether a parameter is the filter's and not one of the model's weights."""
    return name.startswith("filter.")
