"""``occamid search``: the run folder it leaves, what survives a stop, and what it refuses."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from occamid import load
from occamid.cli import searching
from occamid.data import twins
from occamid.identification import referee
from occamid.identification.search import search as searches
from tests.support.commands import Runner, call_main, listing, strict_json

TINY = """\
example = "hairdryer-twin"

[options]
effort = "quick"
network = "mlp"
hidden = [2]
activation = "identity"
restarts = 2
epochs = 5
cycles = 1
input_lags = 4
output_lags = 2
input_delay = 0
refined = false
skip = false
"""


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(TINY, encoding="utf-8")
    return Runner(monkeypatch, capsys, tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One search over λ alone; its folder is only read."""
    base = tmp_path_factory.mktemp("searched")
    (base / "job.toml").write_text(TINY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        told = ("--config", base / "job.toml", "--trials", 3, "--out", base / "run")
        code = call_main(patch, "search", *told)
    assert code == 0
    assert [p.name for p in base.iterdir() if p.name.startswith(".")] == []
    return base / "run"


def test_a_run_of_identify_with_a_table_of_trials(finished: Path, run: Runner) -> None:
    told = strict_json(finished / "trials.json")
    assert [t["number"] for t in told["trials"]] == [0, 1, 2]
    assert told["chosen"] in [t["number"] for t in told["trials"]]
    assert set(told["front"]) <= {0, 1, 2}
    rows = list(csv.DictReader((finished / "trials.csv").read_text("utf-8").splitlines()))
    assert [float(r["score"]) for r in rows] == [t["score"] for t in told["trials"]]
    assert [r["trial"] for r in rows if r["chosen"] == "1"] == [str(told["chosen"])]
    page = (finished / "report.html").read_text("utf-8")
    assert 'id="trials"' in page
    assert '"front":{"data"' in page
    assert "trials.csv" in strict_json(finished / "run.json")["files"]
    for command in (("inspect", finished), ("report", finished, "--out", "again.html")):
        assert run(*command).code == 0
    assert Path("again.html").read_text("utf-8") == page


def test_its_model_simulates(finished: Path, run: Runner) -> None:
    record = twins.make("hairdryer-twin").test
    lines = [f"{u},{y}" for u, y in zip(record.u[:60, 0], record.y[:60, 0], strict=True)]
    Path("log.csv").write_text("\n".join(["u,y", *lines]), encoding="utf-8")
    step = ("--sampling-time", record.sampling_time)
    assert run("simulate", finished, "log.csv", *step, "--out", "sim.csv").code == 0
    assert len(Path("sim.csv").read_text("utf-8").splitlines()) == 61


def test_its_settings_repeat_it_without_a_search(finished: Path, run: Runner) -> None:
    assert run("identify", "--config", finished / "settings.toml", "--out", "same").code == 0
    one, other = (load(folder) for folder in (finished, "same"))
    assert one.inflation.tolist() == other.inflation.tolist()
    assert all((one.first.weights[k] == other.first.weights[k]).all() for k in one.first.weights)


def test_trials_outlive_a_stop(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = referee.hear, [0]

    def stops(*given: Any, **more: Any) -> None:
        calls[0] += 1
        if calls[0] == 5:
            raise KeyboardInterrupt
        real(*given, **more)

    monkeypatch.setattr(searches, "hear", stops)
    told = ("search", "--config", "job.toml", "--lam", "1e-3", "--trials", 2, "--out", "run")
    stopped = run(*told)
    assert stopped.code == 130
    assert searching.RESUME in stopped.err
    assert Path(".run.study").is_file()
    assert not Path("run").exists()
    gone = run(*told, "--resume", "--json")
    assert gone.code == 0
    assert len(json.loads(gone.out)["search"]["trials"]) == 2
    assert calls[0] == 5 + 3  # one whole trial was there; half a one counts for nothing
    assert not Path(".run.study").exists()


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("--trials", "0"), "--trials is a whole number, 1 or more"),
        (("--trials", "-3"), "--trials is a whole number, 1 or more"),
        (("--trials", "x"), "Invalid value for '--trials'"),
        (("--pick", "smallest"), "--pick is simplest, best or the number of a trial"),
        (("--pick", "7"), "name the --study that has it"),
        (("--study", "job.toml"), "job.toml is read by this command"),
        (("--study", "log.csv"), "log.csv is no journal of a study"),
        (("--study", "no/study.log"), "there is no folder no"),
        (("--study", "run/study.log"), "is inside the run folder run"),
        (("--study", "."), "is a folder"),
        (("--study", "nothing://here"), "the database cannot be used"),
        (("--activation", "cosine"), "'cosine' is unknown"),
        (("--lam", "-1"), "setting lam"),
        (("--input-delay", "-1"), "setting input_delay"),
        (("--input-delay", "9"), "input_delay: 9 exceeds input_lags"),
        (("--out", "taken"), "taken holds files and is no run of occamid"),
    ],
)
def test_one_line_and_code_2(told: tuple[str, ...], said: str, run: Runner) -> None:
    Path("log.csv").write_text("u,y\n1,2\n", encoding="utf-8")
    Path("taken").mkdir()
    (Path("taken") / "notes.txt").write_text("mine", encoding="utf-8")
    before = listing(Path())
    outcome = run("search", "--config", "job.toml", "--json", "--out", "run", *told)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert listing(Path()) == before


def test_a_hidden_file_of_the_name_of_ours_is_left_alone(run: Runner) -> None:
    Path(".run.study").write_text("mine", encoding="utf-8")
    said = run.fails("search", "--config", "job.toml", "--json", "--trials", 1, "--out", "run")
    assert "is no journal of a study" in said


def test_without_optuna(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = run.fails("search", "--config", "job.toml", "--out", "run")
    assert said == 'a search needs optuna; install it with pip install "occamid[search]".'
