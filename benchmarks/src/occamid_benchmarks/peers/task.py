"""What every peer needs: scaled records, the end of each held back, and a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from occamid_benchmarks.peers.exchange import Array, Problem, Signals

HELD_BACK = 0.25  # of each estimation record, its end: on it peers choose orders and stop
FreeRun = Callable[[Array, Array], Array]  # all inputs and the first outputs → all outputs


class Task(NamedTuple):
    """Estimation data in standard deviations, and what a peer may spend on them."""

    whole: tuple[Signals, ...]
    n_init: int
    seed: int
    deadline: float  # on time.process_time: when to begin nothing more

    @property
    def train(self) -> tuple[Signals, ...]:
        """All but the ends."""
        return tuple(Signals(r.u[: _cut(r)], r.y[: _cut(r)]) for r in self.whole)

    @property
    def held(self) -> tuple[Signals, ...]:
        """The ends, each a record of its own."""
        return tuple(Signals(r.u[_cut(r) :], r.y[_cut(r) :]) for r in self.whole)

    @property
    def left(self) -> float:
        """Seconds of the processor that are left: a busy machine makes no peer worse."""
        return self.deadline - time.process_time()

    def score(self, run: FreeRun) -> float:
        """RMSE of the held-back ends in free run, infinite where it diverges."""
        return error(run, self.held, self.n_init)


def _cut(record: Signals) -> int:
    return len(record.u) - int(HELD_BACK * len(record.u))


def error(run: FreeRun, records: Sequence[Signals], n_init: int) -> float:
    """Root mean square over rows after the first ``n_init``, outputs and records."""
    with np.errstate(all="ignore"):
        squares = [((run(r.u, r.y[:n_init]) - r.y)[n_init:]) ** 2 for r in records]
        found = float(np.sqrt(np.mean(np.concatenate(squares))))
    return found if np.isfinite(found) else float("inf")


class Scaling(NamedTuple):
    """Means and standard deviations of inputs and outputs of the estimation records."""

    u_mean: Array
    u_std: Array
    y_mean: Array
    y_std: Array

    def signals(self, record: Signals) -> Signals:
        """In standard deviations."""
        return Signals((record.u - self.u_mean) / self.u_std, (record.y - self.y_mean) / self.y_std)

    def outputs(self, y: Array) -> Array:
        """Back in the units of the record."""
        return y * self.y_std + self.y_mean


def scaling(problem: Problem) -> Scaling:
    """Of the estimation records alone; a constant signal keeps its size."""
    u, y = (np.concatenate(signals) for signals in zip(*problem.estimation, strict=True))
    stds = [np.where(s > 0, s, 1.0) for s in (u.std(axis=0), y.std(axis=0))]
    return Scaling(u.mean(axis=0), stds[0], y.mean(axis=0), stds[1])
