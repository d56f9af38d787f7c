"""FMUs: the standard's own checks, the free run, steps of any length, and going back in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fmpy
import numpy as np
import pytest
from fmpy.fmi2 import FMU2Slave
from fmpy.fmi3 import FMU3Slave
from fmpy.validation import validate_fmu

from occamid.bands.ensemble import Ensemble
from occamid.export import fmu
from occamid.export.description import describe
from occamid.training.model import Model
from tests.support.exports import plain_loop, random_ensemble, random_model, signals

NAMES = ('flow [m/s] "in" <a&b>', "wärme", "level [°C]", "y */ )")
CASES: dict[str, Model | Ensemble] = {
    "mlp": random_model(1, "mlp", 2, 2, (5, 3), skip=True, names=NAMES),
    "lstm ensemble": random_ensemble(4, 3, kind="lstm", ny=2),
}


class Driver:
    """One instance of an FMU of either version, driven sample by sample."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.about = fmpy.read_model_description(str(path))
        self.three = self.about.fmiVersion.startswith("3")
        self.at = {v.name: v.valueReference for v in self.about.modelVariables}
        kind = FMU3Slave if self.three else FMU2Slave
        self.fmu: Any = kind(
            guid=self.about.guid,
            unzipDirectory=fmpy.extract(str(path), str(folder)),
            modelIdentifier=self.about.coSimulation.modelIdentifier,
            instanceName="one",
        )
        self.fmu.instantiate()
        self.time = 0.0

    def start(self, y0: dict[str, float]) -> None:
        if self.three:
            self.fmu.enterInitializationMode(startTime=0.0)
        else:
            self.fmu.setupExperiment(startTime=0.0)
            self.fmu.enterInitializationMode()
        self.set({f"{name}_start": value for name, value in y0.items()})
        self.fmu.exitInitializationMode()

    def set(self, values: dict[str, float]) -> None:
        write = self.fmu.setFloat64 if self.three else self.fmu.setReal
        write([self.at[name] for name in values], list(values.values()))

    def get(self, names: tuple[str, ...]) -> np.ndarray:
        read = self.fmu.getFloat64 if self.three else self.fmu.getReal
        return np.array(read([self.at[name] for name in names]))

    def switch(self, on: bool) -> None:
        self.fmu.setBoolean([self.at["use_measured"]], [on])

    def step(self, h: float) -> None:
        self.fmu.doStep(currentCommunicationPoint=self.time, communicationStepSize=h)
        self.time += h

    def remember(self) -> Any:
        return self.fmu.getFMUState() if self.three else self.fmu.getFMUstate()

    def restore(self, state: Any) -> None:
        (self.fmu.setFMUState if self.three else self.fmu.setFMUstate)(state)

    def bytes_of(self, state: Any) -> Any:
        return (self.fmu.serializeFMUState if self.three else self.fmu.serializeFMUstate)(state)

    def from_bytes(self, data: Any) -> Any:
        return (self.fmu.deserializeFMUState if self.three else self.fmu.deSerializeFMUstate)(data)

    def forget(self, state: Any) -> None:
        (self.fmu.freeFMUState if self.three else self.fmu.freeFMUstate)(state)


@contextmanager
def driver(model: Model | Ensemble, version: int, folder: Path) -> Iterator[Driver]:
    path = folder / "model.fmu"
    path.write_bytes(fmu.files(describe(model))[f"model-fmi{version}.fmu"])
    found = Driver(path, folder / "inside")
    yield found
    found.fmu.terminate()
    found.fmu.freeInstance()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_valid_and_the_same_free_run_with_roll_back(
    name: str, version: int, tmp_path: Path
) -> None:
    model = CASES[name]
    d = describe(model)
    u, y = signals(model, 40)
    expected = plain_loop(model, u, y)
    with driver(model, version, tmp_path) as one:
        assert validate_fmu(str(tmp_path / "model.fmu")) == []
        assert float(one.about.defaultExperiment.stepSize) == 0.5
        one.start(dict(zip(d.output_names, y[0], strict=True)))

        def run(rows: range) -> np.ndarray:
            found = []
            for t in rows:
                one.set(dict(zip(d.input_names, u[t], strict=True)))
                if t < len(y):
                    one.set({f"{n}_measured": v for n, v in zip(d.output_names, y[t], strict=True)})
                one.switch(t < len(y))
                one.step(d.sampling_time)
                found.append(one.get(d.output_names))
            return np.array(found)

        run(range(20))
        state, time = one.remember(), one.time
        data = one.bytes_of(state)
        first = run(range(20, 40))
        np.testing.assert_allclose(first, expected[20:], rtol=1e-9)
        for back in (state, one.from_bytes(data)):
            one.restore(back)
            one.time = time
            np.testing.assert_array_equal(run(range(20, 40)), first)
            one.forget(back)


@pytest.mark.parametrize("version", [2, 3])
def test_steps_of_any_length_hold_the_inputs(version: int, tmp_path: Path) -> None:
    model = random_model(0)
    with driver(model, version, tmp_path) as one:
        one.start({"y0": 5.0})
        one.set({"u0": 1.0})
        assert one.get(("y0",)) == 5.0
        one.step(0.2)
        assert one.get(("y0",)) == 5.0  # the first sample ends at 0.5 s
        one.step(1.3)
        many = one.get(("y0",))
    (tmp_path / "again").mkdir()
    with driver(model, version, tmp_path / "again") as one:
        one.start({"y0": 5.0})
        one.set({"u0": 1.0})
        for _ in range(3):
            one.step(0.5)
        np.testing.assert_array_equal(one.get(("y0",)), many)


def test_units_come_from_brackets_and_sources_are_inside(tmp_path: Path) -> None:
    path = tmp_path / "model.fmu"
    path.write_bytes(fmu.files(describe(CASES["mlp"]), sources_only=True)["model-fmi2.fmu"])
    about = fmpy.read_model_description(str(path))
    units = {v.name: v.unit for v in about.modelVariables}
    assert units[NAMES[0]] is None
    assert units["level [°C]"] == "°C"
    folder = Path(fmpy.extract(str(path), str(tmp_path / "inside")))
    assert {p.name for p in (folder / "sources").iterdir()} >= {
        "model.c",
        "fmi2.c",
        "fmi2Functions.h",
    }
    assert not (folder / "binaries").exists()
    assert fmu.files(describe(CASES["mlp"])) == fmu.files(describe(CASES["mlp"]))
