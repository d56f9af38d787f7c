"""How far the recursive rule of the curvature is from the exact diagonal.

``python -m occamid_benchmarks.studies.curvature``.  For nets of growing depth and sequences of
growing length, random data and weights: the correlation of the recursive diagonal with the exact
one over all weights of the matrices below the last layer, and the median of their ratio.  Prints
the table of docs/method.md and writes ``benchmarks/results/curvature.json``.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

from occamid.data.windows import Windows
from occamid.networks import MLP, Network, Recurrent, init, is_matrix
from occamid.training.curvature import CURVATURES
from occamid.training.provenance import provenance
from occamid_benchmarks import RESULTS

CASES: dict[str, tuple[Network, int]] = {
    **{
        f"tanh MLP, {depth} hidden layer{'s' if depth > 1 else ''}": (
            MLP(10, (10,) * depth, 1, "tanh"),
            200,
        )
        for depth in (1, 2, 3, 4)
    },
    "relu MLP, 3 hidden layers": (MLP(10, (10,) * 3, 1, "relu"), 200),
    **{f"RNN, T = {T}": (Recurrent("rnn", 5, (6,), 1), T) for T in (1, 10, 100)},
    **{f"LSTM, T = {T}": (Recurrent("lstm", 5, (6,), 1), T) for T in (1, 10, 100, 500)},
}
SEEDS = 5


def compare(network: Network, T: int, seed: int) -> tuple[float, float]:
    """Correlation with, and median ratio to, the exact diagonal below the last layer."""
    rng = np.random.default_rng(seed)
    data = Windows(
        jnp.asarray(rng.normal(size=(1, T, network.n_in))),
        jnp.asarray(0.5 * rng.normal(size=(1, T, 1))),
        jnp.ones((1, T, 1)),
        jnp.zeros((1, 0, 1)),
        jnp.array([float(T)]),
    )
    params = jax.jit(lambda: init(network, jax.random.key(seed)))()
    last = "out.W" if isinstance(network, Recurrent) else f"layer{len(network.hidden)}.W"
    names = [n for n in params if is_matrix(n) and n != last]
    found = {}
    for method in ("recursive", "exact"):
        run = jax.jit(lambda p, m=method: CURVATURES[m](network, p, data, jnp.ones(1)))
        diagonal = run(params)
        found[method] = np.concatenate([np.ravel(diagonal[n]) for n in names])
    large = np.abs(found["exact"]) > 1e-3 * np.max(np.abs(found["exact"]))
    ratio = np.median(found["recursive"][large] / found["exact"][large])
    return float(np.corrcoef(found["recursive"], found["exact"])[0, 1]), float(ratio)


def main() -> None:
    with jax.enable_x64(True):
        found = {
            name: np.mean([compare(network, T, s) for s in range(SEEDS)], axis=0).tolist()
            for name, (network, T) in CASES.items()
        }
    print("| net | correlation | ratio |\n|---|---|---|")
    for name, (correlation, ratio) in found.items():
        print(f"| {name} | {correlation:.3f} | {ratio:.2f} |")
    results = {"provenance": provenance() | {"seeds": SEEDS}, "correlation, ratio": found}
    (RESULTS / "curvature.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
