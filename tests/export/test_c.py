"""C: the free run of the Python model, strict compilers, derivatives, sanitizers, sizes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from occamid.bands.ensemble import Ensemble
from occamid.export import c, recursion
from occamid.export.description import Description, describe
from occamid.training.model import Model
from tests.export.test_values import random_state_space, state_space_run
from tests.support.exports import (
    DRIVER,
    compile_c,
    plain_loop,
    random_ensemble,
    random_model,
    run_c,
    signals,
)
from tests.support.exports import write as write_files

CASES: dict[str, Model | Ensemble] = {
    "one input": random_model(0),
    "two by two with skip": random_model(1, "mlp", 2, 2, (5, 3), activation="gelu", skip=True),
    "stacked lstm": random_model(2, "lstm", 2, 2, (4, 3)),
    "rnn": random_model(3, "rnn"),
    "large lstm, compressed rows": random_model(5, "lstm", 1, 1, (12,), density=0.9),
    "dense": random_model(6, "mlp", 1, 1, (20, 20), density=1.0, activation="silu"),
    "ensemble": random_ensemble(4, 4, nu=2),
    "ties of an equal ensemble": random_ensemble(4, 4, equal=True, kind="lstm", ny=2),
}


def built(
    d: Description, folder: Path, *flags: str, compiler: str = "gcc", **options: object
) -> Path:
    """A driver around the exported model."""
    write_files(c.files(d, "model", **options), folder)  # type: ignore[arg-type]
    (folder / "driver.c").write_text(DRIVER)
    return compile_c(folder, "model.c", "driver.c", compiler=compiler, flags=flags)


def agree(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Relative to the largest value of each output."""
    size = np.abs(expected).max(axis=0)
    assert np.max(np.abs(found - expected) / size) < tolerance


@pytest.mark.parametrize("name", CASES)
def test_free_run_is_that_of_a_plain_loop(name: str, tmp_path: Path) -> None:
    model = CASES[name]
    u, y = signals(model, 60)
    expected = plain_loop(model, u, y)
    agree(recursion.free_run(describe(model), u, y), expected, 1e-12)
    for precision, tolerance in (("double", 1e-9), ("float", 1e-4)):
        program = built(describe(model), tmp_path / precision, precision=precision)
        agree(run_c(program, u, y)[len(y) :], expected[len(y) :], tolerance)


def test_the_cases_are_not_pruned_away() -> None:
    """Guards the tests of all exports: random pruning may leave nothing to compare."""
    for name, model in CASES.items():
        d = describe(model)
        assert max(member.step.constants for member in d.members) > 10, name
        assert any(r.kind == "y" for r in d.registers), name


@pytest.mark.parametrize("name", [*CASES][:3])
def test_the_plain_loop_is_the_python_model(name: str) -> None:
    u, y = signals(CASES[name], 30)
    agree(plain_loop(CASES[name], u, y), CASES[name].free_run(u, y), 1e-12)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "softplus", "elu", "identity"])
def test_every_activation(activation: str, tmp_path: Path) -> None:
    model = random_model(8, activation=activation, delay=1)
    u, y = signals(model, 50)
    found = run_c(built(describe(model), tmp_path, jacobian=True), u, y)
    agree(found[len(y) :], plain_loop(model, u, y)[len(y) :], 1e-9)


def test_the_self_test_passes_and_notices_a_change(tmp_path: Path) -> None:
    files = c.files(describe(CASES["ensemble"]), "model", "float")
    write_files(files, tmp_path)
    program = compile_c(tmp_path, "model.c", "model_test.c")
    assert subprocess.run([program], check=False).returncode == 0
    (tmp_path / "model.c").write_text(
        files["model.c"].replace("w[0] = v2[0]", "w[0] = 1.1f * v2[0]")
    )
    program = compile_c(tmp_path, "model.c", "model_test.c")
    assert subprocess.run([program], check=False).returncode == 1


