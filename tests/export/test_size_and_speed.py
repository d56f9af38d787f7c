"""Sizes on a Cortex-M4 and the time of one step, beside other ways to run the same model."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from occamid.bands.combine import ensemble_of
from occamid.export import c, onnx, recursion
from occamid.export.description import Description, describe
from occamid.training.batch import Batch
from occamid.training.model import Model
from occamid.training.train import train
from occamid_benchmarks.experiments import experiment
from occamid_benchmarks.registry import Data
from tests.export.test_fmu import driver
from tests.support.exports import compile_c, random_model, write
from tests.support.real import real_data

CORTEX = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-Os"]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def cortex_bytes(d: Description, folder: Path, precision: c.Precision) -> tuple[int, int]:
    """Code and constants, and state, of the model compiled for a Cortex-M4."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc (Debian: gcc-arm-none-eabi, libnewlib-arm-none-eabi)")
    write(c.files(d, "model", precision), folder)
    command = ["arm-none-eabi-gcc", *STRICT, *CORTEX, "-c", "model.c", "-o", "model.o"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    told = subprocess.run(
        ["arm-none-eabi-size", "model.o"], cwd=folder, check=True, capture_output=True, text=True
    )
    text, data, bss = map(int, told.stdout.splitlines()[1].split()[:3])
    assert bss == 0  # the state is the caller's
    return text + data, int(c.counts(d, precision)["state_bytes"])


def like_the_paper() -> Model:
    """301 regressors, 7 of 50 neurons alive, 106 weights: the paper's 99.3 %, all of them in use.

    Weights pruned one by one at random would leave no path to the output, and nothing to measure.
    """
    full = random_model(0, hidden=(50,), lags=150, activation="identity", bias=False, density=1.0)
    rng, keep = np.random.default_rng(0), np.zeros((50, 301), bool)
    for neuron in range(7):
        keep[neuron, rng.choice(301, 14, replace=False)] = True
    keep[0, [0, 151]] = True  # the oldest input and the oldest output
    weights = {
        "layer0.W": full.weights["layer0.W"] * keep,
        "layer1.W": full.weights["layer1.W"] * (np.arange(50) < 7),
    }
    model = full.with_weights(weights)
    assert 0.992 < model.sparsity < 0.994
    return alive(model, 100)


def alive(model: Model, fewest: int) -> Model:
    """The model, if it is what it seems: as many parameters survive compaction as are meant."""
    assert model.compact().parameters >= fewest
    return model


@pytest.mark.parametrize("precision", ["float", "double"])
def test_the_heat_exchanger_at_the_papers_sparsity_is_small(
    precision: c.Precision, tmp_path: Path
) -> None:
    model = like_the_paper()
    flash, state = cortex_bytes(describe(model), tmp_path, precision)
    print(f"stand-in, {model.parameters} parameters, {precision}: {flash} and {state} bytes")
    assert flash < 4096
    assert state < 3072


def test_the_trained_heat_exchanger_is_small(tmp_path: Path) -> None:
    data = real_data("heat-exchanger")
    settings = experiment("heat-exchanger-mlp").settings.replace(restarts=2)
    model = alive(train(data.estimation, settings).best, 20)
    assert model.sparsity > 0.98
    kinds: tuple[c.Precision, ...] = ("float", "double")
    for precision in kinds:
        flash, state = cortex_bytes(describe(model), tmp_path / precision, precision)
        print(
            f"heat exchanger, sparsity {model.sparsity:.1%}, {model.parameters} parameters, "
            f"{precision}: {flash} bytes of code and constants, {state} of state"
        )
        assert flash < 4096
        assert state < 3072


LOOP = """
#include "model.h"
#include <stdio.h>
#include <time.h>
int main(void)
{
    static model_state s;
    model_real u[model_NU] = {0}, y[model_NY] = {0};
    double best = 1e9, sum = 0;
    int k, t;
    for (k = 0; k < 50; ++k) {
        clock_t start = clock();
        model_init(&s, y);
        for (t = 0; t < 20000; ++t) {
            u[0] = (model_real)(t % 7);
            model_step(&s, u, y);
            sum += (double)y[0];
        }
        double each = (double)(clock() - start) / CLOCKS_PER_SEC / 20000;
        if (each < best) best = each;
    }
    printf("%.9g %g\\n", best, sum);
    return 0;
}
"""


def c_seconds(d: Description, folder: Path, precision: c.Precision) -> float:
    write(c.files(d, "model", precision), folder)
    (folder / "loop.c").write_text(LOOP)
    compile_flags = ("-std=gnu99", "-O3", "-march=native")
    program = compile_c(folder, "model.c", "loop.c", flags=compile_flags)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def best_of(run: Callable[[], object], steps: int) -> float:
    """The least processor time of several tries, for each step."""
    found = []
    for _ in range(5):
        start = time.process_time()
        run()
        found.append((time.process_time() - start) / steps)
    return min(found)


def repeat(run: Callable[[], object], times: int) -> None:
    for _ in range(times):
        run()


@cache
def tanks() -> tuple[Data, Batch]:
    data = real_data("cascaded-tanks")
    settings = experiment("cascaded-tanks-mlp").settings.replace(restarts=10)
    return data, train(data.estimation, settings)


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 10])
def test_one_step_of_a_tank_model_takes_less_than_a_microsecond(
    members: int, tmp_path: Path
) -> None:
    data, batch = tanks()
    ensemble = ensemble_of(batch, data.estimation, count=members, method="full")
    for p in ensemble.posteriors:
        alive(p.model, 50)
    print(members, "members,", ensemble.parameters, "parameters")
    d = describe(ensemble)
    table = {
        "C, double": c_seconds(d, tmp_path / "double", "double"),
        "C, float": c_seconds(d, tmp_path / "float", "float"),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    made = onnx.files(d)
    x = recursion.initial_state(d).astype(np.float32)
    for name, feed, steps in (
        ("step", {"state": x, "u": np.zeros(1, np.float32)}, 1),
        ("sequence", {"state": x, "u": np.zeros((500, 1), np.float32)}, 500),
    ):
        session = onnxruntime.InferenceSession(made[f"{name}.onnx"], options)
        calls = max(1, 500 // steps)
        run = partial(session.run, None, feed)
        table[f"onnxruntime, {name}"] = best_of(partial(repeat, run, calls), calls * steps)
    with driver(ensemble, 2, tmp_path) as one:
        one.start({d.output_names[0]: 5.0})
        table["FMU 2.0 from FMPy, a call for each sample"] = best_of(
            lambda: repeat(partial(one.step, d.sampling_time), 1000), 1000
        )
        table["FMU 2.0, thousand samples a call"] = best_of(
            lambda: one.step(1000 * d.sampling_time), 1000
        )
    u, known = data.test[0].u[:1000], data.test[0].y[:25]
    ensemble.free_run(u, known)
    table["Python, a thousand samples a call"] = best_of(
        lambda: ensemble.free_run(u, known), len(u) - 25
    )
    now = np.zeros(1)
    table["NumPy, step by step"] = best_of(
        lambda: [recursion.step(d, recursion.Numbers(), x.astype(float), now) for _ in range(50)],
        50,
    )
    for name, seconds in table.items():
        print(f"| {name} | {members} | {1e6 * seconds:.3g} |")
    assert members > 1 or table["C, double"] < 1e-6
