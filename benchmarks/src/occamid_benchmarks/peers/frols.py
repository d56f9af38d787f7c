"""SysIdentPy: polynomial NARX models whose terms are chosen by forward orthogonal regression.

It fits one output and one record: every output has a model of its own, of all inputs and its own
past, and records are put end to end.  Its inputs begin one step before the output; they are
shifted by one, so that the input of the same row may count too.
"""

from __future__ import annotations

import warnings
from itertools import product
from math import comb

import numpy as np
from sysidentpy.basis_function import Polynomial
from sysidentpy.model_structure_selection import FROLS
from sysidentpy.parameter_estimation import LeastSquares

from occamid_benchmarks.peers.exchange import Array, Signals
from occamid_benchmarks.peers.task import FreeRun, Task

LAGS = {1: (2, 4, 8, 16), 2: (2, 4, 8), 3: (2, 3, 5)}  # by degree, of output and inputs alike
TERMS = (5, 10, 20, 40)
MOST = 2_000  # candidate terms; their matrix is copied for each term that is chosen


def identify(task: Task, degree: int) -> tuple[FreeRun, str]:
    """Lags and number of terms with the smallest held-back error, refitted to all rows."""
    outputs = task.whole[0].y.shape[1]
    # Outputs share what time is left evenly.
    found = [_one_output(_only(task, k, task.left / (outputs - k)), degree) for k in range(outputs)]

    def run(u: Array, y_init: Array) -> Array:
        columns = [one(u, y_init[:, k : k + 1]) for k, (one, _) in enumerate(found)]
        return np.concatenate(columns, axis=1)

    return run, f"degree {degree}, " + "; ".join(about for _, about in found)


def _only(task: Task, k: int, seconds: float) -> Task:
    """One output of the task."""
    whole = tuple(Signals(r.u, r.y[:, k : k + 1]) for r in task.whole)
    return task._replace(whole=whole, deadline=task.deadline - task.left + seconds)


def _one_output(task: Task, degree: int) -> tuple[FreeRun, str]:
    inputs = task.whole[0].u.shape[1]
    lags = [n for n in LAGS[degree] if n <= task.n_init]
    counts = {n: comb((1 + inputs) * n + degree, degree) for n in lags}
    grid = [(n, t) for n, t in product(lags, TERMS) if t < counts[n] <= MOST]
    scores: dict[tuple[int, int], float] = {}
    for lag, terms in grid:
        if scores and task.left < 0:
            break
        scores[lag, terms] = task.score(_fit(task.train, degree, lag, terms))
    lag, terms = min(scores, key=scores.__getitem__)
    told = f"{terms} terms, {lag} lags"
    if len(scores) < len(grid):
        told += f" ({len(scores)} of {len(grid)} choices tried)"
    return _fit(task.whole, degree, lag, terms), told


def _fit(records: tuple[Signals, ...], degree: int, lag: int, terms: int) -> FreeRun:
    u, y = (np.concatenate(signals) for signals in zip(*records, strict=True))
    inputs = u.shape[1]
    steps = list(range(1, lag + 1))
    model = FROLS(
        ylag=steps,
        xlag=steps if inputs == 1 else [steps] * inputs,
        order_selection=False,
        n_terms=terms,
        estimator=LeastSquares(),
        basis_function=Polynomial(degree=degree),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X=_earlier(u), y=y)

    def run(u: Array, y_init: Array) -> Array:
        first = len(y_init) - lag  # the last rows that are known start it
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            later = model.predict(X=_earlier(u)[first:], y=y_init[first:])
        return np.concatenate([y_init[:first], later])

    return run


def _earlier(u: Array) -> Array:
    """The input of the next row: what SysIdentPy takes for one step ago."""
    return np.concatenate([u[1:], u[-1:]])
