"""The networks as programs: perceptron, recurrent stack, state space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from occamid.errors import SettingsError
from occamid.export.program import REGRESSORS, Activate, Affine, Carried, Node, Products, Step
from occamid.networks import MLP, Network, Recurrent

Array = np.ndarray
Weights = Mapping[str, Array]


def step_of(network: Network, weights: Weights) -> Step:
    """One time step of a network as a program."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    if isinstance(network, MLP):
        return perceptron(network, arrays)
    if isinstance(network, Recurrent):
        return recurrent(network, arrays)
    raise SettingsError(f"a {type(network).__name__} network cannot be exported.")


def perceptron(network: MLP, weights: Weights) -> Step:
    """``h^l = W^l a^(l-1) + b^l``, ``a^l = σ(h^l)``, the last linear, beside ``W^skip z``."""
    nodes: dict[str, Node] = {}
    source, last = REGRESSORS, len(network.hidden)
    for layer in range(last + 1):
        W = weights[f"layer{layer}.W"]
        parts = [(source, W)]
        if layer == last and network.skip:
            parts.append((REGRESSORS, weights["skip.W"]))
        nodes[f"h{layer}"] = Affine(tuple(parts), weights.get(f"layer{layer}.b", np.zeros(len(W))))
        if layer < last:
            nodes[f"a{layer}"] = Activate(f"h{layer}", network.activation)
            source = f"a{layer}"
    return Step(nodes, {}, f"h{last}")


def recurrent(network: Recurrent, weights: Weights) -> Step:
    """Layers of cells, each fed by the one below, and a linear output.

    LSTM: ``c⁺ = f ⊙ c + i ⊙ g``, ``h⁺ = o ⊙ tanh(c⁺)``; RNN: ``h⁺ = σ(W_i z + W_h h + b)``.
    """
    nodes: dict[str, Node] = {}
    carried: dict[str, Carried] = {}
    source = REGRESSORS
    for layer, units in enumerate(network.hidden):
        prefix, h = f"{network.kind}{layer}", f"h{layer}"
        for gate in network.cell.gates:
            W = weights[f"{prefix}.W_i{gate}"]
            bias = weights.get(f"{prefix}.b_{gate}", np.zeros(len(W)))
            nodes[f"{h}{gate}_in"] = Affine(
                ((source, W), (h, weights[f"{prefix}.W_h{gate}"])), bias
            )
        if network.kind == "lstm":
            for gate, function in zip(
                "ifgo", ("sigmoid", "sigmoid", "tanh", "sigmoid"), strict=True
            ):
                nodes[f"{h}{gate}"] = Activate(f"{h}{gate}_in", function)
            nodes[f"c{layer}_new"] = Products(((f"{h}f", f"c{layer}"), (f"{h}i", f"{h}g")))
            nodes[f"c{layer}_tanh"] = Activate(f"c{layer}_new", "tanh")
            nodes[f"{h}_new"] = Products(((f"{h}o", f"c{layer}_tanh"),))
            carried[f"c{layer}"] = Carried(np.zeros(units), f"c{layer}_new")
        else:
            nodes[f"{h}_new"] = Activate(f"{h}_in", network.activation)
        carried[h] = Carried(np.zeros(units), f"{h}_new")
        source = f"{h}_new"
    W = weights["out.W"]
    nodes["y"] = Affine(((source, W),), weights.get("out.b", np.zeros(len(W))))
    return Step(nodes, carried, "y")


@dataclass(frozen=True, eq=False)
class StateSpace:
    """``x⁺ = A x + B u + F tanh(W x + V u + b) + d``, ``y = C x + D u + c + G tanh(·)``."""

    A: Float[Array, "nx nx"]
    B: Float[Array, "nx nu"]
    C: Float[Array, "ny nx"]
    D: Float[Array, "ny nu"]
    F: Float[Array, "nx nh"]
    G: Float[Array, "ny nh"]
    W: Float[Array, "nh nx"]
    V: Float[Array, "nh nu"]
    b: Float[Array, " nh"]
    c: Float[Array, " ny"]
    d: Float[Array, " nx"]
    x0: Float[Array, " nx"]


def state_space(m: StateSpace, activation: str = "tanh") -> Step:
    """A state-space network; its regressors ``z`` are the inputs of this very sample."""
    nodes: dict[str, Node] = {
        "h": Affine((("x", m.W), (REGRESSORS, m.V)), m.b),
        "a": Activate("h", activation),
        "x_new": Affine((("x", m.A), (REGRESSORS, m.B), ("a", m.F)), m.d),
        "y": Affine((("x", m.C), (REGRESSORS, m.D), ("a", m.G)), m.c),
    }
    return Step(nodes, {"x": Carried(m.x0, "x_new")}, "y")
