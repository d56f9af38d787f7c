"""What inspect says: a linear model as its difference equation, and one count of parameters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from occamid import Ensemble, Posterior, combine, ensemble_of
from occamid.bands.transfer import is_linear, transfer
from occamid.reporting.page import render
from occamid.reporting.structure import size
from tests.support.commands import Runner
from tests.support.linear_model import linear_model, linear_posterior
from tests.support.report_cases import one_channel
from tests.support.trained import batch_of, data_of
from tests.support.used import plant, used


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return Runner(monkeypatch, capsys, tmp_path)


# --- linear -------------------------------------------------------------------------------------


def test_coefficients_gain_and_pole_in_the_users_units() -> None:
    """``y = a y(t-1) + b u(t-1)`` in scaled units; offsets and scales are known."""
    a, b, s_b, s_a = 0.8, 0.5, 0.02, 0.03
    found = transfer(linear_posterior(linear_model(a, b), 0.1, (s_b, s_a)))
    ratio = 4.0 / 1.5
    np.testing.assert_allclose(found.coefficients, [[b * ratio, a]])
    np.testing.assert_allclose(found.errors, [[s_b * ratio, s_a]])
    np.testing.assert_allclose(found.offset, [-2.0 * (1 - a) - b * ratio * 0.3])
    np.testing.assert_allclose(found.poles, [a])
    np.testing.assert_allclose(found.gain, [[b / (1 - a) * ratio]])
    slopes = np.array([1 / (1 - a) * s_b, b / (1 - a) ** 2 * s_a])
    np.testing.assert_allclose(found.gain_errors, [[np.hypot(*slopes) * ratio]])
    assert found.delays == ((1,),)


def test_the_difference_equation_is_the_model() -> None:
    posterior = linear_posterior(linear_model(0.7), 0.1, (0.01, 0.01))
    model = posterior.model
    record = plant(30)
    u, y = record.u[:, 0], record.y[:, 0]
    found = transfer(posterior)
    by_hand = found.offset[0] + found.coefficients[0] @ np.stack([u[:-1], y[:-1]])
    same = replace(record, sampling_time=1.0, input_names=("u",), output_names=("y",))
    np.testing.assert_allclose(model.predict(same).mean[1:, 0], by_hand, rtol=1e-9)


def test_inspect_shows_a_transfer_function_and_no_hidden_weights(run: Runner) -> None:
    used().save("m.safetensors")
    outcome = run("inspect", "m.safetensors")
    assert outcome.code == 0
    for said in ("level[t] =", "pump[t-1]", "coefficient", "standard error", "poles: 0.8"):
        assert said in outcome.out
    assert "static gain of level over pump: " in outcome.out
    assert "first clear coefficient after 1 samples (60 s)" in outcome.out
    found = json.loads(run("inspect", "m.safetensors", "--json").out)["linear"]
    assert set(found["coefficients"]["level"]) == {"pump[t-1]", "level[t-1]"}
    assert found["first_clear_lag"] == [[1]]


def test_a_network_that_bends_is_not_linear() -> None:
    batch = batch_of("mlp")
    posterior = ensemble_of(batch, data_of("mlp"), count=1).posteriors[0]
    assert isinstance(posterior, Posterior)
    assert is_linear(posterior.model) == (posterior.model.neurons == (0,))
    assert is_linear(linear_model())


# --- one number everywhere ----------------------------------------------------------------------


def test_one_number_of_parameters_and_one_share_pruned(run: Runner) -> None:
    """In inspect, the report, its tiles, the summary and compare."""
    case = one_channel()
    model: Ensemble = case.model
    weights = [np.concatenate([np.ravel(v) for v in p.model.weights.values()])
               for p in model.posteriors]  # fmt: skip
    members = sorted(map(np.count_nonzero, weights))
    median, total = int(members[(len(members) - 1) // 2]), int(sum(members))
    candidates = sum(int(np.prod(s.shape)) for s in case.batch.network.specs().values())
    share = 1 - median / candidates
    assert size(model) == {
        "parameters": median,
        "parameters_in_all": total,
        "candidates": candidates,
        "sparsity": pytest.approx(share),
    }
    page = case.content()
    assert page["size"]["parameters"] == median
    html = render(page)
    assert f"<b>{median}</b><span>parameters of the median member, {total} in all" in html
    assert f"of {candidates} parameters pruned" in html
    model.save("m.safetensors")
    told = json.loads(run("inspect", "m.safetensors", "--json").out)
    assert {k: told[k] for k in size(model)} == json.loads(json.dumps(size(model)))
    shown = run("inspect", "m.safetensors").out
    assert f"with {median} parameters of {candidates} candidates, {share:.1%} pruned" in shown
    assert f"({total} in all)" in shown
    record = case.test
    data = np.column_stack([record.u, record.y])
    np.savetxt("log.csv", data, delimiter=",", header=",".join(
        (*record.input_names, *record.output_names)), comments="")  # fmt: skip
    arguments = ("compare", "m.safetensors", "log.csv", "--sampling-time", record.sampling_time)
    assert json.loads(run(*arguments, "--json").out)[0]["parameters"] == median


def test_compaction_does_not_change_the_count() -> None:
    model = batch_of("mlp").best
    assert model.parameters == model.compact().parameters
    one = combine([linear_posterior(linear_model(), 0.1, (0.1, 0.1))])
    assert (one.parameters, one.parameters_in_all, one.sparsity) == (3, 3, 0.0)