JACOBIAN = """
#include "model.h"
#include <stdio.h>
static model_state s;
static model_real A[model_NX * model_NX], B[model_NX * model_NU];
static model_real C[model_NY * model_NX], D[model_NY * model_NU];
int main(void)
{
    model_real u[model_NU];
    int i;
    double a;
    model_real y0[model_NY] = {0};
    model_init(&s, y0);
    for (i = 0; i < model_NX; ++i) { if (scanf("%lf", &a) != 1) return 1; s.x[i] = a; }
    for (i = 0; i < model_NU; ++i) { if (scanf("%lf", &a) != 1) return 1; u[i] = a; }
    model_jacobian(&s, u, A, B, C, D);
    for (i = 0; i < model_NX * model_NX; ++i) printf("%.17g ", A[i]);
    for (i = 0; i < model_NX * model_NU; ++i) printf("%.17g ", B[i]);
    for (i = 0; i < model_NY * model_NX; ++i) printf("%.17g ", C[i]);
    for (i = 0; i < model_NY * model_NU; ++i) printf("%.17g ", D[i]);
    return 0;
}
"""


@pytest.mark.parametrize("name", CASES)
def test_jacobians_are_those_of_differences(name: str, tmp_path: Path) -> None:
    d = describe(CASES[name])
    write_files(c.files(d, "model", jacobian=True), tmp_path)
    (tmp_path / "jacobian.c").write_text(JACOBIAN)
    program = compile_c(tmp_path, "model.c", "jacobian.c")
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=d.size), d.scaling.u_offset + rng.normal(size=d.nu)
    text = " ".join(f"{v:.17g}" for v in (*x, *u))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    found = np.array(done.stdout.split(), dtype=float)

    def both(v: np.ndarray) -> np.ndarray:
        return np.concatenate(recursion.step(d, recursion.Numbers(), v[: d.size], v[d.size :]))

    at, h = np.concatenate([x, u]), 1e-6
    columns = [(both(at + h * e) - both(at - h * e)) / (2 * h) for e in np.eye(len(at))]
    J, n = np.array(columns).T, d.size
    expected = np.concatenate(
        [J[:n, :n].ravel(), J[:n, n:].ravel(), J[n:, :n].ravel(), J[n:, n:].ravel()]
    )
    np.testing.assert_allclose(found, expected, atol=1e-7)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["mlp", "lstm", "rnn"]),
    nu=st.integers(1, 3),
    ny=st.integers(1, 2),
    hidden=st.lists(st.integers(1, 6), min_size=1, max_size=2),
    lags=st.integers(1, 5),
    density=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    members=st.integers(1, 4),
)
def test_random_models(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    kind: str,
    nu: int,
    ny: int,
    hidden: list[int],
    lags: int,
    density: float,
    members: int,
) -> None:
    model = random_ensemble(
        seed, members, kind=kind, nu=nu, ny=ny, hidden=tuple(hidden), lags=lags, density=density
    )
    u, y = signals(model, 40, seed)
    program = built(describe(model), tmp_path_factory.mktemp("c"), jacobian=True)
    agree(run_c(program, u, y)[len(y) :], plain_loop(model, u, y)[len(y) :], 1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", ["double", "float"])
def test_clang_sanitizers_and_valgrind_find_nothing(
    name: str, precision: str, tmp_path: Path
) -> None:
    for tool in ("clang", "valgrind"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    model = CASES[name]
    u, y = signals(model, 40)
    expected = plain_loop(model, u, y)[len(y) :]
    tolerance = 1e-9 if precision == "double" else 1e-4
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    for compiler in ("gcc", "clang"):
        program = built(
            describe(model),
            tmp_path,
            *checks,
            compiler=compiler,
            precision=precision,
            jacobian=True,
        )
        agree(run_c(program, u, y)[len(y) :], expected, tolerance)
    built(describe(model), tmp_path, "-g", precision=precision)
    inside = subprocess.run(
        ["valgrind", "--error-exitcode=9", "--leak-check=full", "-q", tmp_path / "program"],
        input="0\n" + " ".join("1" for _ in range(10 * (u.shape[1] + y.shape[1]))),
        capture_output=True,
        text=True,
        check=False,
    )
    assert inside.returncode == 0, inside.stderr


@pytest.mark.parametrize("shape", [(2, 1, 1, 3), (3, 2, 2, 4)])
def test_a_state_space_network_runs_as_its_matrices_say(
    shape: tuple[int, int, int, int], tmp_path: Path
) -> None:
    m, d = random_state_space(0, *shape)
    u = np.random.default_rng(1).normal(size=(50, d.nu))
    program = built(d, tmp_path, jacobian=True)
    agree(run_c(program, u, np.zeros((0, d.ny))), state_space_run(m, d, u), 1e-9)
