"""A plain GRU with a linear output: Adam on windows, stopped on the held-back ends in free run.

In JAX, which jax-sysid brings: PyTorch's default build is of several GB.  Its input is u(t), and
while outputs are known y(t-1) with a one beside it; afterwards both are zero.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from occamid_benchmarks.peers.exchange import Array, Signals
from occamid_benchmarks.peers.task import FreeRun, Task

UNITS, SEEDS = 64, 2
WINDOW, BATCH = 200, 16  # rows after the known ones; windows in a gradient
STEPS, EVERY, PATIENCE = 3_000, 100, 10  # gradients; between two looks; looks without gain
RATE = 3e-3  # of Adam, falling to a tenth

Params = dict[str, jax.Array]


class Found(NamedTuple):
    """The weights at the look with the smallest held-back error."""

    score: float
    params: Params
    steps: int


def identify(task: Task) -> tuple[FreeRun, str]:
    """The best of a few seeds."""
    found = []
    for k in range(SEEDS):
        share = task.left / (SEEDS - k)
        own = task._replace(deadline=task.deadline - task.left + share, seed=task.seed + k)
        found.append(_train(own))
    best = min(found, key=lambda f: f.score)
    if not np.isfinite(best.score):
        raise FloatingPointError("training diverged.")
    told = f"{UNITS} units, {best.steps} gradients, best of {SEEDS} seeds"
    return partial(_run, best.params), told


def _train(task: Task) -> Found:
    record = task.whole[0]
    params = _start(record.u.shape[1], record.y.shape[1], task.seed)
    rates = optax.exponential_decay(RATE, STEPS, 0.1)
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rates))
    state, rng = rule.init(params), np.random.default_rng(task.seed)

    @jax.jit
    def step(
        params: Params, state: optax.OptState, u: jax.Array, y: jax.Array
    ) -> tuple[Params, optax.OptState]:
        gradient = jax.grad(_loss)(params, u, y, task.n_init)
        updates, state = rule.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    best = Found(float("inf"), params, 0)
    for count in range(1, STEPS + 1):
        params, state = step(params, state, *_windows(task, rng))
        if count % EVERY == 0 or task.left < 0:
            score = task.score(partial(_run, params))
            best = min(best, Found(score, params, count), key=lambda f: f.score)
            if task.left < 0 or count - best.steps >= PATIENCE * EVERY:
                break
    return best


def _start(inputs: int, outputs: int, seed: int) -> Params:
    keys = jax.random.split(jax.random.PRNGKey(seed), 3)
    width, spread = inputs + outputs + 1, UNITS**-0.5
    return {
        "in": spread * jax.random.normal(keys[0], (width, 3 * UNITS)),
        "back": spread * jax.random.normal(keys[1], (UNITS, 3 * UNITS)),
        "bias": jnp.zeros(3 * UNITS),
        "out": spread * jax.random.normal(keys[2], (UNITS, outputs)),
        "offset": jnp.zeros(outputs),
    }


def _simulate(params: Params, u: jax.Array, y_init: jax.Array) -> jax.Array:
    """Outputs of one record from its first row on."""
    known = len(y_init)
    past = jnp.zeros((len(u), y_init.shape[1])).at[1 : known + 1].set(y_init[: len(u) - 1])
    flag = jnp.zeros((len(u), 1)).at[1 : known + 1].set(1.0)
    driven = jnp.hstack((u, past, flag)) @ params["in"] + params["bias"]

    def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        back = h @ params["back"]
        reset, keep = jnp.split(jax.nn.sigmoid(x[: 2 * UNITS] + back[: 2 * UNITS]), 2)
        new = jnp.tanh(x[2 * UNITS :] + reset * back[2 * UNITS :])
        h = keep * h + (1 - keep) * new
        return h, h

    _, states = jax.lax.scan(cell, jnp.zeros(UNITS), driven)
    return states @ params["out"] + params["offset"]


def _loss(params: Params, u: jax.Array, y: jax.Array, n_init: int) -> jax.Array:
    y_hat = jax.vmap(_simulate, (None, 0, 0))(params, u, y[:, :n_init])
    return jnp.mean((y_hat - y)[:, n_init:] ** 2)


_jitted = jax.jit(_simulate)


def _run(params: Params, u: Array, y_init: Array) -> Array:
    return np.asarray(_jitted(params, jnp.asarray(u), jnp.asarray(y_init)), float)


def _windows(task: Task, rng: np.random.Generator) -> tuple[Array, Array]:
    """Pieces of the training rows, from anywhere; longer records give more of them."""
    records: tuple[Signals, ...] = task.train
    length = min(task.n_init + WINDOW, *(len(r.u) for r in records))
    starts = np.array([len(r.u) - length + 1 for r in records])
    chosen = rng.choice(len(records), BATCH, p=starts / starts.sum())
    firsts = rng.integers(starts[chosen])
    pieces = [
        (records[k].u[f : f + length], records[k].y[f : f + length])
        for k, f in zip(chosen, firsts, strict=True)
    ]
    u, y = (np.stack(signals) for signals in zip(*pieces, strict=True))
    return u, y
