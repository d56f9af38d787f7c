"""Peers in an environment of their own: what they are told, how they are judged, what is shown."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamid import cli
from occamid_benchmarks.peers import NAMES, answer, task
from occamid_benchmarks.peers.exchange import (
    Answer,
    Problem,
    Signals,
    read_answer,
    read_problem,
    write_answer,
    write_problem,
)
from occamid_benchmarks.suite import others, records, table
from occamid_benchmarks.tables import peers as peer_table
from tests.support import suite_cases
from tests.support.suite_cases import judged, result

THIS = others.Settings(Path(sys.executable), seconds=5, limit=60, seed=0)


def made_answer(*predictions: np.ndarray, error: str = "") -> Answer:
    return Answer(predictions, "a model", error, 1.0, {"made": "1.0"})


def outcome(record: str, peer: str, errors: dict[str, float | None], why: str = "") -> Any:
    """A peer's result as it stands in a file."""
    tests = [
        {"name": n, "n_init": 5, "rmse": [e], "pooled": e, "failure": "" if e else why}
        for n, e in errors.items()
    ]
    return {
        **{"kind": "peer", "record": record, "peer": peer, "model": "made", "error": why},
        **{"seconds": 7.0, "unit": "mV", "rows": 9, "note": "", "tests": tests, "seed": 0},
        **{"asked_to_stop_after_s": 5, "limit_s": 60, "digest": "", "versions": {"made": "1.0"}},
        **{"machine": "a machine", "date": "2026-01-01"},
    }


# --- the exchange -------------------------------------------------------------------------------


def test_a_problem_comes_back_as_it_was(tmp_path: Path) -> None:
    """Several records and outputs; of a test no more outputs than are known."""
    case = suite_cases.case(outputs=2)
    case = case._replace(estimation=case.estimation * 2)
    problem = others.problem_of(case)
    write_problem(tmp_path / "p.npz", problem)
    found = read_problem(tmp_path / "p.npz")
    assert (len(found.estimation), len(found.tests), found.n_init) == (2, 2, 5)
    pairs = zip(problem.estimation + problem.tests, found.estimation + found.tests, strict=True)
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.u, theirs.u)
        np.testing.assert_array_equal(ours.y, theirs.y)
    assert [(len(t.u), len(t.y)) for t in found.tests] == [(60, 5), (50, 5)]
    assert found.digest == problem.digest
    changed = problem.tests[0]._replace(u=problem.tests[0].u + 1e-12)
    assert problem._replace(tests=(changed, problem.tests[1])).digest != problem.digest


def test_long_records_are_cut_and_twenty_outputs_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "ROWS", 100)
    case = suite_cases.case(n_init=None)
    problem = others.problem_of(case._replace(estimation=case.estimation * 3))
    assert [len(r.u) for r in problem.estimation] == [80, 20]
    assert problem.n_init == 20


