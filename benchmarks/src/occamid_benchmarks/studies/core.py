"""Accuracy and speed of the core on this machine: ``python -m occamid_benchmarks.studies.core``.

Runs the hairdryer and coupled-drives rows of the paper's Table 1 (20 restarts, the best cycle of
each restart on the validation record: the paper's own way of choosing, which looks at validation
data), then times training, compilation and the curvature sweep.  Writes
``benchmarks/results/core.json``.  Needs the real records.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from occamid import Batch, train
from occamid.data.windows import Windows
from occamid.networks import Network, Params, Recurrent, init
from occamid.training.curvature import recursive
from occamid.training.cycle import squared_errors
from occamid.training.provenance import provenance
from occamid_benchmarks import RESULTS, registry
from occamid_benchmarks.experiments import experiments
from occamid_benchmarks.timing import shortest

ROWS = {
    name: experiments()[name].settings.replace(lam=experiments()[name].settings.lam[0])
    for name in ("hairdryer-mlp", "hairdryer-lstm", "coupled-drives-mlp", "coupled-drives-lstm")
}


def records(row: str) -> registry.Data:
    """Estimation and validation records of a row, split as in the paper."""
    return registry.load(row.rsplit("-", 1)[0])


def accuracy(row: str) -> dict[str, Any]:
    """Validation RMSE over the whole record of the best cycle of each restart, and sparsity."""
    estimation, validation, _ = records(row)
    result = train(estimation, ROWS[row])
    found: dict[str, Any] = {"rmse": [], "sparsity_by_cycle": by_cycle(result)}
    for record in validation:
        runs = result.free_runs(record)[0]
        errors = np.sqrt(np.mean((runs - record.y) ** 2, axis=(-2, -1)))
        best = np.nanmin(errors, axis=1)
        found["rmse"].append(
            {"mean": float(best.mean()), "std": float(best.std()), "min": float(best.min())}
        )
    found["seconds"] = dict(result.seconds)
    return found


def by_cycle(result: Batch) -> list[float]:
    return [round(float(v), 3) for v in result.table["sparsity"][0].mean(axis=0)]


def sweep_cost(lengths: tuple[int, ...] = (1000, 2000, 4000, 8000)) -> dict[str, Any]:
    """Time of the LSTM's curvature sweep, and its ratio to one gradient, for 20 models."""
    network = Recurrent("lstm", 11, (10,), 1)
    keys = jax.random.split(jax.random.key(0), 20)
    params = jax.jit(jax.vmap(lambda k: init(network, k)))(keys)
    found: dict[str, Any] = {"length": list(lengths), "gradient_s": [], "sweep_s": [], "ratio": []}
    for T in lengths:
        z = jax.random.normal(jax.random.key(1), (1, T, 11))
        data = Windows(
            z, z[..., :1], jnp.ones((1, T, 1)), jnp.zeros((1, 0, 1)), jnp.array([float(T)])
        )
        gradient, sweep = batched(network, data)
        found["gradient_s"].append(shortest(partial(gradient, params)))
        found["sweep_s"].append(shortest(partial(sweep, params)))
        found["ratio"].append(found["sweep_s"][-1] / found["gradient_s"][-1])
    return found


def batched(network: Network, data: Windows) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def energy(p: Params) -> jax.Array:
        return 0.5 * jnp.sum(squared_errors(network, p, data))

    gradient = jax.jit(jax.vmap(jax.value_and_grad(energy)))
    sweep = jax.jit(jax.vmap(lambda p: recursive(network, p, data, jnp.ones(1))))
    return gradient, sweep


COMPILE = """
import os, sys
os.environ["OCCAMID_PROGRAMS"] = sys.argv[1]
from occamid_benchmarks.studies import core
settings = core.ROWS[sys.argv[2]].replace(epochs=1)
result = core.train(core.records(sys.argv[2]).estimation, settings)
print(result.seconds["compile"])
"""


def compile_seconds(row: str) -> dict[str, float]:
    """Compile time in a fresh process with an empty cache, then with the cache filled."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", COMPILE, cache, row]
        first, second = (
            float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(2)
        )
    return {"first": first, "cached": second}


def main() -> None:
    found: dict[str, Any] = {"provenance": provenance() | {"seed": 0}}
    for row in ROWS:
        found[row] = accuracy(row)
        print(row, json.dumps(found[row]))
    estimation = records("hairdryer-mlp").estimation
    many = train(estimation, ROWS["hairdryer-mlp"].replace(restarts=100))
    found["seconds"] = {
        "100 hairdryer MLPs, 3000 epochs": many.seconds["run"],
        "20 hairdryer LSTMs, 3000 epochs": found["hairdryer-lstm"]["seconds"]["run"],
    }
    found["compile"] = {row: compile_seconds(row) for row in ROWS}
    found["sweep"] = sweep_cost()
    for part in ("seconds", "compile", "sweep"):
        print(part, json.dumps(found[part]))
    (RESULTS / "core.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
