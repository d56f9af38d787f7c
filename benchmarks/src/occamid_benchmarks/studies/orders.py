"""Which orders are found: ``python -m occamid_benchmarks.studies.orders [KIND] [ORDER …] [idle]``.

Systems with 2 to 6 states, modes in parallel of random loudness, from ten seeds, with one per cent
of measurement noise: linear ones, and ones with a saturating output feedback.  Each is given to the
state-space family of its kind by name, and the number of states that the last
model tells is compared with the truth, and with what the record shows: two modes may be so alike
that fewer states say as much.  That order is found by the same criterion from the *true* weights.
With ``idle`` (or without any argument) systems of three states have three inputs, one of which does
nothing, and the study says which inputs the last model reads.  Prints a line for each and writes
``benchmarks/results/orders/KIND-ORDER.json`` and ``KIND-idle.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from occamid.bands.ensemble import Ensemble
from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.files.atomic import replace_file
from occamid.identification.assemble import Workshop
from occamid.identification.families import families
from occamid.identification.folds import whole
from occamid.identification.options import Options
from occamid.training.cores import small_algebra
from occamid.training.provenance import provenance
from occamid.training.state_space import levenberg
from occamid.training.state_space.fit import data_of, run
from occamid.training.state_space.priors import weights_of
from occamid.training.state_space.reduction import exactly, fewer_states, independent_rows
from occamid.training.state_space.start import Linear
from occamid.training.state_space.trajectory import split
from occamid_benchmarks import RESULTS

Array = np.ndarray
KINDS = ("linear", "curved")
ORDERS, SEEDS, ROWS, NOISE = (2, 3, 4, 5, 6), 10, 2000, 0.01
IDLE_ORDER = 3  # states of the systems with an idle input
ITERATIONS = 40  # from the truth


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
    return twin(kind, order, seed)[0]


def twin(kind: str, order: int, seed: int) -> tuple[Record, Linear]:
    """A record and the linear part of what made it."""
    rng = np.random.default_rng([order, seed])
    A, B, C = modes(order, rng)
    u = np.repeat(rng.uniform(-1.5, 1.5, ROWS // 3 + 1), 3)[:ROWS, None]
    x, y = np.zeros(order), np.zeros((ROWS, 1))
    for t in range(ROWS):
        y[t] = C @ x
        back = 0.8 * np.tanh(2 * y[t]) if kind == "curved" else 0.0
        x = A @ x + B @ (u[t] - back)
    noisy: Float[Array, "N 1"] = y + NOISE * y.std() * rng.standard_normal(y.shape)
    made = Record(u=u, y=noisy, name=f"{kind} {order} {seed}")
    return made, Linear(A, B, C, np.zeros((1, 1)))


def idle_record(kind: str, seed: int) -> Record:
    """Three states and three inputs, of which the second does nothing."""
    rng = np.random.default_rng([IDLE_ORDER, seed, 3])
    A, B, C = modes(IDLE_ORDER, rng)
    more = np.concatenate([B, np.zeros_like(B), rng.normal(size=B.shape)], axis=1)
    u = np.repeat(rng.uniform(-1, 1, (ROWS // 3 + 1, 3)), 3, axis=0)[:ROWS]
    x, y = np.zeros(IDLE_ORDER), np.zeros((ROWS, 1))
    for t in range(ROWS):
        y[t] = C @ x
        back = 0.8 * np.tanh(2 * y[t]) if kind == "curved" else 0.0
        x = A @ x + more @ u[t] - B @ np.atleast_1d(back)
    noisy: Float[Array, "N 1"] = y + NOISE * y.std() * rng.standard_normal(y.shape)
    return Record(u=u, y=noisy, name=f"{kind} idle {seed}")


def last_model(kind: str, data: Record, seed: int) -> Ensemble:
    """What is made of ``--network state-space``, with ``--units 0`` where it is linear."""
    units = 0 if kind == "linear" else None
    options = Options(seed=seed, network="state-space", units=units)
    (family,) = families(options, (data,))
    with small_algebra():
        return Workshop(whole((data,)), options.budget).model(family)


def found_order(kind: str, order: int, seed: int) -> int:
    """How many states the last model of this family tells."""
    return int(last_model(kind, record(kind, order, seed), seed).first.neurons[0])


def shown_order(kind: str, order: int, seed: int) -> int:
    """How many states the criterion leaves when it starts from the truth."""
    made, true = twin(kind, order, seed)
    scaled = fit_scaling([made], "standardize").apply(made)
    data = data_of([(scaled.u, scaled.y)])
    sizes = data.sizes(order, 1 if kind == "curved" else 0)
    w = weights_of(sizes, Linear(true.A, true.B * made.u.std(), true.C / made.y.std(), true.D))
    at, offset = split(sizes, w), order + 1
    at.state[:, offset] = true.B[:, 0] * made.u.mean()
    at.out[:, offset] = -made.y.mean() / made.y.std()
    if kind == "curved":
        at.state[:, offset + 1], at.unit[0, :order] = -0.8 * true.B[:, 0], 2 * true.C[0]
    with small_algebra(), jax.enable_x64(True):
        stage = exactly(sizes, data, w)
        stage = run(stage, levenberg.Settings(ITERATIONS), "truth")
        found = fewer_states(stage, data, independent_rows(stage, data))
    return int(found.orders[0])


def read_inputs(kind: str, seed: int) -> list[int]:
    """Which of the three inputs some member of the last model reads."""
    data = idle_record(kind, seed)
    model = last_model(kind, data, seed)
    read = {name.rsplit("[", 1)[0] for name in model.regressors}
    return [k for k, name in enumerate(data.input_names) if name in read]


def write(name: str, **content: Any) -> None:
    """A result among the others."""
    content["seeds"] = list(range(SEEDS))
    text = json.dumps({**content, **provenance()}, indent=1)
    replace_file(RESULTS / "orders" / f"{name}.json", text.encode())


def main(kinds: list[str], orders: list[int], idle: bool) -> None:
    """All seeds of these kinds and orders."""
    for kind in kinds:
        for order in orders:
            found = [found_order(kind, order, seed) for seed in range(SEEDS)]
            shown = [shown_order(kind, order, seed) for seed in range(SEEDS)]
            right, near, told = (
                sum(abs(n - m) <= far for n, m in zip(found, truth, strict=True))
                for truth, far in (([order] * SEEDS, 0), ([order] * SEEDS, 1), (shown, 0))
            )
            print(
                f"{kind} {order}: {right} of {SEEDS} right, {near} within one, {told} as the "
                f"record shows: {found} {shown}",
                flush=True,
            )
            write(f"{kind}-{order}", kind=kind, order=order, found=found, shown=shown)
        if idle:
            read = [read_inputs(kind, seed) for seed in range(SEEDS)]
            right = sum(one == [0, 2] for one in read)
            print(f"{kind} idle: {right} of {SEEDS} read the other two inputs only: {read}")
            write(f"{kind}-idle", kind=kind, read=read)


if __name__ == "__main__":
    asked = sys.argv[1:]
    numbers = [int(a) for a in asked if a.isdigit()]
    alone = "idle" in asked and not numbers
    main(
        [a for a in asked if a in KINDS] or list(KINDS),
        numbers or ([] if alone else list(ORDERS)),
        "idle" in asked or not numbers,
    )
