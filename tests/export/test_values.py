"""ONNX, CasADi and JSON: the same free run, exact derivatives, and files that stand alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi
import numpy as np
import onnx as library
import onnxruntime
import pytest

from occamid.bands.ensemble import Ensemble
from occamid.bands.mixture import weighted_median
from occamid.errors import DataError
from occamid.export import casadi as symbolic
from occamid.export import export, onnx, plainjson, recursion
from occamid.export.description import Description, Member, describe
from occamid.export.kinds import StateSpace, state_space
from occamid.export.program import simplify
from occamid.training.model import Model
from tests.support.exports import plain_loop, random_ensemble, random_model, signals

CASES: dict[str, Model | Ensemble] = {
    "one input": random_model(0, delay=1),
    "two by two with skip": random_model(1, "mlp", 2, 2, (5, 3), activation="gelu", skip=True),
    "stacked lstm": random_model(2, "lstm", 2, 2, (4, 3)),
    "rnn": random_model(3, "rnn"),
    "ensemble": random_ensemble(4, 4, nu=2, activation="elu"),
    "ties of an equal ensemble": random_ensemble(4, 4, equal=True, kind="lstm", ny=2),
    "nothing survived": random_model(9, density=0.0),
}


def onnx_run(d: Description, u: np.ndarray, y: np.ndarray, precision: Any) -> list[np.ndarray]:
    """Outputs after the known ones: step by step, and as one sequence."""
    kind = onnx.KINDS[precision]
    made = onnx.files(d, "model", precision)
    run = {name: onnxruntime.InferenceSession(data) for name, data in made.items()}
    x = np.resize(recursion.initial_state(d, y[0]), max(d.size, 1)).astype(kind)
    for t in range(len(y)):
        feed = {"state": x, "u": u[t].astype(kind), "y_measured": y[t].astype(kind)}
        x = run["fill.onnx" if t < d.start else "correct.onnx"].run(["state_next"], feed)[0]
    rest = u[len(y) :].astype(kind)
    whole = run["sequence.onnx"].run(["y"], {"state": x, "u": rest})[0]
    steps = []
    for now in rest:
        x, out = run["step.onnx"].run(["state_next", "y"], {"state": x, "u": now})
        steps.append(out)
    return [np.array(steps), whole]


@pytest.mark.parametrize("name", CASES)
def test_onnx_runs_free(name: str) -> None:
    model = CASES[name]
    u, y = signals(model, 40)
    expected = plain_loop(model, u, y)[len(y) :]
    for precision, tolerance in (("float", 1e-4), ("double", 1e-9)):
        for found in onnx_run(describe(model), u, y, precision):
            np.testing.assert_allclose(found, expected, rtol=tolerance)


def test_onnx_says_what_it_is() -> None:
    names = ('"quoted" {}', "*/ end", "Überlauf\n", "x" * 300)
    d = describe(random_model(1, "mlp", 2, 2, names=names))
    model = library.load_model_from_string(onnx.files(d)["step.onnx"])
    library.checker.check_model(model, full_check=True)
    props = {p.key: p.value for p in model.metadata_props}
    assert json.loads(props["inputs"]) == list(names[:2])
    assert len(json.loads(props["state"])) == d.size
    assert model.opset_import[0].version == onnx.OPSET


@pytest.mark.parametrize("name", CASES)
def test_casadi_runs_free_with_exact_derivatives(name: str) -> None:
    model = CASES[name]
    u, y = signals(model, 40)
    found = symbolic.functions(model)
    x = found.warm_state(u, y)
    rest = u[len(y) :]
    run = found.step.mapaccum(len(rest))(x, rest.T)[1]
    np.testing.assert_allclose(np.array(run).T, plain_loop(model, u, y)[len(y) :], rtol=1e-9)
    d = found.description
    if not d.size:
        return
    sx, su = casadi.SX.sym("x", d.size), casadi.SX.sym("u", d.nu)
    after, out = found.step(sx, su)
    both = casadi.vertcat(after, out)
    J = casadi.Function("J", [sx, su], [casadi.jacobian(both, casadi.vertcat(sx, su))])
    at, h = np.concatenate([x, u[0]]), 1e-6

    def value(v: np.ndarray) -> np.ndarray:
        return np.concatenate(recursion.step(d, recursion.Numbers(), v[: d.size], v[d.size :]))

    expected = [(value(at + h * e) - value(at - h * e)) / (2 * h) for e in np.eye(len(at))]
    np.testing.assert_allclose(np.array(J(x, u[0])), np.array(expected).T, atol=1e-7)


def test_casadi_files_can_be_loaded_again() -> None:
    d = describe(CASES["ensemble"])
    made = symbolic.files(d)
    step = casadi.Function.deserialize(made["step.casadi"])
    x = json.loads(made["model.json"])["initial_state"]
    expected = recursion.step(d, recursion.Numbers(), np.array(x), np.zeros(d.nu))
    for found, value in zip(step(x, np.zeros(d.nu)), expected, strict=True):
        np.testing.assert_allclose(np.array(found).ravel(), value, rtol=1e-12)


def from_json(text: str, u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What somebody would write who has only the file and its documentation."""
    m = json.loads(text)
    functions = recursion.FUNCTIONS
    scale = {
        k: np.array([[c["offset"], c["scale"]] for c in m[k]]).T for k in ("inputs", "outputs")
    }
    v = (u - scale["inputs"][0]) / scale["inputs"][1]
    runs = []
    for member in m["members"]:
        w = list((y - scale["outputs"][0]) / scale["outputs"][1])
        kept = {c["name"]: np.array(c["initial"]) for c in member["carried"]}
        for t in range(m["start"], len(u)):
            past = {"input": v, "output": w}
            known = {
                "z": np.array(
                    [past[r["side"]][t - r["lag"]][r["channel"]] for r in member["regressors"]]
                ),
                **kept,
            }
            for s in member["steps"]:
                if s["kind"] == "affine":
                    known[s["result"]] = np.array(s["bias"]) + sum(
                        np.array(p["matrix"]) @ known[p["source"]] for p in s["parts"]
                    )
                elif s["kind"] == "activate":
                    known[s["result"]] = functions[s["function"]](known[s["source"]])
                else:
                    known[s["result"]] = sum(known[a] * known[b] for a, b in s["pairs"])
            kept = {c["name"]: known[c["next"]] for c in member["carried"]}
            if t >= len(y):
                w.append(known[member["output"]])
        runs.append(np.array(w[len(y) :]) * scale["outputs"][1] + scale["outputs"][0])
    shares = np.array([member["share"] for member in m["members"]])
    return weighted_median(np.stack(runs), shares)


