"""Slow, plain implementations to hold the fast ones against: NumPy loops and dense autodiff."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from occamid.data.windows import Windows
from occamid.networks import Network
from occamid.networks.simulate import one_step

Array = np.ndarray
Tree = dict[str, Any]


@partial(jax.jit, static_argnums=0)
def dense_hessian_diagonal(network: Network, params: Tree, data: Windows) -> Tree:
    """Diagonal of the full Hessian matrix of ½ Σ r² by automatic differentiation."""
    flat, unravel = ravel_pytree(params)

    def energy(vector: jax.Array) -> jax.Array:
        p = unravel(vector)
        y = jax.vmap(lambda z: one_step(network, p, z))(data.z)
        return 0.5 * jnp.sum(data.valid * (y - data.y) ** 2)

    return unravel(jnp.diag(jax.jit(jax.hessian(energy))(flat)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def bend(activation: str, x: Array) -> tuple[Array, Array, Array]:
    """An activation and its first two derivatives, in closed form."""
    one, s, t = np.ones_like(x), sigmoid(x), np.tanh(x)
    s1 = s * (1 - s)
    s2 = s1 * (1 - 2 * s)
    up, grown = 1.0 * (x > 0), np.exp(np.minimum(x, 0))
    cubic, k = 0.044715, np.sqrt(2 / np.pi)  # the usual approximation of gelu
    q = np.tanh(k * (x + cubic * x**3))
    inner = k * (1 + 3 * cubic * x**2)
    q1 = (1 - q**2) * inner
    q2 = (1 - q**2) * 6 * k * cubic * x - 2 * q * q1 * inner
    return {
        "identity": (x, one, 0 * one),
        "relu": (x * up, up, 0 * one),
        "tanh": (t, 1 - t**2, -2 * t * (1 - t**2)),
        "sigmoid": (s, s1, s2),
        "silu": (x * s, s + x * s1, 2 * s1 + x * s2),
        "softplus": (np.log1p(np.exp(x)), s, s1),
        "elu": (np.where(x > 0, x, grown - 1), np.where(x > 0, 1, grown), (1 - up) * grown),
        "gelu": (0.5 * x * (1 + q), 0.5 * (1 + q) + 0.5 * x * q1, q1 + 0.5 * x * q2),
    }[activation]


def _depth(p: Tree, kind: str) -> int:
    """How many layers of a kind the parameters have."""
    return len({name.split(".")[0] for name in p if name.startswith(kind)})


# --- perceptrons --------------------------------------------------------------------------------


def mlp_output(p: Tree, z: Array, activation: str) -> Array:
    """One row through a perceptron of any depth, with or without a direct path."""
    a, last = z, _depth(p, "layer") - 1
    for layer in range(last + 1):
        a = p[f"layer{layer}.W"] @ a + p.get(f"layer{layer}.b", 0.0)
        a = a if layer == last else bend(activation, a)[0]
    return a + p["skip.W"] @ z if "skip.W" in p else a


def mlp_curvature(p: Tree, z: Array, y: Array, activation: str, weight: Array) -> Tree:
    """Lemma 1 as it is written, sample by sample and layer by layer."""
    total = {name: np.zeros_like(value) for name, value in p.items()}
    last = _depth(p, "layer") - 1
    for z_t, y_t in zip(z, y, strict=True):
        inputs, pre = [z_t], []
        for layer in range(last + 1):
            pre.append(p[f"layer{layer}.W"] @ inputs[-1] + p.get(f"layer{layer}.b", 0.0))
            inputs.append(bend(activation, pre[-1])[0])
        g, h = weight * (mlp_output(p, z_t, activation) - y_t), weight * np.ones_like(y_t)
        if "skip.W" in p:
            total["skip.W"] += np.outer(h, z_t**2)
        for layer in range(last, -1, -1):
            W = p[f"layer{layer}.W"]
            total[f"layer{layer}.W"] += np.outer(h, inputs[layer] ** 2)
            if f"layer{layer}.b" in p:
                total[f"layer{layer}.b"] += h
            if layer:
                _, first, second = bend(activation, pre[layer - 1])
                g_a = W.T @ g
                g, h = first * g_a, first**2 * ((W**2).T @ h) + second * g_a
    return total


# --- recurrent networks -------------------------------------------------------------------------


def rnn_step(p: Tree, state: list[Array], z: Array, activation: str) -> tuple[list[Array], Array]:
    """One step of stacked recurrent layers."""
    new = []
    for layer, h in enumerate(state):
        name = f"rnn{layer}"
        a = p[f"{name}.W_i"] @ z + p[f"{name}.W_h"] @ h + p.get(f"{name}.b_", 0.0)
        z = bend(activation, a)[0]
        new.append(z)
    return new, p["out.W"] @ z + p.get("out.b", 0.0)


def lstm_step(p: Tree, state: list[Tree], z: Array) -> tuple[list[Tree], Array]:
    """One step of stacked LSTM layers; a state is all that a layer computed."""
    new = []
    for layer, before in enumerate(state):
        name = f"lstm{layer}"
        a = {
            gate: p[f"{name}.W_i{gate}"] @ z
            + p[f"{name}.W_h{gate}"] @ before["h"]
            + p.get(f"{name}.b_{gate}", 0.0)
            for gate in "ifgo"
        }
        now = {"z": z, "h_prev": before["h"], "c_prev": before["c"]}
        now |= {gate: np.tanh(a[gate]) if gate == "g" else sigmoid(a[gate]) for gate in "ifgo"}
        now["c"] = now["f"] * before["c"] + now["i"] * now["g"]
        now["h"] = now["o"] * np.tanh(now["c"])
        new.append(now)
        z = now["h"]
    return new, p["out.W"] @ z + p.get("out.b", 0.0)


def at_rest(p: Tree, kind: str) -> list[Any]:
    """The zero state of every layer."""
    zeros = [np.zeros(p[name].shape[0]) for name in p if f"{kind}" in name and "W_h" in name]
    if kind == "rnn":
        return zeros
    return [{"h": h, "c": h} for h in zeros[::4]]  # four gates share a state


def step_of(network: Any, p: Tree) -> tuple[Callable[[Any, Array], tuple[Any, Array]], Any]:
    """A network as one NumPy step, and its state at rest, for :func:`free_run`."""
    kind = getattr(network, "kind", "mlp")
    if kind == "mlp":
        return lambda state, z: (state, mlp_output(p, z, network.activation)), None
    if kind == "rnn":
        return lambda state, z: rnn_step(p, state, z, network.activation), at_rest(p, kind)
    return lambda state, z: lstm_step(p, state, z), at_rest(p, kind)


def along(network: Any, p: Tree, z: Array) -> Array:
    """Outputs along a sequence of regressors, from rest."""
    step, state = step_of(network, p)
    found = []
    for z_t in z:
        state, y = step(state, z_t)
        found.append(y)
    return np.stack(found)


def rnn_curvature(p: Tree, z: Array, y: Array, tau: int | None) -> Tree:
    """Lemma 2 as it is written, tanh: in every layer a double loop over t and j ≤ t."""
    total = {name: np.zeros_like(value) for name, value in p.items()}
    x, layers = z, []  # of each layer: inputs, pre-activations, states with the zero state first
    for layer in range(_depth(p, "rnn")):
        name = f"rnn{layer}"
        h, pre = [np.zeros(len(p[f"{name}.W_h"]))], []
        for x_t in x:
            pre.append(p[f"{name}.W_i"] @ x_t + p[f"{name}.W_h"] @ h[-1] + p.get(f"{name}.b_", 0.0))
            h.append(np.tanh(pre[-1]))
        layers.append((x, pre, h))
        x = np.stack(h[1:])
    fresh_g, fresh_h = _output_layer(p, x, y, total)
    for layer, (inputs, pre, h) in reversed(list(enumerate(layers))):
        name = f"rnn{layer}"
        below_g, below_h = np.zeros_like(inputs), np.zeros_like(inputs)
        for t in range(len(z)):
            g_h, h_h = fresh_g[t], fresh_h[t]
            for j in range(t, _oldest(t, tau) - 1, -1):
                _, first, second = bend("tanh", pre[j])
                g_a, h_a = first * g_h, first**2 * h_h + second * g_h
                total[f"{name}.W_i"] += np.outer(h_a, inputs[j] ** 2)
                total[f"{name}.W_h"] += np.outer(h_a, h[j] ** 2)
                if f"{name}.b_" in p:
                    total[f"{name}.b_"] += h_a
                below_g[j] += p[f"{name}.W_i"].T @ g_a
                below_h[j] += (p[f"{name}.W_i"] ** 2).T @ h_a
                g_h, h_h = p[f"{name}.W_h"].T @ g_a, (p[f"{name}.W_h"] ** 2).T @ h_a
        fresh_g, fresh_h = below_g, below_h
    return total


def lstm_curvature(p: Tree, z: Array, y: Array, tau: int | None) -> Tree:
    """The LSTM rule: in every layer a double loop over t and j ≤ t, each t on its own."""
    total = {name: np.zeros_like(value) for name, value in p.items()}
    state, steps = at_rest(p, "lstm"), []
    for z_t in z:
        state, _ = lstm_step(p, state, z_t)
        steps.append(state)
    fresh_g, fresh_h = _output_layer(p, np.stack([s[-1]["h"] for s in steps]), y, total)
    for layer in reversed(range(_depth(p, "lstm"))):
        name, own = f"lstm{layer}", [s[layer] for s in steps]
        below_g = np.zeros((len(z), len(own[0]["z"])))
        below_h = np.zeros_like(below_g)
        for t in range(len(z)):
            g_h, h_h = fresh_g[t], fresh_h[t]
            g_c, h_c = np.zeros_like(g_h), np.zeros_like(h_h)
            for j in range(t, _oldest(t, tau) - 1, -1):
                s = own[j]
                g_a, h_a, g_c, h_c = _lstm_back(s, g_h, h_h, g_c, h_c)
                g_h, h_h = np.zeros_like(g_h), np.zeros_like(h_h)
                for k in "ifgo":
                    W_i, W_h = p[f"{name}.W_i{k}"], p[f"{name}.W_h{k}"]
                    total[f"{name}.W_i{k}"] += np.outer(h_a[k], s["z"] ** 2)
                    total[f"{name}.W_h{k}"] += np.outer(h_a[k], s["h_prev"] ** 2)
                    if f"{name}.b_{k}" in p:
                        total[f"{name}.b_{k}"] += h_a[k]
                    below_g[j] += W_i.T @ g_a[k]
                    below_h[j] += (W_i**2).T @ h_a[k]
                    g_h, h_h = g_h + W_h.T @ g_a[k], h_h + (W_h**2).T @ h_a[k]
        fresh_g, fresh_h = below_g, below_h
    return total


def _lstm_back(
    s: Tree, g_h: Array, h_h: Array, g_c: Array, h_c: Array
) -> tuple[Tree, Tree, Array, Array]:
    """From the state of a step to its gates and to the cell before it."""
    tanh_c = np.tanh(s["c"])
    d = {k: s[k] * (1 - s[k]) for k in "ifo"} | {"g": 1 - s["g"] ** 2}
    dd = {k: d[k] * (1 - 2 * s[k]) for k in "ifo"} | {"g": -2 * s["g"] * d["g"]}
    t1 = 1 - tanh_c**2
    h_c = h_c + h_h * (s["o"] * t1) ** 2 + g_h * s["o"] * (-2 * tanh_c * t1)
    g_c = g_c + g_h * s["o"] * t1
    partner = {"i": s["g"], "f": s["c_prev"], "g": s["i"]}
    h_a = {k: h_c * (partner[k] * d[k]) ** 2 + g_c * partner[k] * dd[k] for k in "ifg"}
    g_a = {k: g_c * partner[k] * d[k] for k in "ifg"}
    h_a["o"] = h_h * (tanh_c * d["o"]) ** 2 + g_h * tanh_c * dd["o"]
    g_a["o"] = g_h * tanh_c * d["o"]
    return g_a, h_a, g_c * s["f"], h_c * s["f"] ** 2


def _output_layer(p: Tree, x: Array, y: Array, total: Tree) -> tuple[Array, Array]:
    """The linear output: its own curvature, and both orders at the last hidden states."""
    miss = x @ p["out.W"].T + p.get("out.b", 0.0) - y
    for x_t in x:
        total["out.W"] += np.outer(np.ones(y.shape[1]), x_t**2)
        if "out.b" in p:
            total["out.b"] += 1.0
    return miss @ p["out.W"], np.ones_like(miss) @ p["out.W"] ** 2


def _oldest(t: int, tau: int | None) -> int:
    return 0 if tau is None else max(0, t - tau + 1)


def free_run(
    step: Callable[[Any, Array], tuple[Any, Array]],
    state: Any,
    u: Array,
    y_known: Array,
    terms: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]],
    start: int,
) -> Array:
    """A free run written as a Python loop; ``step(state, z)`` is one step of the network."""
    inputs, outputs = terms
    y = np.concatenate([y_known, np.zeros((len(u) - len(y_known), y_known.shape[1]))])
    for t in range(start, len(u)):
        z = np.array([u[t - lag, c] for c, lag in inputs] + [y[t - lag, c] for c, lag in outputs])
        state, predicted = step(state, z)
        if t >= len(y_known):
            y[t] = predicted
    return y


def state_space_forward(p: Tree, z: Array) -> tuple[list[Array], list[Array], Array]:
    """States (the zero state first), unit values and outputs of a state-space network."""
    x, units, y = [np.zeros(p["state.W_x"].shape[0])], [], []
    for z_t in z:
        h = np.tanh(p["unit.W_x"] @ x[-1] + p["unit.W_u"] @ z_t + p.get("unit.b", 0.0))
        both = [
            p[f"{part}.W_x"] @ x[-1]
            + p[f"{part}.W_u"] @ z_t
            + p[f"{part}.W_h"] @ h
            + p.get(f"{part}.b", 0.0)
            for part in ("state", "out")
        ]
        units.append(h)
        x.append(both[0])
        y.append(both[1])
    return x, units, np.stack(y)


def state_space_curvature(p: Tree, z: Array, y: Array) -> Tree:
    """Lemma 2 with a linear path: a double loop over t and j ≤ t, each loss on its own."""
    x, units, predicted = state_space_forward(p, z)
    total = {name: np.zeros_like(value) for name, value in p.items()}

    def add(part: str, into: Array, j: int) -> None:
        sources = {"x": x[j], "u": z[j], "h": units[j]}
        for name in total:
            if name.startswith(f"{part}.W"):
                total[name] += np.outer(into, sources[name[-1]] ** 2)
        if f"{part}.b" in total:
            total[f"{part}.b"] += into

    for t in range(len(z)):
        g_y, h_y = predicted[t] - y[t], np.ones_like(y[t])
        g_next, h_next = np.zeros_like(x[0]), np.zeros_like(x[0])
        add("out", h_y, t)
        for j in range(t, -1, -1):
            if j < t:
                g_y, h_y = np.zeros_like(g_y), np.zeros_like(h_y)
                add("state", h_next, j)
            first = 1 - units[j] ** 2
            g_h = p["out.W_h"].T @ g_y + p["state.W_h"].T @ g_next
            h_h = (p["out.W_h"] ** 2).T @ h_y + (p["state.W_h"] ** 2).T @ h_next
            g_a, h_a = first * g_h, first**2 * h_h - 2 * units[j] * first * g_h
            add("unit", h_a, j)
            g_next, h_next = (
                p["out.W_x"].T @ g_y + p["state.W_x"].T @ g_next + p["unit.W_x"].T @ g_a,
                (p["out.W_x"] ** 2).T @ h_y
                + (p["state.W_x"] ** 2).T @ h_next
                + (p["unit.W_x"] ** 2).T @ h_a,
            )
    return total
