"""How fast batches of the paper's networks train, beside a plain PyTorch loop on the same rows.

Each case is an experiment of the paper with many restarts.  Useful work is that of the matrix
products of one forward and one backward pass; its share of the machine's peak is taken against a
large product in the same precision, timed just before.
"""

from __future__ import annotations

import json
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from occamid.data.scaling import fit_scaling
from occamid.data.windows import Windows, windows
from occamid.networks import Network, is_matrix
from occamid.networks.base import reads_regressors
from occamid.training.cycle import compress
from occamid.training.provenance import provenance
from occamid.training.settings import Settings
from occamid.training.train import build_program, train
from occamid_benchmarks import registry
from occamid_benchmarks.experiments import experiment
from occamid_benchmarks.timing import product_peak, told_by

# Experiments and restarts, as many as one would try.
CASES = {
    "cascaded-tanks-mlp": 200,
    "hairdryer-mlp": 100,
    "hairdryer-lstm": 20,
    "coupled-drives-lstm": 20,
}
LOOP = Path(__file__).parent / "peers" / "torch_loop.py"  # runs where occamid is not installed
LOOP_SECONDS = 10  # that it may take


def measure(name: str, restarts: int, python: Path | None = None) -> dict[str, Any]:
    """Seconds, models × epochs a second and share of the peak; the PyTorch loop's, if asked for."""
    one = experiment(name)
    settings = one.settings.replace(restarts=restarts, lam=one.settings.lam[0])
    records = registry.load(one.record).estimation
    network, rows = seen(records, settings)
    peak = product_peak(jnp.float32)
    batch = train(records, settings)
    epochs = settings.epochs * settings.cycles
    rate = restarts * epochs / batch.seconds["run"]
    found = {
        "kind": "training",
        "experiment": name,
        "restarts": restarts,
        "epochs": epochs,
        "seed": settings.seed,
        "rows": prod(rows.z.shape[:2]),
        "compile_seconds": round(batch.seconds["compile"], 2),
        "run_seconds": round(batch.seconds["run"], 2),
        "models_epochs_per_second": round(rate, 1),
        "peak_gflops": round(peak / 1e9, 1),
        "share_of_peak": round(rate * work(network, prod(rows.z.shape[:2])) / peak, 4),
    }
    loop = torch_loop(python, rows, settings) if python else None
    return found | {"torch": loop} | provenance()


def seen(records: Any, settings: Settings) -> tuple[Network, Windows]:
    """The network of an experiment and the rows that an epoch goes through."""
    scaling = fit_scaling(records, settings.scaling)
    scaled = [scaling.apply(r) for r in records]
    program = build_program(settings, scaled[0])
    whole = windows(scaled, program.terms, program.terms.max_lag)
    return program.network, compress(program.network, whole)


def work(network: Network, rows: int) -> float:
    """Floating-point operations of the matrix products of one epoch of one model.

    Forward, the gradient of the weights, and that of the inputs of every layer but the first.
    """
    each = {n: prod(s.shape) for n, s in network.specs().items() if is_matrix(n)}
    first = sum(size for name, size in each.items() if reads_regressors(name))
    return 2.0 * rows * (3 * sum(each.values()) - first)


def torch_loop(python: Path, rows: Windows, settings: Settings) -> dict[str, Any]:
    """The same network, rows and penalty in a plain PyTorch loop, one model after the other."""
    shape = {
        "network": settings.network,
        "hidden": list(settings.hidden),
        "activation": settings.activation,
        "bias": settings.bias,
        "lam": settings.lam[0],
        "learning_rate": settings.learning_rate,
        "seconds": LOOP_SECONDS,
    }
    with tempfile.TemporaryDirectory(prefix="occamid-torch-") as folder:
        data = Path(folder) / "rows.npz"
        np.savez(data, z=np.asarray(rows.z), y=np.asarray(rows.y), valid=np.asarray(rows.valid))
        command = [str(python), str(LOOP), str(data), json.dumps(shape)]
        return told_by(command, f"the PyTorch loop with {python}")
