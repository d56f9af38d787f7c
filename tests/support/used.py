"""A linear model in a file, made by hand in a moment, for the commands that use one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from occamid import Ensemble, Record, combine
from tests.support.linear_model import linear_model, linear_posterior

STEP = 60.0


def used(pump: str = "pump", level: str = "level") -> Ensemble:
    """Two members of ``level``, a sample a minute, with the end of their estimation data."""
    members = []
    for a in (0.8, 0.81, 0.83):
        model = linear_model(a)
        terms = replace(model.terms, input_names=(pump,), output_names=(level,))
        model = replace(model, terms=terms, sampling_time=STEP, start=2)
        members.append(linear_posterior(model, sigma=0.05, spread=(0.01, 0.01)))
    record = plant(30)
    return replace(combine(members), tail=(record.u, record.y), candidates=40)


def plant(rows: int, seed: int = 0) -> Record:
    """``y = 0.8 y(t-1) + 0.5 u(t-1)`` in the model's scaled units, with a little noise."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=rows), np.zeros(rows)
    for t in range(1, rows):
        y[t] = 0.8 * y[t - 1] + 0.5 * u[t - 1] + 0.05 * rng.normal()
    return Record(u=0.3 + 1.5 * u, y=-2 + 4 * y, input_names=("pump",), output_names=("level",),
                  sampling_time=STEP)  # fmt: skip


def stamps(rows: int, first: str = "2026-03-01 06:00:00") -> list[str]:
    return [str(t) for t in pd.date_range(first, periods=rows, freq=f"{STEP:g}s")]


def write_log(path: Path, record: Record, measured: int | None, first: str | None = None) -> None:
    """A CSV with times; outputs only in the first ``measured`` rows (None: in no column)."""
    frame = pd.DataFrame(
        {"time": stamps(len(record)) if first is None else stamps(len(record), first)}
    )
    frame["pump"] = record.u[:, 0]
    if measured is not None:
        frame["level"] = np.where(np.arange(len(record)) < measured, record.y[:, 0], np.nan)
    frame.to_csv(path, index=False)