def test_an_answer_comes_back_with_what_is_not_finite(tmp_path: Path) -> None:
    sent = made_answer(np.array([[1.5], [np.inf], [np.nan]]))
    write_answer(tmp_path / "a.json", sent)
    text = (tmp_path / "a.json").read_text("utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["predictions"] == [[[1.5], [None], [None]]]
    found = read_answer(tmp_path / "a.json")
    np.testing.assert_array_equal(found.predictions[0], [[1.5], [np.nan], [np.nan]])
    assert found[1:] == sent[1:]


# --- judging ------------------------------------------------------------------------------------


def test_errors_are_counted_after_the_known_rows_in_the_tables_unit() -> None:
    case = suite_cases.case(factor=1000, unit="mV")
    y = case.test[0].y
    wrong = y + np.where(np.arange(60)[:, None] < 5, 99, 0.5)
    found = others.judge(0, case.test[0], case, others.problem_of(case), made_answer(wrong))
    assert found["pooled"] == pytest.approx(500)
    assert (found["n_init"], found["failure"]) == (5, "")


@pytest.mark.parametrize(
    ("predicted", "error", "failure"),
    [
        (np.full((60, 1), np.nan), "", "diverged"),
        (np.zeros((59, 1)), "", "predicted (59, 1) values of (60, 1)"),
        (None, "ended at the limit of 60 s", "ended at the limit of 60 s"),
    ],
)
def test_a_failure_is_a_failure(predicted: Any, error: str, failure: str) -> None:
    case = suite_cases.case()
    given = made_answer(*([] if predicted is None else [predicted]), error=error)
    found = others.judge(0, case.test[0], case, others.problem_of(case), given)
    assert (found["pooled"], found["failure"]) == (None, failure)


def test_what_a_peer_throws_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(name: str, given: task.Task) -> Any:
        raise MemoryError("too large\nfor this")

    monkeypatch.setattr(answer, "identify", identify)
    monkeypatch.setitem(NAMES, "made", ("made", ("numpy",)))
    found = answer.answer("made", others.problem_of(suite_cases.case()), 1.0, 0)
    assert (found.predictions, found.error) == ((), "MemoryError: too large")
    assert set(found.versions) == {"python", "numpy"}


def test_a_peer_that_dies_leaves_its_last_words() -> None:
    """This environment does not know such a peer; where the files lie is not told."""
    found = others.ask("nobody", others.problem_of(suite_cases.case()), THIS)
    assert found.error
    assert "/" not in found.error


def test_a_peer_that_ends_at_its_limit_says_so(tmp_path: Path) -> None:
    endless = tmp_path / "python"
    endless.write_text("#!/bin/sh\nkill -XCPU $$\n")  # as the system does
    endless.chmod(0o755)
    settings = THIS._replace(python=endless, limit=1)
    found = others.run_peer("ph", "gru", suite_cases.case(), settings)
    assert {t["failure"] for t in found["tests"]} == {"ended at the limit of 1 s"}


# --- the command --------------------------------------------------------------------------------


def test_what_is_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case, asked = suite_cases.case(), list[str]()

    def ask(peer: str, problem: Problem, settings: others.Settings) -> Answer:
        asked.append(peer)
        return made_answer(*(r.y + 1 for r in case.test))

    monkeypatch.setattr(others, "ask", ask)
    monkeypatch.setattr(records, "load", lambda name: case)
    call = ["benchmark", "peers", "ph", "--python", sys.executable, "--out", str(tmp_path)]
    assert cli._run([*call, "--peer", "gru"]) == 0
    assert "[1 of 1] ph, gru: 1, 1 (a model), 1 s; about 0 min left" in capsys.readouterr().out
    assert cli._run(call) == 0
    assert asked == ["gru", *(n for n in NAMES if n != "gru")]
    assert f"1 of 5 results were there before, in {tmp_path}" in capsys.readouterr().out
    found = json.loads((tmp_path / "ph-gru.json").read_text("utf-8"))
    assert [t["pooled"] for t in found["tests"]] == pytest.approx([1, 1])
    # other numbers in the record: measured anew
    case = case._replace(test=(replace(case.test[0], u=case.test[0].u + 1), case.test[1]))
    assert cli._run([*call, "--peer", "gru"]) == 0
    assert asked[5:] == ["gru"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toaster"], "record 'toaster' is unknown; choose one of "),
        (["ph", "--peer", "toaster"], "peer 'toaster' is unknown; choose one of frols-1, "),
        (["ph", "--python", "no/python"], "no/python is not there; make peers sets the peers'"),
    ],
)
def test_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["benchmark", "peers", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


# --- the tables ---------------------------------------------------------------------------------


def test_the_best_peer_is_the_best_of_all() -> None:
    own = [result("ph", k, [judged("ph test", 1.0, {"arx": 4.0})]) for k in range(2)]
    outside = [
        outcome("ph", "gru", {"ph test": 2.0}),
        outcome("ph", "jax-sysid", {"ph test": None}, "diverged"),
        outcome("robot-arm", "frols-1", {"robot-arm test": 0.5}),
    ]
    (row,) = table.rows(own, outside)
    assert row[3:6] == ("gru", "2", "0.50")
    (row,) = table.rows(own, outside[1:])
    assert row[3:6] == ("arx", "4", "0.25")


def test_failures_are_shown() -> None:
    tests = {"silverbox multisine": 3.0, "silverbox arrow": None}
    parts = peer_table.section(
        [
            outcome("silverbox", "gru", tests, "diverged"),
            outcome("silverbox", "frols-3", dict.fromkeys(tests), "ended at the limit of 60 s"),
        ]
    )
    text = "\n\n".join(parts)
    assert "| silverbox multisine [mV] | 5 | – | – | failed | – | **3** |" in text
    assert "| silverbox arrow [mV] | 5 | – | – | failed | – | diverged |" in text
    assert "- silverbox, gru: diverged" in text
    assert "- silverbox, frols-3: ended at the limit of 60 s" in text
    assert "made 1.0; a machine; no new fit after 5 s, ended after 60 s, seed 0." in text
    assert peer_table.section([]) == []
    own = [result("silverbox", 0, [judged(n, 1.0, {"arx": 9.0}) for n in tests])]
    document = table.document(own, [outcome("silverbox", "gru", tests, "diverged")])
    assert "| silverbox multisine | 1 | 1 mV | gru | 3 | 0.33 |" in document
    assert "| silverbox arrow | 1 | 1 mV | arx | 9 | 0.11 |" in document
    assert "- silverbox, gru: diverged" in document


# --- the peers themselves, where their libraries are --------------------------------------------


def linear(rows: int, seed: int) -> Signals:
    """Two outputs of first order, driven by one input."""
    u = np.random.default_rng(seed).normal(size=(rows, 1))
    y = np.zeros((rows, 2))
    for t in range(1, rows):
        y[t] = np.array([0.5, 0.7]) * y[t - 1] + np.array([1.0, -2.0]) * u[t - 1]
    return Signals(u, 3 + y)


@pytest.mark.parametrize(
    ("name", "needs"), [("frols-1", "sysidentpy"), ("jax-sysid", "jax_sysid"), ("gru", "optax")]
)
def test_a_peer_follows_a_linear_process(
    name: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(needs) is None:
        pytest.skip(f"needs {needs}, which lives in the environment of make peers")
    if name == "gru":
        from occamid_benchmarks.peers import gru

        for setting, value in {"UNITS": 8, "SEEDS": 1, "STEPS": 60, "EVERY": 20}.items():
            monkeypatch.setattr(gru, setting, value)
    whole = linear(150, 2)
    test = whole._replace(y=whole.y[:10])
    problem = Problem((linear(200, 0), linear(160, 1)), (test,))
    found = answer.answer(name, problem, 20.0, 0)
    assert found.error == ""
    assert found.predictions[0].shape == whole.y.shape
    error = np.sqrt(np.mean((found.predictions[0] - whole.y)[10:] ** 2, axis=0))
    assert np.all(error < (1.0 if name == "gru" else 0.05) * whole.y.std(axis=0)), found.about
