"""Recurrent networks (LSTM, plain RNN) of one or more layers with a linear output.

Time runs in one scan forwards and one backwards.  The input's share of the pre-activations is
one matrix product before the scan, and the sums over time that make gradients and curvatures of
the matrices are one product after it, so the scans carry nothing larger than the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from occamid.networks.base import Live, Masks, Params, Spec
from occamid.networks.cells import Back, Cell, LSTMCell, RNNCell, State

UNROLL = 4  # steps of time in one turn of the loop: a third of the seconds on a GPU and on a CPU


@dataclass(frozen=True)
class Recurrent:
    """A stack of recurrent layers, ``kind`` "lstm" or "rnn", and a linear output layer.

    ``reach`` is the paper's τ: how many steps back the curvature of one sample's loss reaches
    (None: to the beginning).  It does not change the gradient.
    """

    kind: str
    n_in: int
    hidden: tuple[int, ...]
    n_out: int
    activation: str = "tanh"
    bias: bool = True
    reach: int | None = None

    @property
    def cell(self) -> Cell:
        """The step of every layer."""
        return LSTMCell() if self.kind == "lstm" else RNNCell(self.activation)

    def specs(self) -> dict[str, Spec]:
        """``lstm0.W_ii … lstm0.W_ho`` (each gate a matrix of its own), biases, ``out.W``."""
        found: dict[str, Spec] = {}
        n_in = self.n_in
        for layer, units in enumerate(self.hidden):
            prefix = f"{self.kind}{layer}"
            for source, size in (("i", n_in), ("h", units)):
                for gate in self.cell.gates:
                    found[f"{prefix}.W_{source}{gate}"] = Spec((units, size), size)
            if self.bias:
                for gate in self.cell.gates:
                    found[f"{prefix}.b_{gate}"] = Spec((units,), units)
            n_in = units
        found["out.W"] = Spec((self.n_out, n_in), n_in)
        if self.bias:
            found["out.b"] = Spec((self.n_out,), n_in)
        return found

    def _layer(self, params: Params, layer: int) -> tuple[Array, Array, Array]:
        """The gates' matrices stacked: (G, H, in), (G, H, H) and the bias (G, H)."""
        prefix, gates = f"{self.kind}{layer}", self.cell.gates
        W_i = jnp.stack([params[f"{prefix}.W_i{gate}"] for gate in gates])
        W_h = jnp.stack([params[f"{prefix}.W_h{gate}"] for gate in gates])
        if not self.bias:
            return W_i, W_h, jnp.zeros(W_h.shape[:2], W_h.dtype)
        return W_i, W_h, jnp.stack([params[f"{prefix}.b_{gate}"] for gate in gates])

    def apply(self, params: Params, z: Float[Array, "R T nz"]) -> Float[Array, "R T ny"]:
        """Outputs along sequences from a zero state; differentiable with our own backward scan."""
        x = jnp.swapaxes(z, 0, 1)
        for layer in range(len(self.hidden)):
            W_i, W_h, b = self._layer(params, layer)
            x = _hidden_states(self.cell, W_h, jnp.einsum("trk,ghk->trgh", x, W_i) + b)
        return jnp.swapaxes(self._output(params, x), 0, 1)

    def _output(self, params: Params, x: Float[Array, "... H"]) -> Float[Array, "... ny"]:
        y = x @ params["out.W"].T
        return y + params["out.b"] if self.bias else y

    def initial_state(self, params: Params) -> tuple[State, ...]:
        """Zeros for every layer."""
        dtype = params["out.W"].dtype
        zeros = lambda units: (jnp.zeros(units, dtype),) * self.cell.n_states  # noqa: E731
        return tuple(zeros(units) for units in self.hidden)

    def step(
        self, params: Params, state: tuple[State, ...], z: Float[Array, " nz"]
    ) -> tuple[tuple[State, ...], Float[Array, " ny"]]:
        """One time step."""
        new = []
        for layer, carried in enumerate(state):
            W_i, W_h, b = self._layer(params, layer)
            carried, _ = self.cell.forward(W_i @ z + W_h @ carried[0] + b, carried)
            new.append(carried)
            z = carried[0]
        return tuple(new), self._output(params, z)

    def sweep(
        self,
        params: Params,
        z: Float[Array, "R T nz"],
        gradient: Callable[[Float[Array, "R T ny"]], Float[Array, "R T ny"]],
        curvature: Float[Array, "R T ny"],
    ) -> Params:
        """Lemma 2 for every layer: all pairs (t, j) in one scan from T down to 1.

        Differs from the paper: the sum over the pairs is accumulated on the way, which the
        linearity of the recursion allows, and the hidden state propagates through ``W_h``.
        """
        inputs, saves = [jnp.swapaxes(z, 0, 1)], []
        for layer in range(len(self.hidden)):
            W_i, W_h, b = self._layer(params, layer)
            a = jnp.einsum("trk,ghk->trgh", inputs[-1], W_i) + b
            h, saved = _forward(self.cell, W_h, a)
            inputs.append(h)
            saves.append(saved)
        y = jnp.swapaxes(self._output(params, inputs[-1]), 0, 1)
        g, h = jnp.swapaxes(gradient(y), 0, 1), jnp.swapaxes(curvature, 0, 1)
        diagonal: Params = {"out.W": jnp.einsum("tro,tri->oi", h, inputs[-1] ** 2)}
        if self.bias:
            diagonal["out.b"] = jnp.einsum("tro->o", h)
        g, h = g @ params["out.W"], h @ params["out.W"] ** 2
        for layer in reversed(range(len(self.hidden))):
            W_i, W_h, _ = self._layer(params, layer)
            g_a, h_a = _backward(self.cell, W_h, saves[layer], g, h, self.reach)
            assert h_a is not None
            to_inputs = jnp.einsum("trgh,tri->ghi", h_a, inputs[layer] ** 2)
            to_hidden = jnp.einsum("trgh,tri->ghi", h_a, _previous(inputs[layer + 1]) ** 2)
            prefix = f"{self.kind}{layer}"
            for k, gate in enumerate(self.cell.gates):
                diagonal[f"{prefix}.W_i{gate}"] = to_inputs[k]
                diagonal[f"{prefix}.W_h{gate}"] = to_hidden[k]
                if self.bias:
                    diagonal[f"{prefix}.b_{gate}"] = jnp.einsum("trh->h", h_a[:, :, k])
            g = jnp.einsum("trgh,ghi->tri", g_a, W_i)
            h = jnp.einsum("trgh,ghi->tri", h_a, W_i**2)
        return diagonal

    def live(self, masks: Masks) -> Live:
        """Units whose state can leave zero and reaches the output, and the regressors they read."""
        needed = np.any(masks["out.W"], axis=-2)
        neurons: list[np.ndarray] = []
        varies = self._varying(masks)
        for layer in reversed(range(len(self.hidden))):
            reads_h = self._any_gate(masks, layer, "h")
            needed = needed & varies[layer]
            for _ in range(self.hidden[layer]):  # closure: what a needed unit reads is needed
                needed = varies[layer] & (needed | np.any(reads_h & needed[..., :, None], axis=-2))
            neurons.insert(0, needed)
            needed = np.any(self._any_gate(masks, layer, "i") & needed[..., :, None], axis=-2)
        return Live(needed, tuple(neurons))

    def _any_gate(self, masks: Masks, layer: int, source: str) -> Bool[np.ndarray, "*batch H n"]:
        gates = [masks[f"{self.kind}{layer}.W_{source}{gate}"] for gate in self.cell.gates]
        return np.any(gates, axis=0)

    def _varying(self, masks: Masks) -> list[Bool[np.ndarray, "*batch H"]]:
        """Units that do not stay at zero: their drive (gate g, or the only one) gets signal.

        A unit with a bias may drift from zero by itself and counts as varying.
        """
        drive = "g" if self.kind == "lstm" else ""
        rests_at_zero = self.kind == "lstm" or self.activation not in ("sigmoid", "softplus")
        first = masks[f"{self.kind}0.W_i{drive}"]
        below = np.ones(first.shape[:-2] + first.shape[-1:], bool)
        found = []
        for layer, units in enumerate(self.hidden):
            W_i = masks[f"{self.kind}{layer}.W_i{drive}"]
            W_h = masks[f"{self.kind}{layer}.W_h{drive}"]
            varying = np.any(W_i & below[..., None, :], axis=-1) | (self.bias or not rests_at_zero)
            for _ in range(units):
                varying = varying | np.any(W_h & varying[..., None, :], axis=-1)
            found.append(varying)
            below = varying
        return found

    def select(self, tree: Mapping[str, np.ndarray], live: Live) -> dict[str, np.ndarray]:
        """Rows of live units, columns of what they can read."""
        keeps = [live.regressors, *live.neurons]
        found = {}
        for name, value in tree.items():
            prefix, part = name.split(".")
            if prefix == "out":
                found[name] = value[:, keeps[-1]] if part == "W" else value
                continue
            layer = int(prefix.removeprefix(self.kind))
            keep = keeps[layer + 1]
            if part.startswith("b"):
                found[name] = value[keep]
            else:
                found[name] = value[np.ix_(keep, keeps[layer] if part[2] == "i" else keep)]
        return found

    def compact(
        self, params: dict[str, np.ndarray], live: Live
    ) -> tuple[Recurrent, dict[str, np.ndarray]]:
        """Drop units that stay at zero or are never read, and regressors that nobody reads."""
        hidden = tuple(int(np.sum(kept)) for kept in live.neurons)
        network = replace(self, n_in=int(np.sum(live.regressors)), hidden=hidden)
        return network, self.select(params, live)


