"""The multi-layer perceptron, and Lemma 1: its Hessian diagonal in one backward sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from occamid.networks.base import ACTIVATIONS, Live, Masks, Params, Spec, derivatives


@dataclass(frozen=True)
class MLP:
    """``h^l = W^l a^(l-1) + b^l``, ``a^l = σ(h^l)``; the last layer is linear.

    With ``skip`` the regressors also reach the output directly, ``ŷ = h^L + W^skip z``: a linear
    model beside a correction to it, each with its own sparsity.
    """

    n_in: int
    hidden: tuple[int, ...]
    n_out: int
    activation: str = "relu"
    bias: bool = True
    skip: bool = False

    def specs(self) -> dict[str, Spec]:
        """Matrices ``layer0.W … layerL.W`` of shape (out, in), and biases if any."""
        sizes = (self.n_in, *self.hidden, self.n_out)
        found: dict[str, Spec] = {}
        for layer, (fan_in, out) in enumerate(pairwise(sizes)):
            found[f"layer{layer}.W"] = Spec((out, fan_in), fan_in)
            if self.bias:
                found[f"layer{layer}.b"] = Spec((out,), fan_in)
        if self.skip:
            found["skip.W"] = Spec((self.n_out, self.n_in), self.n_in)
        return found

    def _forward(self, params: Params, z: Float[Array, "nz N"]) -> tuple[list[Array], list[Array]]:
        """Pre-activations of every layer, and the input of every layer, a column for each row.

        Long columns and few features: the products of many small networks are three times as fast
        as with features last.
        """
        inputs, pre = [z], []
        for layer in range(len(self.hidden) + 1):
            h = params[f"layer{layer}.W"] @ inputs[-1]
            pre.append(h + params[f"layer{layer}.b"][:, None] if self.bias else h)
            inputs.append(ACTIVATIONS[self.activation](pre[-1]))
        if self.skip:
            pre[-1] = pre[-1] + params["skip.W"] @ z
        return pre, inputs[:-1]

    def apply(self, params: Params, z: Float[Array, "... nz"]) -> Float[Array, "... ny"]:
        """Outputs for regressors in any leading shape."""
        return self._forward(params, _columns(z))[0][-1].T.reshape(*z.shape[:-1], self.n_out)

    @property
    def linear(self) -> bool:
        """Whether the output is ``W z + c``: no unit, or none that bends."""
        return self.activation == "identity" or self.hidden == (0,)

    def matrix(
        self, params: Mapping[str, Any]
    ) -> tuple[Float[np.ndarray, "*batch ny nz"], Float[np.ndarray, "*batch ny"]]:
        """W and c of a linear network; leading axes of the parameters stay."""
        W, c = np.eye(self.n_in), np.zeros((self.n_in, 1))
        for layer in range(len(self.hidden) + 1):
            own = np.asarray(params[f"layer{layer}.W"])
            W, c = own @ W, own @ c
            if self.bias:
                c = c + np.asarray(params[f"layer{layer}.b"])[..., None]
        return (W + params["skip.W"] if self.skip else W), c[..., 0]

    def initial_state(self, params: Params) -> tuple[()]:
        """A perceptron has no state."""
        return ()

    def step(
        self, params: Params, state: tuple[()], z: Float[Array, " nz"]
    ) -> tuple[tuple[()], Float[Array, " ny"]]:
        """One time step."""
        return state, self.apply(params, z)

    def sweep(
        self,
        params: Params,
        z: Float[Array, "... nz"],
        gradient: Callable[[Float[Array, "... ny"]], Float[Array, "... ny"]],
        curvature: Float[Array, "... ny"],
    ) -> Params:
        """Lemma 1, with ``a^(l-1)``, the layer's input, as the appendix has it.

        ``Hdiag(W^l) = Σ H^l ⊗ (a^(l-1))²`` and
        ``H^(l-1) = σ'(h)² ⊙ ((W^l)²ᵀ H^l) + σ''(h) ⊙ ∂L/∂a``.
        """
        pre, inputs = self._forward(params, _columns(z))
        y = pre[-1].T.reshape(*z.shape[:-1], self.n_out)
        g, h = _columns(gradient(y)), _columns(curvature)
        diagonal: Params = {}
        if self.skip:
            diagonal["skip.W"] = h @ (inputs[0] ** 2).T
        for layer in reversed(range(len(pre))):
            W = params[f"layer{layer}.W"]
            diagonal[f"layer{layer}.W"] = h @ (inputs[layer] ** 2).T
            if self.bias:
                diagonal[f"layer{layer}.b"] = jnp.sum(h, axis=1)
            if layer:
                first, second = derivatives(ACTIVATIONS[self.activation], pre[layer - 1])
                g_a = W.T @ g
                g, h = first * g_a, first**2 * (W.T**2 @ h) + second * g_a
        return diagonal

    def live(self, masks: Masks) -> Live:
        """Neurons that vary with a regressor and reach the output, and the regressors they read."""
        layers = [masks[f"layer{k}.W"] for k in range(len(self.hidden) + 1)]
        varies = [np.ones(layers[0].shape[:-2] + layers[0].shape[-1:], bool)]
        for mask in layers[:-1]:
            varies.append(np.any(mask & varies[-1][..., None, :], axis=-1))
        needed = [np.ones(layers[-1].shape[:-1], bool)]
        for mask, varying in zip(reversed(layers), reversed(varies), strict=True):
            needed.insert(0, varying & np.any(mask & needed[0][..., :, None], axis=-2))
        read = needed[0] | np.any(masks["skip.W"], axis=-2) if self.skip else needed[0]
        return Live(read, tuple(needed[1:-1]))

    def select(self, tree: Mapping[str, np.ndarray], live: Live) -> dict[str, np.ndarray]:
        """Rows of live neurons, columns of what they can read."""
        keeps = [live.regressors, *live.neurons, np.ones(self.n_out, bool)]
        found = {}
        for layer, (keep_in, keep_out) in enumerate(pairwise(keeps)):
            if f"layer{layer}.W" in tree:
                found[f"layer{layer}.W"] = tree[f"layer{layer}.W"][np.ix_(keep_out, keep_in)]
            if f"layer{layer}.b" in tree:
                found[f"layer{layer}.b"] = tree[f"layer{layer}.b"][keep_out]
        if "skip.W" in tree:
            found["skip.W"] = tree["skip.W"][:, live.regressors]
        return found

    def compact(
        self, params: dict[str, np.ndarray], live: Live
    ) -> tuple[MLP, dict[str, np.ndarray]]:
        """Drop what is not live; what a dropped neuron adds at rest folds into the next bias."""
        folded = dict(params)
        rest, dropped = np.zeros(self.n_in), ~live.regressors
        for layer in range(len(self.hidden) + 1):
            W = params[f"layer{layer}.W"]
            b = params.get(f"layer{layer}.b", np.zeros(len(W))) + W[:, dropped] @ rest[dropped]
            folded[f"layer{layer}.b"] = b
            rest = np.asarray(ACTIVATIONS[self.activation](jnp.asarray(b)))
            dropped = ~live.neurons[layer] if layer < len(self.hidden) else dropped
        small = self.select(folded, live)
        bias = self.bias or any(np.any(v) for n, v in small.items() if n.endswith(".b"))
        hidden = tuple(int(np.sum(kept)) for kept in live.neurons)
        network = replace(self, n_in=int(np.sum(live.regressors)), hidden=hidden, bias=bias)
        return network, {name: small[name] for name in network.specs()}


def _columns(rows: Float[Array, "... n"]) -> Float[Array, "n N"]:
    """Rows of any leading shape as columns."""
    return rows.reshape(prod(rows.shape[:-1]), rows.shape[-1]).T