@pytest.mark.parametrize("name", CASES)
def test_json_is_enough_to_write_the_free_run(name: str) -> None:
    model = CASES[name]
    u, y = signals(model, 30)
    found = from_json(plainjson.files(describe(model))["model.json"], u, y)
    np.testing.assert_allclose(found, plain_loop(model, u, y)[len(y) :], rtol=1e-9)


def random_state_space(
    seed: int, nx: int, nu: int, ny: int, nh: int
) -> tuple[StateSpace, Description]:
    rng = np.random.default_rng(seed)

    def make(*shape: int) -> np.ndarray:
        return np.asarray(rng.normal(size=shape) * 0.3)

    m = StateSpace(
        0.6 * np.eye(nx) + 0.1 * make(nx, nx), make(nx, nu), make(ny, nx), make(ny, nu),
        make(nx, nh), make(ny, nh), make(nh, nx), make(nh, nu), make(nh), make(ny), make(nx),
        make(nx),
    )  # fmt: skip
    like = random_model(seed, nu=nu, ny=ny)
    member = Member(1.0, tuple((c, 0) for c in range(nu)), (), simplify(state_space(m)))
    names = like.terms
    d = Description((member,), like.scaling, names.input_names, names.output_names, 0.5, start=0)
    return m, d


def state_space_run(m: StateSpace, d: Description, u: np.ndarray) -> np.ndarray:
    x, found = m.x0, []
    for v in (u - d.scaling.u_offset) / d.scaling.u_scale:
        a = np.tanh(m.W @ x + m.V @ v + m.b)
        found.append(m.C @ x + m.D @ v + m.c + m.G @ a)
        x = m.A @ x + m.B @ v + m.F @ a + m.d
    return np.array(found) * d.scaling.y_scale + d.scaling.y_offset


@pytest.mark.parametrize("shape", [(2, 1, 1, 3), (3, 2, 2, 4)])
def test_state_space_networks_run_in_every_target(shape: tuple[int, int, int, int]) -> None:
    m, d = random_state_space(0, *shape)
    u = np.random.default_rng(1).normal(size=(30, d.nu))
    expected = state_space_run(m, d, u)
    none = np.zeros((0, d.ny))
    np.testing.assert_allclose(recursion.free_run(d, u, none), expected, rtol=1e-12)
    run = symbolic.functions(d).step.mapaccum(30)(recursion.initial_state(d), u.T)[1]
    np.testing.assert_allclose(np.array(run).T, expected, rtol=1e-9)
    session = onnxruntime.InferenceSession(onnx.files(d)["sequence.onnx"])
    feed = {"state": recursion.initial_state(d).astype(np.float32), "u": u.astype(np.float32)}
    np.testing.assert_allclose(session.run(["y"], feed)[0], expected, rtol=1e-4)


def test_single_precision_is_refused_where_it_has_too_few_digits(tmp_path: Path) -> None:
    """A level of a million that moves by thousandths; double precision knows it well enough."""
    description = describe(random_model(0))
    like = np.ones(description.ny)
    level = {"y_mean": 1e6 * like, "y_offset": 1e6 * like}
    far = replace(description.scaling, y_std=1e-3 * like, y_scale=1e-3 * like, **level)
    model = replace(description, scaling=far)
    for format, options in (("c", {"precision": "float"}), ("onnx", {})):
        with pytest.raises(DataError, match=r"moves by 0\.001, of which single precision knows no"):
            export(model, format, tmp_path / format, **options)
        assert not (tmp_path / format).exists()
    export(model, "c", tmp_path / "double")
    allowed = re.search(
        r"allowed\[.*\] = \{ (.*) \}", (tmp_path / "double/model_test.c").read_text()
    )
    assert allowed is not None
    assert float(allowed[1]) < 1e-4 * 1e-3
