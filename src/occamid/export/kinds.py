"""The networks as programs: perceptron, recurrent stack, state space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occamid.errors import SettingsError
from occamid.export.program import REGRESSORS, Activate, Affine, Carried, Node, Products, Step
from occamid.networks import MLP, Network, Observer, Recurrent
from occamid.networks.observer import Filter

Array = np.ndarray
SETTLED = 2000  # steps after which a filter's gain counts as constant
Weights = Mapping[str, Array]


def step_of(network: Network, weights: Weights, centre: Float[Array, " ny"]) -> Step:
    """One time step of a network as a program; ``centre`` is its mean output."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in weights.items()}
    if isinstance(network, MLP):
        return perceptron(network, arrays)
    if isinstance(network, Recurrent):
        return recurrent(network, arrays)
    if isinstance(network, Observer):
        return observer(network, arrays, centre)
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


def state_space(m: StateSpace, activation: str = "tanh", source: str = "x") -> Step:
    """A state-space network; its regressors ``z`` are the inputs of this very sample."""
    nodes: dict[str, Node] = {
        "h": Affine(((source, m.W), (REGRESSORS, m.V)), m.b),
        "a": Activate("h", activation),
        "x_new": Affine(((source, m.A), (REGRESSORS, m.B), ("a", m.F)), m.d),
        "y": Affine(((source, m.C), (REGRESSORS, m.D), ("a", m.G)), m.c),
    }
    return Step(nodes, {"x": Carried(m.x0, "x_new")}, "y")


def observer(network: Observer, weights: Weights, centre: Float[Array, " ny"]) -> Step:
    """A state-space network that follows measured outputs, with the constant gain of its filter.

    The last miss corrects the state, ``x + K (y(t−1) − ŷ(t−1))``; K is where the gain settles
    around the mean state.  Fed its own outputs it runs free, as it does here.
    """
    nx, ny, nu = network.hidden[0], network.n_out, network.n_in - network.n_out
    K = settled_gain(network, weights)

    def padded(W: Array) -> Array:
        return np.concatenate([W, np.zeros((len(W), ny))], axis=1)

    inner = state_space(
        StateSpace(
            A=weights["state.W_x"],
            B=padded(weights["state.W_u"]),
            C=weights["out.W_x"],
            D=padded(weights["out.W_u"]),
            F=weights["state.W_h"],
            G=weights["out.W_h"],
            W=weights["unit.W_x"],
            V=padded(weights["unit.W_u"]),
            b=weights.get("unit.b", np.zeros(network.hidden[1])),
            c=weights.get("out.b", np.zeros(ny)),
            d=weights.get("state.b", np.zeros(nx)),
            x0=weights["filter.x"],
        ),
        network.activation,
        source="seen",
    )
    read = np.concatenate([np.zeros((nx, nu)), K], axis=1)
    seen = Affine((("x", np.eye(nx)), (REGRESSORS, read), ("last", -K)), np.zeros(nx))
    carried = dict(inner.carried) | {"last": Carried(centre, "y")}
    return Step({"seen": seen} | dict(inner.nodes), carried, "y")


def settled_gain(network: Observer, weights: Weights) -> Float[Array, "nx ny"]:
    """The filter's gain after many steps at the mean state under mean inputs."""
    with jax.enable_x64(True):
        params = {name: jnp.asarray(value) for name, value in weights.items()}
        at, P = params["filter.x"], params["filter.P"]
        u = jnp.zeros(network.n_in - network.n_out)

        def step(_: int, now: Filter) -> Filter:
            return network.filtered(params, at, u, now.P)

        zero = Filter(jnp.zeros((network.hidden[0], network.n_out)), P)
        return np.asarray(jax.lax.fori_loop(0, SETTLED, step, zero).K)
