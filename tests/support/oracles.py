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

    return unravel(jnp.diag(jax.hessian(energy)(flat)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rnn_forward(p: Tree, z: Array) -> tuple[list[Array], list[Array], Array]:
    """Hidden states (the zero state first), pre-activations and outputs of a tanh RNN."""
    h, pre = [np.zeros(p["rnn0.W_h"].shape[0])], []
    for z_t in z:
        pre.append(p["rnn0.W_i"] @ z_t + p["rnn0.W_h"] @ h[-1] + p.get("rnn0.b_", 0.0))
        h.append(np.tanh(pre[-1]))
    y = np.stack([p["out.W"] @ h_t + p.get("out.b", 0.0) for h_t in h[1:]])
    return h, pre, y


def rnn_curvature(p: Tree, z: Array, y: Array, tau: int | None) -> Tree:
    """Lemma 2 as it is written: a double loop over t and j ≤ t."""
    h, pre, predicted = rnn_forward(p, z)
    total = {name: np.zeros_like(value) for name, value in p.items()}
    for t in range(len(z)):
        g_y, h_y = predicted[t] - y[t], np.ones_like(y[t])
        total["out.W"] += np.outer(h_y, h[t + 1] ** 2)
        g_h, h_h = p["out.W"].T @ g_y, (p["out.W"] ** 2).T @ h_y
        oldest = 0 if tau is None else max(0, t - tau + 1)
        for j in range(t, oldest - 1, -1):
            first = 1 - np.tanh(pre[j]) ** 2
            second = -2 * np.tanh(pre[j]) * first
            g_a, h_a = first * g_h, first**2 * h_h + second * g_h
            total["rnn0.W_i"] += np.outer(h_a, z[j] ** 2)
            total["rnn0.W_h"] += np.outer(h_a, h[j] ** 2)
            g_h, h_h = p["rnn0.W_h"].T @ g_a, (p["rnn0.W_h"] ** 2).T @ h_a
    return total


def lstm_forward(p: Tree, z: Array) -> tuple[list[Tree], Array]:
    """Gates and states at every step, and the outputs, of one LSTM layer."""
    units = p["lstm0.W_hi"].shape[0]
    h, c = np.zeros(units), np.zeros(units)
    steps = []
    for z_t in z:
        a = {
            gate: p[f"lstm0.W_i{gate}"] @ z_t
            + p[f"lstm0.W_h{gate}"] @ h
            + p.get(f"lstm0.b_{gate}", 0.0)
            for gate in "ifgo"
        }
        step = {"z": z_t, "h_prev": h, "c_prev": c}
        step |= {gate: np.tanh(a[gate]) if gate == "g" else sigmoid(a[gate]) for gate in "ifgo"}
        c = step["f"] * c + step["i"] * step["g"]
        h = step["o"] * np.tanh(c)
        step |= {"c": c, "h": h}
        steps.append(step)
    y = np.stack([p["out.W"] @ s["h"] + p.get("out.b", 0.0) for s in steps])
    return steps, y


def lstm_curvature(p: Tree, z: Array, y: Array, tau: int | None) -> Tree:
    """The LSTM rule as a double loop over t and j ≤ t, each loss propagated on its own."""
    steps, predicted = lstm_forward(p, z)
    total = {name: np.zeros_like(value) for name, value in p.items()}
    for t in range(len(z)):
        g_y, h_y = predicted[t] - y[t], np.ones_like(y[t])
        total["out.W"] += np.outer(h_y, steps[t]["h"] ** 2)
        g_h, h_h = p["out.W"].T @ g_y, (p["out.W"] ** 2).T @ h_y
        g_c, h_c = np.zeros_like(g_h), np.zeros_like(h_h)
        oldest = 0 if tau is None else max(0, t - tau + 1)
        for j in range(t, oldest - 1, -1):
            s = steps[j]
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
            g_h, h_h = np.zeros_like(g_h), np.zeros_like(h_h)
            for k in "ifgo":
                total[f"lstm0.W_i{k}"] += np.outer(h_a[k], s["z"] ** 2)
                total[f"lstm0.W_h{k}"] += np.outer(h_a[k], s["h_prev"] ** 2)
                g_h = g_h + p[f"lstm0.W_h{k}"].T @ g_a[k]
                h_h = h_h + (p[f"lstm0.W_h{k}"] ** 2).T @ h_a[k]
            g_c, h_c = g_c * s["f"], h_c * s["f"] ** 2
    return total


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
