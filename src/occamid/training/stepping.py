"""One step of a model as a pure function in the user's units, for loops that people write.

    step = model.step_function()
    state = step.initial_state(u_past, y_past)
    state, y = step(state, u_now)

It can be used inside ``jax.jit``, ``jax.grad``, ``jax.vmap`` and ``jax.lax.scan``, and computes in
the precision that JAX is set to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.errors import DataError
from occamid.networks import Network
from occamid.networks.simulate import push, read

Array = np.ndarray
Either = jax.Array | np.ndarray


class State(NamedTuple):
    """Between two steps: hidden states of the members, past inputs, and each member's outputs.

    In scaled units, oldest first.
    """

    hidden: Any
    u: Float[jax.Array, "lu nu"]
    y: Float[jax.Array, "K ly ny"]


@dataclass(frozen=True, eq=False)
class Stepper:
    """``(state, u(t)) -> (state, y(t))``; of several members, y is their weighted median.

    Attributes:
        network: of all members.
        terms: what they read.
        params: their weights, a member along the first axis.
        shares: of the members.
        scaling: from and to the user's units.
        start: the first sample of a record that the model predicts.
    """

    network: Network
    terms: Terms
    params: Mapping[str, Float[Array, "K ..."]]
    shares: Float[Array, " K"]
    scaling: Scaling
    start: int

    def __call__(
        self, state: State, u: Float[Either, " nu"]
    ) -> tuple[State, Float[jax.Array, " ny"]]:
        """The next state, and the outputs to the inputs ``u`` of this sample."""
        after, y = self._step(state, u, None)
        return after, _median(y, self.shares) * self.scaling.y_scale + self.scaling.y_offset

    def initial_state(
        self,
        u_past: Float[Either, "n nu"] | Float[Either, " n"],
        y_past: Float[Either, "m ny"] | Float[Either, " m"],
    ) -> State:
        """The state after measured inputs and outputs, at least ``terms.max_lag`` rows of each.

        Hidden states warm up on all rows after the initial window, as in a free run; those of a
        state-space model by its filter alone.
        """
        u, y = _columns(u_past), _columns(y_past)
        names = self.terms.input_names, self.terms.output_names
        most = self.terms.max_lag
        if len(u) != len(y) or len(y) < most:
            raise DataError(
                f"u_past has {len(u)} rows and y_past {len(y)}; the model needs the last {most} "
                "of both."
            )
        if (u.shape[1], y.shape[1]) != (len(names[0]), len(names[1])):
            raise DataError(
                f"u_past has {u.shape[1]} columns and y_past {y.shape[1]}; the model has "
                f"{len(names[0])} inputs and {len(names[1])} outputs."
            )
        first = min(max(self.start, most), len(y))
        state = self._first(
            u[first - self._reach : first], y[first - self.terms.output_lag : first]
        )
        if not jax.tree.leaves(state.hidden):  # nothing to warm up
            first = len(y)
            return self._first(u[first - self._reach :], y[first - self.terms.output_lag :])

        def warm(carried: State, now: tuple[jax.Array, jax.Array]) -> tuple[State, None]:
            return self._step(carried, *now)[0], None

        return jax.lax.scan(warm, state, (u[first:], y[first:]))[0]

    @property
    def _reach(self) -> int:
        """The largest lag of an input."""
        return max((lag for _, lag in self.terms.inputs), default=0)

    def _first(self, u: Float[jax.Array, "lu nu"], y: Float[jax.Array, "ly ny"]) -> State:
        params = {name: jnp.asarray(value) for name, value in self.params.items()}
        hidden = jax.vmap(self.network.initial_state)(params)
        past = (y - self.scaling.y_offset) / self.scaling.y_scale
        members = jnp.broadcast_to(past, (len(self.shares), *past.shape))
        return State(hidden, (u - self.scaling.u_offset) / self.scaling.u_scale, members)

    def _step(
        self, state: State, u: Float[Either, " nu"], measured: Float[Either, " ny"] | None
    ) -> tuple[State, Float[jax.Array, "K ny"]]:
        """All members one sample ahead, fed their own outputs or the measured ones; scaled."""
        now = (jnp.atleast_1d(u) - self.scaling.u_offset) / self.scaling.u_scale
        inputs = jnp.concatenate([state.u, now[None]])
        channels, lags = np.array(self.terms.inputs, dtype=int).reshape(-1, 2).T
        part = inputs[self._reach - lags, channels]
        params = {name: jnp.asarray(value) for name, value in self.params.items()}

        def member(p: Any, hidden: Any, register: jax.Array) -> tuple[Any, jax.Array]:
            return self.network.step(p, hidden, jnp.concatenate([part, read(register, self.terms)]))

        hidden, y = jax.vmap(member)(params, state.hidden, state.y)
        fed = y
        if measured is not None:
            fed = jnp.broadcast_to(
                (measured - self.scaling.y_offset) / self.scaling.y_scale, y.shape
            )
        return State(hidden, inputs[1:], jax.vmap(push)(state.y, fed)), y


def _median(runs: Float[jax.Array, "K ny"], shares: Float[Array, " K"]) -> Float[jax.Array, " ny"]:
    """The weighted median over the members; where two tie, their mean."""
    order = jnp.argsort(runs, axis=0)
    share = jnp.cumsum(jnp.asarray(shares)[order], axis=0)
    ranked = jnp.take_along_axis(runs, order, axis=0)
    slack = 1e-12 if share.dtype == jnp.float64 else 1e-6
    lower = jnp.argmax(share >= 0.5 - slack, axis=0)[None]
    upper = jnp.argmax(share > 0.5 + slack, axis=0)[None]
    ends = [jnp.take_along_axis(ranked, at, axis=0)[0] for at in (lower, upper)]
    return (ends[0] + ends[1]) / 2


def _columns(x: Any) -> jax.Array:
    found = jnp.atleast_1d(jnp.asarray(x))
    return found[:, None] if found.ndim == 1 else found
