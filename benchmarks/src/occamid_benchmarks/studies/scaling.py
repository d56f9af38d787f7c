"""What one iteration of a state-space fit costs: ``python -m occamid_benchmarks.studies.scaling``.

An iteration is one expansion (trajectory, gradient, ``JᵀJ``) and one trial step, of weights that
run stably on random data.  Rows, restarts and units grow one at a time; the exponent is the slope
of log seconds over log size.  The share of the peak is that of the products in ``JᵀJ`` (two
operations for every pair of weights, output and row that is used) against a large product in
double precision; other work, the sensitivities above all, is in the seconds and not in the share.
Writes ``benchmarks/results/scaling-DEVICE.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from occamid.training.provenance import provenance
from occamid.training.state_space.normal_equations import FreeRuns
from occamid.training.state_space.trajectory import Sizes, split
from occamid_benchmarks import RESULTS
from occamid_benchmarks.timing import product_peak, shortest

BASE = {"rows": 16_000, "restarts": 2, "units": 10}
GROWN = {
    "rows": (4_000, 8_000, 16_000, 32_000, 64_000),
    "restarts": (1, 2, 4, 8),
    "units": (5, 10, 20, 40),
}
STATES = 4


def stable(sizes: Sizes, restarts: int, rng: np.random.Generator) -> np.ndarray:
    """Weights whose states forget: a rotation with radius 0.9 and small units beside it."""
    w = 0.05 * rng.normal(size=(restarts, sizes.total))
    at = split(sizes, w)
    turned, _ = np.linalg.qr(rng.normal(size=(sizes.nx, sizes.nx)))
    at.state[..., : sizes.nx] = 0.9 * turned
    return w


def iteration(rows: int, restarts: int, units: int) -> dict[str, float]:
    """Seconds of one iteration, and what it does."""
    rng = np.random.default_rng(0)
    sizes = Sizes(STATES, 1, 1, units, 1)
    record = (rng.normal(size=(rows, 1)), rng.normal(size=(rows, 1)), np.ones(rows))
    problem = FreeRuns(sizes, [record], lanes=restarts)
    w, variance = stable(sizes, restarts, rng), np.ones((restarts, 1))
    carry, every = problem.carry(restarts), np.ones(restarts, bool)
    _, carry = problem.trial(w, carry, every)

    def both() -> None:
        problem.expand(w, variance, carry, False)
        problem.trial(w + 1e-4, carry, every)

    seconds = shortest(both)
    used = restarts * rows / problem.thin
    return {
        "seconds": seconds,
        "parameters": sizes.total,
        "operations": 2 * used * sizes.total**2,
    }


def exponent(sizes: Sequence[float], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    with jax.enable_x64(True):
        peak = product_peak(jnp.float64)
        print("| grows | at | seconds an iteration | exponent | share of the peak at the end |")
        print("|---|---|---|---|---|")
        found: dict[str, Any] = {"peak_gflops": round(peak / 1e9, 1), "states": STATES}
        for what, at in GROWN.items():
            each = [iteration(**(BASE | {what: size})) for size in at]
            sizes = [e["parameters"] for e in each] if what == "units" else list(at)
            seconds = [e["seconds"] for e in each]
            found[what] = {"sizes": sizes, "seconds": seconds, "of": list(at)}
            found[what]["exponent"] = exponent(sizes, seconds)
            found[what]["share"] = each[-1]["operations"] / seconds[-1] / peak
            name = "parameters" if what == "units" else what
            told = ", ".join(f"{s:.3f}" for s in seconds)
            slope, share = found[what]["exponent"], found[what]["share"]
            print(f"| {name} | {', '.join(map(str, sizes))} | {told} | {slope:.2f} | {share:.1%} |")
    device = jax.default_backend()
    content = {"provenance": provenance() | {"seed": 0}, "base": BASE} | found
    (RESULTS / f"scaling-{device}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