def _forward(
    cell: Cell, W_h: Float[Array, "G H H"], a: Float[Array, "T R G H"]
) -> tuple[Float[Array, "T R H"], Any]:
    """Hidden states from the inputs' share of the pre-activations, and what to save."""

    def step(state: State, a_t: Float[Array, "R G H"]) -> tuple[State, tuple[Array, Any]]:
        state, saved = cell.forward(a_t + jnp.einsum("rk,ghk->rgh", state[0], W_h), state)
        return state, (state[0], saved)

    zeros = (jnp.zeros(a.shape[1:2] + a.shape[3:], a.dtype),) * cell.n_states
    return jax.lax.scan(step, zeros, a, unroll=UNROLL)[1]


def _backward(
    cell: Cell,
    W_h: Float[Array, "G H H"],
    saved: Any,
    first: Float[Array, "T R H"],
    second: Float[Array, "T R H"] | None,
    reach: int | None = None,
) -> tuple[Float[Array, "T R G H"], Float[Array, "T R G H"] | None]:
    """Derivatives of both orders at the pre-activations, scanning from T down to 1.

    ``first`` and ``second`` are what each time's loss says at its own hidden state.  With a finite
    reach, contributions are carried apart by age and leave after ``reach`` steps.
    """
    slots = reach or 1

    def arrive(carried: State, fresh: Float[Array, "R H"]) -> State:
        """Add this time's own derivative: to the sum, or as the youngest slot."""
        if reach is None:
            return (carried[0] + fresh, *carried[1:])
        zeros = jnp.zeros_like(fresh)
        youngest = (fresh, *(zeros for _ in carried[1:]))
        return tuple(
            jnp.concatenate([new[None], old[:-1]])
            for new, old in zip(youngest, carried, strict=True)
        )

    def leave(back: Back, W: Array) -> State:
        return (back.state[0] + jnp.einsum("srgh,ghk->srk", back.a, W), *back.state[1:])

    def step(
        carried: tuple[State, State | None], now: tuple[Any, Array, Array | None]
    ) -> tuple[tuple[State, State | None], tuple[Array, Array | None]]:
        saved_t, fresh_1, fresh_2 = now
        g = arrive(carried[0], fresh_1)
        if fresh_2 is None or carried[1] is None:
            back_1, _ = cell.back(saved_t, g, None)
            return (leave(back_1, W_h), None), (jnp.sum(back_1.a, axis=0), None)
        back_1, back_2 = cell.back(saved_t, g, arrive(carried[1], fresh_2))
        assert back_2 is not None
        out = (jnp.sum(back_1.a, axis=0), jnp.sum(back_2.a, axis=0))
        return (leave(back_1, W_h), leave(back_2, W_h**2)), out

    zeros = (jnp.zeros((slots, *first.shape[1:]), first.dtype),) * cell.n_states
    start = (zeros, None if second is None else zeros)
    together = UNROLL if second is None else 1  # the curvature is swept once in a cycle
    return jax.lax.scan(step, start, (saved, first, second), reverse=True, unroll=together)[1]


def _previous(h: Float[Array, "T R H"]) -> Float[Array, "T R H"]:
    """The hidden state before each step."""
    return jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _hidden_states(
    cell: Cell, W_h: Float[Array, "G H H"], a: Float[Array, "T R G H"]
) -> Float[Array, "T R H"]:
    """Hidden states; its gradient is the first-order half of the curvature sweep."""
    return _forward(cell, W_h, a)[0]


def _hidden_states_fwd(cell: Cell, W_h: Array, a: Array) -> tuple[Array, Any]:
    h, saved = _forward(cell, W_h, a)
    return h, (W_h, h, saved)


def _hidden_states_bwd(cell: Cell, kept: Any, g: Float[Array, "T R H"]) -> tuple[Array, Array]:
    W_h, h, saved = kept
    g_a, _ = _backward(cell, W_h, saved, g, None)
    return jnp.einsum("trgh,trk->ghk", g_a, _previous(h)), g_a


_hidden_states.defvjp(_hidden_states_fwd, _hidden_states_bwd)
