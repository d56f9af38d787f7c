"""Recurrent cells: one step forwards, and one step backwards for gradient and curvature.

A cell maps the pre-activations ``a`` of its gates and the carried state to the next state.  Its
``back`` is the chain rule of METHOD section 4, node by node: from the first and second
derivatives of the loss at the new state to those at the pre-activations and the old state,
dropping off-diagonal terms in the second.  The path through ``W_h`` is the caller's: it is the
same for every cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from occamid.networks.base import ACTIVATIONS, derivatives

State = tuple[Array, ...]  # the hidden state first


class Back(NamedTuple):
    """Derivatives of one order: at the pre-activations, and what flows to the previous state."""

    a: Float[Array, "... G H"]
    state: State  # without the path through W_h


class Cell(Protocol):
    """One step of a recurrent layer."""

    @property
    def gates(self) -> tuple[str, ...]:
        """Suffix of the matrices of each gate: ``W_i<gate>`` and ``W_h<gate>``."""

    @property
    def n_states(self) -> int:
        """How many arrays are carried."""

    def forward(self, a: Float[Array, "... G H"], state: State) -> tuple[State, Any]:
        """The next state, and what the way back needs."""

    def back(self, saved: Any, first: State, second: State | None) -> tuple[Back, Back | None]:
        """Both orders one step back; only the gradient when ``second`` is None."""


class RNNCell(NamedTuple):
    """``h(t) = σ(a)``, Eq. 24 of the paper."""

    activation: str = "tanh"

    @property
    def gates(self) -> tuple[str, ...]:
        """One gate without a name: matrices ``W_i`` and ``W_h``."""
        return ("",)

    @property
    def n_states(self) -> int:
        """The hidden state."""
        return 1

    def forward(self, a: Float[Array, "... 1 H"], state: State) -> tuple[State, Any]:
        """The next hidden state."""
        return (ACTIVATIONS[self.activation](a[..., 0, :]),), a[..., 0, :]

    def back(self, saved: Any, first: State, second: State | None) -> tuple[Back, Back | None]:
        """``H_a = σ'² H_h + σ'' ∂L/∂h`` (Lemma 2)."""
        d1, d2 = derivatives(ACTIVATIONS[self.activation], saved)
        (g_h,) = first
        none = (jnp.zeros_like(g_h),)
        gradient = Back((d1 * g_h)[..., None, :], none)
        if second is None:
            return gradient, None
        (h_h,) = second
        return gradient, Back((d1**2 * h_h + d2 * g_h)[..., None, :], none)


class LSTMCell(NamedTuple):
    """``c = f c_prev + i g``, ``h = o tanh(c)``."""

    @property
    def gates(self) -> tuple[str, ...]:
        """Input, forget, cell and output gate."""
        return ("i", "f", "g", "o")

    @property
    def n_states(self) -> int:
        """Hidden and cell state."""
        return 2

    def forward(self, a: Float[Array, "... 4 H"], state: State) -> tuple[State, Any]:
        """The next hidden and cell state."""
        _, c_prev = state
        i, f = jax.nn.sigmoid(a[..., 0, :]), jax.nn.sigmoid(a[..., 1, :])
        g, o = jnp.tanh(a[..., 2, :]), jax.nn.sigmoid(a[..., 3, :])
        c = f * c_prev + i * g
        tanh_c = jnp.tanh(c)
        return (o * tanh_c, c), (i, f, g, o, c_prev, tanh_c)

    def back(self, saved: Any, first: State, second: State | None) -> tuple[Back, Back | None]:
        """The LSTM rule of METHOD section 4; primes are derivatives of the gates."""
        i, f, g, o, c_prev, tanh_c = saved
        i1, f1, o1 = i * (1 - i), f * (1 - f), o * (1 - o)
        g1, t1 = 1 - g**2, 1 - tanh_c**2
        g_h, g_c = first
        g_c = g_c + g_h * o * t1
        gradient = Back(
            jnp.stack([g_c * g * i1, g_c * c_prev * f1, g_c * i * g1, g_h * tanh_c * o1], axis=-2),
            (jnp.zeros_like(g_h), g_c * f),
        )
        if second is None:
            return gradient, None
        i2, f2, o2 = i1 * (1 - 2 * i), f1 * (1 - 2 * f), o1 * (1 - 2 * o)
        g2, t2 = -2 * g * g1, -2 * tanh_c * t1
        h_h, h_c = second
        h_c = h_c + h_h * (o * t1) ** 2 + g_h * o * t2
        curvature = Back(
            jnp.stack(
                [
                    h_c * (g * i1) ** 2 + g_c * g * i2,
                    h_c * (c_prev * f1) ** 2 + g_c * c_prev * f2,
                    h_c * (i * g1) ** 2 + g_c * i * g2,
                    h_h * (tanh_c * o1) ** 2 + g_h * tanh_c * o2,
                ],
                axis=-2,
            ),
            (jnp.zeros_like(h_h), h_c * f**2),
        )
        return gradient, curvature
