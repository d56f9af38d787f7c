"""Models × epochs a second, useful work, and the PyTorch loop beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from occamid.errors import FileError
from occamid.networks import MLP, Network, Recurrent, init
from occamid_benchmarks import registry, throughput, timing
from tests.support.commands import call_main
from tests.support.small import small_record


@pytest.mark.parametrize("network", [MLP(4, (3, 5), 2, "relu"), MLP(7, (2,), 1, "tanh")])
def test_useful_work_is_that_of_the_products_in_the_compiled_gradient(network: Network) -> None:
    rows = 16
    z, y = jnp.ones((rows, network.n_in)), jnp.zeros((rows, network.n_out))
    params = init(network, jax.random.key(0))
    jaxpr = jax.make_jaxpr(jax.grad(lambda p: jnp.sum((network.apply(p, z[None])[0] - y) ** 2)))
    products = [e for e in jaxpr(params).jaxpr.eqns if e.primitive.name == "dot_general"]
    sizes = []
    for product in products:
        (contracted, _), _ = product.params["dimension_numbers"]
        inner = [product.invars[0].aval.shape[k] for k in contracted]
        outer = product.outvars[0].aval.size
        sizes.append(2 * outer * inner[0] * (inner[1] if len(inner) > 1 else 1))
    assert throughput.work(network, rows) == sum(sizes)


def test_work_of_a_recurrent_network_counts_all_gates() -> None:
    network = Recurrent("lstm", 6, (5,), 2)
    below, above = 4 * 5 * 6, 4 * 5 * 5 + 2 * 5
    assert throughput.work(network, 10) == 2 * 10 * (2 * below + 3 * above)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    data = SimpleNamespace(estimation=(small_record(60),))
    monkeypatch.setattr(registry, "load", lambda _: data)
    monkeypatch.setattr(timing, "SIDE", 64)


@pytest.mark.usefixtures("_small")
def test_a_case_is_measured_and_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("hairdryer-mlp", "--restarts", "2", "--out", tmp_path)
    assert call_main(monkeypatch, "benchmark", "training", *arguments) == 0
    result = json.loads((tmp_path / "training-hairdryer-mlp-2-cpu.json").read_text())
    rate = result["restarts"] * result["epochs"] / result["run_seconds"]
    assert result["models_epochs_per_second"] == pytest.approx(rate, rel=0.2)
    assert result["share_of_peak"] > 0
    assert result["torch"] is None
    assert {"version", "machine", "jax", "seed"} <= set(result)
    assert "PyTorch loop: not measured" in capsys.readouterr().out


@pytest.mark.usefixtures("_small")
def test_a_python_that_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "python"
    assert call_main(monkeypatch, "benchmark", "training", "--python", absent) == 2
    assert "is not there" in capsys.readouterr().err


@pytest.mark.usefixtures("_small")
def test_a_loop_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text("raise SystemExit('no torch here')")
    monkeypatch.setattr(throughput, "LOOP", loop)
    with pytest.raises(FileError, match=r"the PyTorch loop with .* ended with 1: no torch here"):
        throughput.measure("hairdryer-mlp", 1, Path(sys.executable))


@pytest.mark.usefixtures("_small")
def test_the_loop_gets_rows_and_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.write_text(
        "import json, sys, numpy as np\n"
        "shape, rows = json.loads(sys.argv[2]), np.load(sys.argv[1])\n"
        "told = {'models_epochs_per_second': 5.0, 'seen': [shape['hidden'], rows['z'].shape[-1]]}\n"
        "print(json.dumps(told))\n"
    )
    monkeypatch.setattr(throughput, "LOOP", loop)
    found = throughput.measure("hairdryer-lstm", 1, Path(sys.executable))
    assert found["torch"] == {"models_epochs_per_second": 5.0, "seen": [[10], 11]}
