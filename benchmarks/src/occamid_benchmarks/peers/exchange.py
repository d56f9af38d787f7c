"""What goes to a peer and what comes back, as files that need NumPy alone.

A peer is told the estimation records, and of a test its inputs and first outputs: what it has to
predict is not in the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


class Signals(NamedTuple):
    """Inputs and outputs, time first; of a test fewer outputs than inputs."""

    u: Array
    y: Array


class Problem(NamedTuple):
    """All that a peer may know."""

    estimation: tuple[Signals, ...]
    tests: tuple[Signals, ...]

    @property
    def n_init(self) -> int:
        """How many first outputs of a test are known."""
        return len(self.tests[0].y)

    @property
    def digest(self) -> str:
        """SHA-256 of every number, so that a result says what it was measured on."""
        found = sha256()
        for record in (*self.estimation, *self.tests):
            for values in record:
                found.update(repr(values.shape).encode())
                found.update(np.ascontiguousarray(values, "<f8").tobytes())
        return found.hexdigest()


class Answer(NamedTuple):
    """Free runs of the tests, from their first row on; none, and why, where it failed."""

    predictions: tuple[Array, ...]
    about: str
    error: str
    seconds: float
    versions: dict[str, str]


def write_problem(path: Path, problem: Problem) -> None:
    """One ``.npz`` file."""
    groups = {"estimation": problem.estimation, "test": problem.tests}
    arrays = {
        f"{part}_{k}_{name}": values
        for part, records in groups.items()
        for k, record in enumerate(records)
        for name, values in record._asdict().items()
    }
    np.savez(path, **arrays)


def read_problem(path: Path) -> Problem:
    """What ``write_problem`` wrote."""
    with np.load(path, allow_pickle=False) as found:
        return Problem(_records(found, "estimation"), _records(found, "test"))


def _records(found: Any, part: str) -> tuple[Signals, ...]:
    count = sum(name.startswith(f"{part}_") for name in found.files) // 2
    return tuple(Signals(found[f"{part}_{k}_u"], found[f"{part}_{k}_y"]) for k in range(count))


def write_answer(path: Path, answer: Answer) -> None:
    """JSON; what is not finite becomes null, which JSON can hold."""
    predictions = [_nulls(values) for values in answer.predictions]
    content = {**answer._asdict(), "predictions": predictions}
    path.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")


def read_answer(path: Path) -> Answer:
    """What ``write_answer`` wrote; null is read as not a number."""
    content = json.loads(path.read_text("utf-8"))
    predictions = tuple(np.array(rows, dtype=float) for rows in content["predictions"])
    return Answer(**{**content, "predictions": predictions})


def _nulls(values: Array) -> list[Sequence[float | None]]:
    return [[v if np.isfinite(v) else None for v in row] for row in values.tolist()]
