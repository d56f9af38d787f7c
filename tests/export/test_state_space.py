"""A state-space network as an FMU and as Structured Text; other targets are in their own tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fmpy.validation import validate_fmu

from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.posterior import Posterior
from occamid.data.record import Record
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.export import fmu, recursion, st
from occamid.export.description import describe
from occamid.export.kinds import settled_gain
from occamid.export.names import identifiers
from occamid.networks import Observer
from occamid.training.model import Model
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


def observed(dead: tuple[int, int] = (0, 0)) -> Ensemble:
    """A small state-space model with a filter, by hand; its inputs act after dead times."""
    rng = np.random.default_rng(3)
    network = Observer(3, (2, 2), 1)
    weights = {name: 0.1 * rng.normal(size=spec.shape) for name, spec in network.specs().items()}
    weights["state.W_x"] = np.diag([0.9, 0.5])
    weights |= {"filter.P": np.eye(2), "filter.Q": 0.1 * np.eye(2), "filter.R": np.array([0.5])}
    terms = Terms(((0, 0), (1, 0)), ((0, 1),), ("a", "b"), ("y",))
    about = ([1.0, 2.0], [2.0, 3.0], [5.0], [4.0])
    scaling = Scaling(*(np.array(v) for v in about * 2))
    model = Model(network, terms, scaling, weights, start=1, prior_widths={}).later(dead)
    none = np.zeros((1, 1))
    posterior = Posterior(model, "full", np.array([0]), none + 1e-9, none[0] + 1, none[0] + 1, 1, 0)
    return combine([posterior], feedback="none")


@pytest.mark.parametrize("dead", [(0, 0), (0, 3)])
def test_an_observer_leaves_with_its_network_and_a_constant_gain(dead: tuple[int, int]) -> None:
    model = observed(dead)
    description = describe(model)
    rng = np.random.default_rng(0)
    u = rng.normal(size=(60, 2))
    # Fed its own outputs after the first row it is the plain network from the mean state.
    free = recursion.free_run(description, u, np.zeros((0, 1)))
    weights, scaling = model.first.weights, model.first.scaling
    x, expected = weights["filter.x"], []
    scaled = np.concatenate([np.zeros((3, 2)), scaling.apply_u(u)])  # at the mean before
    for row in (scaled[3 + t - np.array(dead), [0, 1]] for t in range(len(u))):
        h = np.tanh(weights["unit.W_x"] @ x + weights["unit.W_u"] @ row + weights["unit.b"])
        out = weights["out.W_x"] @ x + weights["out.W_u"] @ row + weights["out.W_h"] @ h
        expected.append(out + weights["out.b"])
        x = weights["state.W_x"] @ x + weights["state.W_u"] @ row + weights["state.W_h"] @ h
        x = x + weights["state.b"]
    np.testing.assert_allclose(free, scaling.undo_y(np.array(expected)), rtol=1e-9)
    # On measured outputs the filter settles to that gain, so both predict the same in the end.
    network = model.first.network
    assert isinstance(network, Observer)
    still = np.zeros((400, 2)) + scaling.u_offset
    gain = settled_gain(network, weights)
    assert np.abs(gain).max() > 0.01
    ours = model.first.predict(Record(u=still, y=np.full((400, 1), 5.3), input_names=("a", "b")))
    state = recursion.warm_state(description, still[:399], np.full((399, 1), 5.3))
    theirs = recursion.step(description, recursion.Numbers(), state, still[399])[1]
    np.testing.assert_allclose(
        theirs, ours.mean[-1], atol=0.05 * abs(5.3 - ours.mean[-1, 0]) + 0.02
    )
