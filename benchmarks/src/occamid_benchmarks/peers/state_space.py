"""jax-sysid: x⁺ = A x + B u + f(x, u), y = C x + D u + g(x, u), with f and g of one hidden layer.

Trained in free run by L-BFGS as its documentation does, from the linear model of the same order,
which is a candidate too; the initial state of a test, and of what is held back, comes from its
smoother on the first outputs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax_sysid.models import LinearModel, Model

from occamid_benchmarks.peers.exchange import Array, Signals
from occamid_benchmarks.peers.task import FreeRun, Task

ORDERS, SEEDS, UNITS = (2, 4, 8), 2, 8
EPOCHS = 1_000  # at most, of each fit
PENALTY = 1e-4  # on weights and initial states, as in its examples


class Trial(NamedTuple):
    """A fitted model and its free-run error on what was held back."""

    score: float
    about: str
    model: Any


def identify(task: Task) -> tuple[FreeRun, str]:
    """Order and restart with the smallest held-back error, trained on over all rows."""
    budget, trials = task.left, list[Trial]()
    fits = len(ORDERS) * (SEEDS + 1) + 1
    epochs = int(np.clip(0.7 * budget / (fits * _seconds_per_epoch(task)), 50, EPOCHS))
    for order, restart in product(ORDERS, range(SEEDS)):
        if trials and task.left < 0.2 * budget:
            break
        if restart == 0:
            linear = _linear(task, order, epochs)
            trials.append(Trial(task.score(_free_run(linear)), f"order {order}, linear", linear))
        model = _nonlinear(order, task.whole[0])
        model.init(params=_start(linear, 97 * task.seed + restart))
        _fit(model, task.train, epochs)
        about = f"order {order}, {UNITS} units each"
        trials.append(Trial(task.score(_free_run(model)), about, model))
    best = min(trials, key=lambda trial: trial.score)
    _fit(best.model, task.whole, epochs)
    told = f"{best.about}, best of {len(trials)} fits, at most {epochs} epochs"
    return _free_run(best.model), told


def _seconds_per_epoch(task: Task) -> float:
    """Of the largest model; the difference of two short fits, each of which compiles."""
    order = max(ORDERS)
    linear = LinearModel(order, *_widths(task.whole[0]), feedthrough=True)
    linear.init(seed=task.seed)
    seconds = []
    for epochs in (5, 25):
        model = _nonlinear(order, task.whole[0])
        model.init(params=_start(linear, task.seed))
        began = time.process_time()
        _fit(model, task.train, epochs)
        seconds.append(time.process_time() - began)
    return max(seconds[1] - seconds[0], 1e-3) / 20


def _widths(record: Signals) -> tuple[int, int]:
    return record.y.shape[1], record.u.shape[1]


def _linear(task: Task, order: int, epochs: int) -> Any:
    model = LinearModel(order, *_widths(task.whole[0]), feedthrough=True)
    model.init(seed=task.seed)
    _fit(model, task.train, epochs)
    return model


def _nonlinear(order: int, record: Signals) -> Any:
    def state(x: jax.Array, u: jax.Array, params: Sequence[jax.Array]) -> jax.Array:
        A, B, _, _, W1, b1, W2, *_ = params
        return A @ x + B @ u + W2 @ jnp.tanh(W1 @ jnp.hstack((x, u)) + b1)

    def output(x: jax.Array, u: jax.Array, params: Sequence[jax.Array]) -> jax.Array:
        _, _, C, D, _, _, _, V1, c1, V2, c2 = params
        return C @ x + D @ u + V2 @ jnp.tanh(V1 @ jnp.hstack((x, u)) + c1) + c2

    return Model(order, *_widths(record), state_fcn=state, output_fcn=output)


def _start(linear: Any, seed: int) -> list[Array]:
    """The linear model and networks that add little yet."""
    A, B, C, D = (np.asarray(p) for p in linear.params)
    rng = np.random.default_rng(seed)
    width = len(A) + B.shape[1]
    layers = [
        part
        for rows in (len(A), len(C))
        for part in (
            rng.normal(size=(UNITS, width)) / np.sqrt(width),
            rng.normal(size=UNITS),
            0.01 * rng.normal(size=(rows, UNITS)),
        )
    ]
    return [A, B, C, D, *layers, np.zeros(len(C))]


def _fit(model: Any, records: Sequence[Signals], epochs: int) -> None:
    model.loss(rho_x0=PENALTY, rho_th=PENALTY)
    model.optimization(adam_epochs=0, lbfgs_epochs=epochs, iprint=-1)
    model.fit([r.y for r in records], [r.u for r in records])


def _free_run(model: Any) -> FreeRun:
    def run(u: Array, y_init: Array) -> Array:
        known = len(y_init)
        x0 = model.learn_x0(
            u[:known], y_init, RTS_epochs=10, verbosity=False, LBFGS_refinement=True
        )
        return np.asarray(model.predict(jnp.asarray(x0), u)[0])

    return run
