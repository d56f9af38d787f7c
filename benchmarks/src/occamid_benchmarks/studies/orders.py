"""Which orders are found: ``python -m occamid_benchmarks.studies.orders [KIND] [ORDER …]``.

Systems with 2 to 6 states, modes in parallel of random loudness, from ten seeds, with one per cent
of measurement noise: linear ones, and ones with a saturating output feedback.  Each is given to the
state-space family of its kind as the automatic mode would, and the number of states of the last
model is compared with the truth.  Prints a line for each and writes
``benchmarks/results/orders/KIND-ORDER.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from occamid.data.record import Record
from occamid.files.atomic import replace_file
from occamid.identification.assemble import Workshop
from occamid.identification.families import families
from occamid.identification.folds import whole
from occamid.identification.options import Options
from occamid.training.cores import small_algebra
from occamid.training.provenance import provenance
from occamid_benchmarks import RESULTS

Array = np.ndarray
KINDS = {"linear": "state-space-linear", "curved": "state-space"}
ORDERS, SEEDS, ROWS, NOISE = (2, 3, 4, 5, 6), 10, 2000, 0.01


def modes(order: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """``A``, ``B`` and ``C`` of modes in parallel; those that turn fast are the louder ones."""
    radius, angle = rng.uniform(0.75, 0.95, order), rng.uniform(0.1, 1.2, order)
    blocks = [
        r * np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])
        for r, a in zip(radius[: order // 2], np.sort(angle[: order // 2]), strict=True)
    ]
    if order % 2:
        blocks.append(np.array([[radius[-1]]]))
    A, B = block_diag(*blocks), rng.normal(size=(order, 1))
    loud = np.concatenate([np.full(len(b), np.sqrt(1 - abs(b[0, 0]) ** 2)) for b in blocks])
    C = rng.uniform(0.7, 1.3, order) * rng.choice([-1.0, 1.0], order) * loud
    return A, B, C[None]


def record(kind: str, order: int, seed: int) -> Record:
    """``x⁺ = A x + B (u − 0.8 tanh 2y)``, ``y = C x``; the linear one without the feedback."""
    rng = np.random.default_rng([order, seed])
    A, B, C = modes(order, rng)
    u = np.repeat(rng.uniform(-1.5, 1.5, ROWS // 3 + 1), 3)[:ROWS, None]
    x, y = np.zeros(order), np.zeros((ROWS, 1))
    for t in range(ROWS):
        y[t] = C @ x
        back = 0.8 * np.tanh(2 * y[t]) if kind == "curved" else 0.0
        x = A @ x + B @ (u[t] - back)
    noisy: Float[Array, "N 1"] = y + NOISE * y.std() * rng.standard_normal(y.shape)
    return Record(u=u, y=noisy, name=f"{kind} {order} {seed}")


def found_order(kind: str, order: int, seed: int) -> int:
    """How many states the last model of this family has."""
    data = (record(kind, order, seed),)
    options = Options(seed=seed)
    family = next(f for f in families(options, data) if f.name == KINDS[kind])
    with small_algebra():
        model = Workshop(whole(data), options.budget).model(family)
    return int(model.first.neurons[0])


def main(kinds: list[str], orders: list[int]) -> None:
    """All seeds of these kinds and orders."""
    for kind in kinds:
        for order in orders:
            found = [found_order(kind, order, seed) for seed in range(SEEDS)]
            right = sum(n == order for n in found)
            near = sum(abs(n - order) <= 1 for n in found)
            print(
                f"{kind} {order}: {right} of {SEEDS} right, {near} within one: {found}", flush=True
            )
            content: dict[str, Any] = {"kind": kind, "order": order, "found": found, **provenance()}
            text = json.dumps(content, indent=1)
            replace_file(RESULTS / "orders" / f"{kind}-{order}.json", text.encode())


if __name__ == "__main__":
    asked = sys.argv[1:]
    main(
        [a for a in asked if a in KINDS] or list(KINDS),
        [int(a) for a in asked if a.isdigit()] or list(ORDERS),
    )
