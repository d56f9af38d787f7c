"""Stand-ins for the suite: a model whose answers are known beforehand, and results by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.stats import norm

from occamid.assessment.run import Run
from occamid.bands.ensemble import LEVELS
from occamid.data.record import Record
from occamid_benchmarks.suite.records import Case


def banded(mean: np.ndarray, std: np.ndarray, n_init: int) -> Run:
    """A run with Gaussian bands."""
    quantiles = mean + norm.ppf(LEVELS)[:, None, None] * std
    return Run(mean, n_init, std, std, std, LEVELS, quantiles, 0.0)


class Offset:
    """A model that is wrong by a constant for each output, and knows the answer otherwise.

    Predictions are right where the first input, the number of a row, can be divided by three,
    and never in the first ``start + 10`` rows of what it is given.
    """

    start, fewest_known, parameters_in_all = 4, 6, 7

    def __init__(self, offset: list[float], std: list[float]) -> None:
        self.offset, self.std = np.array(offset), np.array(std)
        self.asked: list[int] = []  # rows of the predictions

    def simulate(self, record: Record, n_init: int | None) -> Run:
        n_init = 8 if n_init is None else n_init
        assert n_init >= self.fewest_known
        return banded(record.y + self.offset, np.tile(self.std, (len(record), 1)), n_init)

    def predict(self, record: Record, horizon: int) -> Run:
        assert horizon == 10
        self.asked.append(len(record))
        right = (record.u[:, :1] % 3 == 0) & (np.arange(len(record))[:, None] >= self.start + 10)
        mean = np.where(right, record.y, record.y + 9)
        return banded(mean, np.ones_like(mean), self.start)


def numbered(rows: int, outputs: int = 1, name: str = "made test") -> Record:
    """A record whose input is the number of the row."""
    y = np.random.default_rng(0).normal(size=(rows, outputs)) * 10.0 ** np.arange(outputs)
    return Record(u=np.arange(rows), y=y, name=name)


def case(outputs: int = 1, n_init: int | None = 5, **changes: Any) -> Case:
    tests = (numbered(60, outputs, "made test"), numbered(50, outputs, "made other"))
    return Case((numbered(80, outputs, "made estimation"),), tests, n_init, **changes)


def fit(model: Any, expected: tuple[float, ...]) -> Any:
    """What ``identify`` returns, as far as the suite looks at it."""
    return SimpleNamespace(
        model=model,
        family=SimpleNamespace(name="made-family"),
        trials=[SimpleNamespace(family="made-family", score=1.0)],
        expected_rmse=expected,
        expected_interval=tuple((0.5 * e, 2 * e) for e in expected),
        shares={"made-family": 1.0},
        held_back=(np.ones((50, len(expected))),),
    )


def result(record: str, seed: int, tests: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A result as it stands in a file."""
    return {
        "kind": "suite",
        "record": record,
        "effort": "quick",
        "seed": seed,
        "family": "curved",
        "shares": {"curved": 1.0},
        "seconds": 10.0,
        "unit": "mV",
        "tests": tests,
        "version": "0.1.0",
        "machine": "a machine",
        **changes,
    }


def judged(name: str, error: float | None, peers: dict[str, float | None]) -> dict[str, Any]:
    """One test of a result."""
    return {
        "name": name,
        "pooled": error,
        "coverage": {"50%": 0.48, "80%": 0.79, "95%": 0.93},
        "coverage_10_steps": 0.97,
        "crps": 0.125,
        "crps_plain": {"diagonal posterior": 0.25, "split conformal": 0.2},
        "expected_over_test": 1.1,
        "peers": {n: {"pooled": e} for n, e in peers.items()},
    }
