"""Small trainings, each made once in a process."""

from __future__ import annotations

from functools import cache

from occamid import Batch, Record, train
from occamid.data.twins import mass_spring_damper
from tests.support.small import SMALL, small_record


@cache
def batch_of(kind: str) -> Batch:
    """Of an mlp, an lstm, or an mlp with two inputs and two outputs, on :func:`data_of`."""
    if kind == "lstm":
        return train(data_of(kind), SMALL.replace(network="lstm", hidden=(2,)))
    return train(data_of(kind), SMALL)


def data_of(kind: str) -> Record:
    """What :func:`batch_of` was trained on."""
    return (
        mass_spring_damper(0, samples=100).estimation if kind == "two-outputs" else small_record()
    )
