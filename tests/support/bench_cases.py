"""A tiny stand-in for the real records and rows, and finished runs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from occamid import Settings
from occamid.data.record import Record
from occamid_benchmarks.experiments import WARNING, Experiment, Quoted, experiments
from occamid_benchmarks.registry import Data

TINY = Settings(
    hidden=(3,), input_lags=3, output_lags=2, restarts=3, cycles=2, epochs=15, lam=(2e-3,)
)
N_INIT = 6  # the window of the stand-in's official split; the largest lag is 3


def process(samples: int, seed: int, name: str) -> Record:
    """A second-order process with a noise-free output."""
    u = np.random.default_rng(seed).normal(size=samples)
    y = np.zeros(samples)
    for t in range(2, samples):
        y[t] = 0.6 * y[t - 1] - 0.2 * y[t - 2] + np.tanh(u[t - 1])
    return Record(u=u, y=1 + 2 * y, sampling_time=0.08, name=name)


def data() -> Data:
    """Two test records, as the coupled drives have."""
    return Data(
        (process(90, 0, "made estimation"),),
        (process(60, 1, "made test 1"), process(50, 2, "made test 2")),
        N_INIT,
    )


def row(**changes: Any) -> Experiment:
    """A row that nothing meets, so that the paper protocol takes the most accurate model."""
    fields: dict[str, Any] = {
        "name": "hairdryer-mlp",
        "record": "hairdryer",
        "about": "a stand-in",
        "settings": TINY,
        "paper_rmse": (Quoted(0.5, 0.1, 0.4), Quoted(0.6, 0.2, 0.3)),
        "paper_sparsity": 2.0,
    }
    return Experiment(**{**fields, **changes})


class Numbers:
    """Numbers that are all different and have four digits, so that each can be recognised."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self.given: set[float] = set()

    def __call__(self, low: float = 0.1, high: float = 0.9) -> float:
        while True:
            value = round(float(self._rng.uniform(low, high)), 4)
            if value not in self.given:
                self.given.add(value)
                return value


def finished_run(name: str, protocol: str, number: Numbers) -> dict[str, Any]:
    """A report as :func:`occamid_benchmarks.reproduce.report` writes it."""
    e = experiments()[name]
    records = [f"{e.record} test {k}" for k in range(len(e.paper_rmse))]

    def spread() -> dict[str, dict[str, float]]:
        return {r: {k: number() for k in ("mean", "std", "min")} for r in records}

    def model(cycle: int) -> dict[str, Any]:
        return {
            "restart": 1,
            "cycle": cycle,
            "rmse": [number() for _ in records],
            "sparsity": number(),
            "regressors": 3,
            "neurons": 2,
        }

    return {
        "experiment": name,
        "protocol": protocol,
        **({"warning": WARNING} if protocol == "paper" else {}),
        "record": e.record,
        "rmse": spread(),
        "first_cycle": spread(),
        "sparsity": number(),
        "cycle": 5,
        "chosen": model(5),
        "most_accurate": model(2) if protocol == "paper" else None,
        "regressors_total": 21,
        "regressors_kept": 3,
        "kept_names": ["u[t-3]", "u[t-2]", "y[t-1]"],
        "neurons_total": 50,
        "neurons_kept": 2,
        "sparsity_by_matrix": {"layer0.W": 0.9},
        "seconds": {"compile": number(1, 9), "run": number(20, 90)},
        "seed": 0,
        "version": "0.0.1",
        "machine": "a machine, 2 cores",
    }


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def finished_folder(folder: Path) -> Numbers:
    """Both protocols, baselines of one record and `auto` on a record and a twin."""
    number = Numbers()
    for name in ("hairdryer-mlp", "hairdryer-lstm", "coupled-drives-mlp"):
        for protocol in ("paper", "honest"):
            report = finished_run(name, protocol, number)
            write_json(folder / protocol / f"{name}.json", report)
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "seconds": 1.0,
            **{p: {"rmse": {"t": number()}, "model": f"{name} model"} for p in ("paper", "honest")},
        }
        for name in ("arx", "lstm-plain", "made-up")
    ]
    rows[1]["honest"]["rmse"]["t"] = None  # it diverged
    write_json(
        folder / "baselines" / "baselines-hairdryer.json",
        {"record": "hairdryer", "restarts": 20, "seed": 0, "rows": rows},
    )
    for record in ("hairdryer", "some-twin"):
        content: dict[str, Any] = {
            "record": record,
            "seeds": [0, 1, 2],
            "rmse": {"t": {"mean": number(), "std": number()}},
            "single": {"t": {"mean": number(), "std": number()}},
        }
        if record == "some-twin":
            content |= {"true_model": {"t": number()}, "coverage95": number()}
        write_json(folder / "auto" / f"honest-{record}.json", content)
    return number
