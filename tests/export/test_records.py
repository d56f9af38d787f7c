"""Whole test records of real processes and twins: each export against the Python model.

The twins are those that a few lags describe; models with hidden states are in test_state_space.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamid.data import twins
from occamid.data.record import Record
from occamid.export import c, fmu
from occamid.export import casadi as symbolic
from occamid.export.description import describe
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.train import train
from occamid_benchmarks import registry
from tests.export.test_fmu import Driver
from tests.export.test_values import onnx_run
from tests.support.exports import DRIVER, compile_c, run_c, write
from tests.support.real import real_data

TWINS = (
    *("cascaded-tanks-twin", "coupled-drives-twin", "hairdryer-twin"),
    *("heat-exchanger-twin", "mass-spring-damper-twin", "polynomial-narx-twin"),
)
# What is recurrent is written alike for all records of one input and one output.
RECURRENT = "cascaded-tanks", "hairdryer-twin", "mass-spring-damper-twin"
LAGS = {"heat-exchanger": 40, "cascaded-tanks": 20, "coupled-drives": 10}
QUICK: dict[str, Any] = {
    "restarts": 1,
    "cycles": 2,
    "epochs": 40,
    "lam": (1e-3,),
    "learning_rate": 1e-2,
}


def records(name: str) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    if name in registry.BENCHMARKS:
        found = real_data(name)
        return found.estimation, found.test
    twin = twins.make(name)
    return (twin.estimation,), (twin.test,)


def trained(name: str, network: str, estimation: tuple[Record, ...]) -> Model:
    """A few steps on a part of the data: that it is good is not the point."""
    lags = LAGS.get(name.removesuffix("-twin"), 5)
    settings = Settings(
        network=network,
        hidden=(6,),
        input_lags=lags,
        output_lags=lags,
        activation="tanh",
        **QUICK,
    )
    return train([record[-400:] for record in estimation], settings).best


@pytest.mark.parametrize(
    ("name", "network"),
    [
        *((name, "mlp") for name in (*registry.BENCHMARKS, *TWINS)),
        *((name, "lstm") for name in RECURRENT),
    ],
)
def test_exports_follow_the_python_model_over_whole_records(
    name: str, network: str, tmp_path: Path
) -> None:
    estimation, test = records(name)
    model = trained(name, network, estimation)
    d = describe(model)
    assert d.members[0].step.constants > 5  # not pruned away
    assert d.size > 0
    programs = {}
    tolerances: dict[c.Precision, float] = {"double": 1e-9, "float": 1e-4}
    for precision, tolerance in tolerances.items():
        folder = tmp_path / precision
        write(c.files(d, "model", precision), folder)
        (folder / "driver.c").write_text(DRIVER)
        programs[precision] = (compile_c(folder, "model.c", "driver.c"), tolerance)
    (tmp_path / "model.fmu").write_bytes(fmu.files(d)["model-fmi2.fmu"])
    step = symbolic.functions(d)
    worst: dict[str, float] = {}

    def compare(what: str, found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
        miss = float(np.max(np.abs(found - expected) / np.abs(expected).max(axis=0)))
        worst[what] = max(worst.get(what, 0.0), miss)
        assert miss < tolerance, (what, miss)

    for k, record in enumerate(test):
        y = record.y[: max(model.start, 1) + 3]
        n = len(y)
        expected = model.free_run(record.u, y)[n:]
        for precision, (program, tolerance) in programs.items():
            compare(f"c {precision}", run_c(program, record.u, y)[n:], expected, tolerance)
        x = step.warm_state(record.u, y)
        run = step.step.mapaccum(len(expected))(x, record.u[n:].T)[1]
        compare("casadi", np.array(run).T, expected, 1e-9)
        compare("onnx", onnx_run(d, record.u, y, "float")[1], expected, 1e-4)
        compare("fmu", _fmu_run(tmp_path, d, record, n, k), expected, 1e-9)
    print(
        name,
        network,
        d.members[0].step.constants,
        d.size,
        {what: f"{miss:.1e}" for what, miss in worst.items()},
    )


def _fmu_run(folder: Path, d: Any, record: Record, n: int, k: int) -> np.ndarray:
    one = Driver(folder / "model.fmu", folder / f"inside{k}")
    one.start(dict(zip(d.output_names, record.y[0], strict=True)))
    found = []
    one.switch(True)
    for t in range(len(record)):
        if t == n:
            one.switch(False)
        values = dict(zip(d.input_names, record.u[t], strict=True))
        if t < n:
            values |= {f"{m}_measured": v for m, v in zip(d.output_names, record.y[t], strict=True)}
        one.set(values)
        one.step(d.sampling_time)
        found.append(one.get(d.output_names))
    one.fmu.terminate()
    one.fmu.freeInstance()
    return np.array(found[n:])
