"""A state-space network as an FMU and as Structured Text; other targets are in their own tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fmpy.validation import validate_fmu

from occamid.export import fmu, st
from occamid.export.names import identifiers
from tests.export.test_fmu import Driver
from tests.export.test_values import random_state_space, state_space_run
from tests.support.structured_text import load

M, D = random_state_space(0, 3, 2, 2, 4)
U = np.random.default_rng(1).normal(size=(20, D.nu))


@pytest.mark.parametrize("version", [2, 3])
def test_fmu(version: int, tmp_path: Path) -> None:
    path = tmp_path / "model.fmu"
    path.write_bytes(fmu.files(D)[f"model-fmi{version}.fmu"])
    assert validate_fmu(str(path)) == []
    one = Driver(path, tmp_path / "inside")
    one.start(dict(zip(D.output_names, D.scaling.y_mean, strict=True)))
    found = []
    for now in U:
        one.set(dict(zip(D.input_names, now, strict=True)))
        one.step(D.sampling_time)
        found.append(one.get(D.output_names))
    one.fmu.terminate()
    one.fmu.freeInstance()
    np.testing.assert_allclose(found, state_space_run(M, D, U), rtol=1e-9)


def test_structured_text() -> None:
    block, found = load(st.files(D)["model.st"]), []
    outputs = identifiers(D.output_names, "out")
    for t, now in enumerate(U):
        inputs = dict(zip(identifiers(D.input_names, "in"), now, strict=True))
        block.call(Restart=t == 0, Correct=False, **inputs)
        found.append([block.values[name.lower()] for name in outputs])
    np.testing.assert_allclose(found, state_space_run(M, D, U), rtol=1e-9)
