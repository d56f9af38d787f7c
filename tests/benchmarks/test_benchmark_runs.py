"""The paper's experiments: rows, both protocols, what is written, and what is not run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from occamid import Index, SettingsError, train
from occamid_benchmarks import registry, reproduce
from occamid_benchmarks.baselines import measure
from occamid_benchmarks.baselines.grid import BASELINES
from occamid_benchmarks.experiments import (
    WARNING,
    Experiment,
    Protocol,
    Quoted,
    experiment,
    experiments,
)
from occamid_benchmarks.registry import Data
from tests.support import bench_cases
from tests.support.bench_cases import N_INIT, TINY

KEYS = {
    *("experiment", "protocol", "rmse", "sparsity", "cycle", "regressors_total"),
    *("regressors_kept", "kept_names", "neurons_kept", "seconds", "seed", "version", "machine"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, reproduce.Outcome]:
    """One training for each protocol on the stand-in."""
    e, protocols = bench_cases.row(), get_args(Protocol)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "load", lambda record, protocol: bench_cases.data())
        return {p: reproduce.run(e, p, e.settings) for p in protocols}


# --- the rows -----------------------------------------------------------------------------------


def test_ten_rows_in_the_order_of_the_paper() -> None:
    assert list(experiments()) == [
        f"{record}-{network}" for record in registry.BENCHMARKS for network in ("mlp", "lstm")
    ]
    for name, e in experiments().items():
        assert (e.name, e.record) == (name, name.rsplit("-", 1)[0])
        assert e.settings.network == name.rsplit("-", 1)[1]
        assert e.settings.restarts == 20  # Table 1 is over 20
        assert e.about.endswith(".")
        assert len(e.paper_rmse) == (2 if e.record == "coupled-drives" else 1)
        assert 0 < e.paper_sparsity < 1
        for quoted in e.paper_rmse:
            assert 0 < quoted.min <= quoted.mean
            assert 0 <= quoted.std < quoted.mean
        linear = e.settings.network == "mlp" and e.settings.activation == "identity"
        assert e.limit == (1.03 if linear else 1.10)
    assert experiment("hairdryer-mlp") is experiments()["hairdryer-mlp"]


def test_an_unknown_experiment() -> None:
    with pytest.raises(SettingsError) as caught:
        experiment("toaster-mlp")
    assert str(caught.value) == (
        f"no experiment is called 'toaster-mlp'; there are {', '.join(experiments())}."
    )


# --- the protocols ------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["paper", "honest"])
def test_errors_are_those_of_the_simulations(
    protocol: str, outcomes: dict[str, reproduce.Outcome]
) -> None:
    """A plain loop: the whole record in the paper's protocol, else after the window."""
    outcome = outcomes[protocol]
    n_init = outcome.n_init
    assert n_init == (3 if protocol == "paper" else N_INIT)
    skip = 0 if protocol == "paper" else N_INIT
    for k, record in enumerate(bench_cases.data().test):
        for restart, cycle in np.ndindex(TINY.restarts, TINY.cycles):
            model = outcome.result.model(Index(0, restart, cycle))
            run = model.free_run(record.u, record.y[:n_init])
            total = sum((run[t, 0] - record.y[t, 0]) ** 2 for t in range(skip, len(record)))
            expected = np.sqrt(total / (len(record) - skip))
            assert outcome.errors[k, restart, cycle] == pytest.approx(expected, rel=1e-4)


def test_a_run_that_diverges_counts_as_infinite() -> None:
    record = bench_cases.process(10, 0, "made")
    runs = np.stack([record.y, record.y + 1, np.full_like(record.y, np.nan), record.y * 1e300])
    found = reproduce.free_run_errors(runs, record, "paper", 3)
    np.testing.assert_array_equal(found, [0, 1, np.inf, np.inf])
    early = record.y.copy()
    early[:4] += 7
    assert reproduce.free_run_errors(early, record, "honest", 4) == 0
    assert reproduce.free_run_errors(early, record, "honest", 3) > 0
    assert reproduce.free_run_errors(early, record, "paper", 4) > 0


def test_known_outputs() -> None:
    data = bench_cases.data()
    assert reproduce.known_outputs(data, "paper", 3) == 3
    assert reproduce.known_outputs(data, "honest", 3) == N_INIT
    assert reproduce.known_outputs(data, "honest", 9) == 9
    assert reproduce.known_outputs(data._replace(n_init=None), "honest", 3) == 3


def test_the_splits_of_the_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "load", lambda *arguments: arguments)
    assert tuple(reproduce.load("glass-tube", "paper")) == ("glass-tube", "paper")
    assert tuple(reproduce.load("glass-tube", "honest")) == ("glass-tube", "official")


def changed_tests(outcome: reproduce.Outcome, at: Index, after: int) -> Data:
    """Test outputs that one model predicts perfectly after the first rows."""
    data, tests = bench_cases.data(), []
    for record in data.test:
        run = outcome.result.model(at).free_run(record.u, record.y[:after])
        y = np.concatenate([record.y[:after], run[after:]])
        tests.append(record.__class__(u=record.u, y=y, sampling_time=0.08, name=record.name))
    return data._replace(test=tuple(tests))


@pytest.mark.parametrize("protocol", ["paper", "honest"])
def test_only_the_paper_protocol_looks_at_the_test_outputs(
    protocol: Protocol, outcomes: dict[str, reproduce.Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test records made so that another model fits them perfectly after the window."""
    outcome = outcomes[protocol]
    cycle = 0 if outcome.chosen.cycle else 1
    other = Index(0, (outcome.chosen.restart + 1) % TINY.restarts, cycle)
    made = changed_tests(outcome, other, outcome.n_init)
    monkeypatch.setattr(reproduce, "load", lambda *_: made)
    again = reproduce.run(outcome.experiment, protocol, outcome.experiment.settings)
    assert not np.allclose(again.errors, outcome.errors)
    before, after = reproduce.report(outcome), reproduce.report(again)
    assert min(e[other.restart, other.cycle] for e in again.errors) < 1e-4
    if protocol == "paper":
        assert again.chosen == other
        assert after["cycle"] == other.cycle + 1
        assert after["most_accurate"]["restart"] == other.restart
    else:
        assert again.chosen == outcome.chosen == outcome.result.best_index
        for key in ("sparsity", "cycle", "kept_names", "neurons_kept", "sparsity_by_matrix"):
            assert after[key] == before[key]


def test_each_protocol_chooses_among_several_values_of_lam(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The paper's takes the λ of the best model on the test records, the honest one its score's."""
    monkeypatch.setattr(reproduce, "load", lambda *_: bench_cases.data())
    several = TINY.replace(lam=(0.5, 2e-3, 1e-3))
    e = bench_cases.row()
    paper, honest = reproduce.runs(e, ("paper", "honest"), several)
    whole = train(bench_cases.data().estimation, several)
    alone = {lam: reproduce.run(e, "paper", TINY.replace(lam=lam)) for lam in several.lam}
    best = {
        lam: sum(one.errors[k].min() / q.min for k, q in enumerate(e.paper_rmse))
        for lam, one in alone.items()
    }
    lam = min(best, key=lambda v: best[v])
    assert paper.result.settings.lam == (lam,)
    np.testing.assert_allclose(paper.errors, alone[lam].errors, rtol=1e-3)
    at = whole.best_index
    assert honest.result.settings.lam == (several.lam[at.lam],)
    assert honest.chosen == Index(0, at.restart, at.cycle)
    for name, value in honest.result.model(honest.chosen).weights.items():
        np.testing.assert_array_equal(value, whole.model(at).weights[name])

    found = reproduce.report(paper)
    assert found["lam"] == lam
    assert found["settings"]["lam"] == several.model_dump(mode="json")["lam"]
    assert [tried["lam"] for tried in found["tried"]] == list(several.lam)
    assert found["tried"][several.lam.index(lam)]["rmse"] == found["rmse"]
    assert "tried" not in reproduce.report(alone[lam])


def with_errors(outcome: reproduce.Outcome) -> reproduce.Outcome:
    """Made errors: none is smallest where the score is, nor always in the same cycle."""
    scores = outcome.result.score[0]
    worse = np.argmin(scores, axis=-1)[:, None] == np.arange(TINY.cycles)
    worse[0] = ~worse[0]  # but for the first restart
    made = np.random.default_rng(0).uniform(1, 2, size=(2, TINY.restarts, TINY.cycles)) + worse
    return replace(outcome, errors=made)


def test_the_papers_figures_are_of_each_restarts_best_cycle(
    outcomes: dict[str, reproduce.Outcome],
) -> None:
    made = with_errors(outcomes["paper"])
    found, errors = reproduce.report(made), made.errors
    for k, (spread, first) in enumerate(
        zip(found["rmse"].values(), found["first_cycle"].values(), strict=True)
    ):
        best = [min(errors[k, restart]) for restart in range(TINY.restarts)]
        assert spread == pytest.approx(
            {"mean": np.mean(best), "std": np.std(best), "min": np.min(best)}
        )
        assert first["mean"] == pytest.approx(np.mean(errors[k, :, 0]))
    total = errors[0] / 0.4 + errors[1] / 0.3  # relative to the paper's best
    restart, cycle = np.unravel_index(np.argmin(total), total.shape)
    at = found["most_accurate"]
    assert (at["restart"], at["cycle"]) == (restart, cycle + 1)
    assert at["rmse"] == [errors[k, restart, cycle] for k in (0, 1)]


def test_the_honest_figures_are_of_the_cycle_with_the_best_score(
    outcomes: dict[str, reproduce.Outcome],
) -> None:
    made = with_errors(outcomes["honest"])
    found = reproduce.report(made)
    cycles = [int(np.argmin(made.result.score[0, m])) for m in range(TINY.restarts)]
    for k, spread in enumerate(found["rmse"].values()):
        each = [made.errors[k, m, c] for m, c in enumerate(cycles)]
        assert spread == pytest.approx(
            {"mean": np.mean(each), "std": np.std(each), "min": np.min(each)}
        )
    assert found["most_accurate"] is None
    assert "warning" not in found


def test_diverged_restarts_are_left_out_and_counted() -> None:
    values = np.array([2.0, np.inf, 4.0])
    assert reproduce.spread(values) == {"mean": 3.0, "std": 1.0, "min": 2.0}
    assert reproduce.spread(np.full(2, np.inf)) == dict.fromkeys(("mean", "std", "min"), np.inf)


LIMITS = Experiment("made", "hairdryer", "", TINY, (Quoted(1.0, 0.1, 0.8),), paper_sparsity=0.5)


@pytest.mark.parametrize(
    ("errors", "sparsity", "chosen"),
    [
        # within 10 % of the best: the sparsest of those, though another is more accurate
        ([0.80, 0.87, 0.89], [0.50, 0.60, 0.99], 1),
        # none so accurate is sparse enough (0.44): within 10 % of the mean
        ([0.80, 1.09, 1.11], [0.40, 0.70, 0.90], 1),
        # 0.06 less sparse than the paper still counts
        ([0.80, 1.09, 1.11], [0.445, 0.70, 0.90], 0),
        # none meets anything: the most accurate
        ([1.30, 1.20, 1.40], [0.90, 0.10, 0.90], 1),
    ],
)
def test_the_sparsest_model_within_the_limits(
    errors: list[float], sparsity: list[float], chosen: int
) -> None:
    result: Any = SimpleNamespace(table={"sparsity": np.array([[sparsity]])})
    found = reproduce._within_limits(LIMITS, result, np.array([[errors]]))
    assert found == Index(0, 0, chosen)


# --- what is written ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(
    outcomes: dict[str, reproduce.Outcome], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for protocol, outcome in outcomes.items():
        reproduce.write(outcome, folder / protocol)
    return folder


@pytest.mark.parametrize("protocol", ["paper", "honest"])
def test_the_files_of_a_run(
    protocol: str, written: Path, outcomes: dict[str, reproduce.Outcome]
) -> None:
    figures = ("free-run-1", "free-run-2", "posterior-1", "posterior-2", "sparsity")
    assert sorted(p.name for p in (written / protocol).iterdir()) == [
        *(f"hairdryer-mlp-{figure}.png" for figure in figures),
        "hairdryer-mlp.json",
    ]
    for path in (written / protocol).glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    found = json.loads((written / protocol / "hairdryer-mlp.json").read_text("utf-8"))
    assert set(found) >= KEYS
    assert (found.get("warning") == WARNING) == (protocol == "paper")
    assert (found["experiment"], found["protocol"]) == ("hairdryer-mlp", protocol)
    assert list(found["rmse"]) == ["made test 1", "made test 2"]
    for spread in found["rmse"].values():
        assert set(spread) == {"mean", "std", "min"}
    assert set(found["seconds"]) == {"compile", "run"}
    model = outcomes[protocol].result.model(outcomes[protocol].chosen)
    assert found["kept_names"] == list(model.regressors)
    assert found["regressors_kept"] == len(model.regressors)
    assert found["regressors_total"] == 4 + 2
    assert found["neurons_kept"] == sum(model.neurons)
    assert found["sparsity"] == pytest.approx(model.sparsity)
    assert found["cycle"] == outcomes[protocol].chosen.cycle + 1
    assert found["seed"] == TINY.seed
    assert found["chosen"]["rmse"] == [
        outcomes[protocol].errors[k][outcomes[protocol].chosen[1:]] for k in (0, 1)
    ]
    assert [step["cycle"] for step in found["path"]] == [1, 2]


def test_what_is_finished_is_known(written: Path) -> None:
    e, folder = bench_cases.row(), written / "paper"
    assert reproduce.finished(e, "paper", TINY, folder)
    assert not reproduce.finished(e, "honest", TINY, folder)
    for change in ({"seed": 1}, {"restarts": 4}, {"lam": (3e-3,)}):
        assert not reproduce.finished(e, "paper", TINY.replace(**change), folder)
    assert not reproduce.finished(e, "paper", TINY, folder / "none")
    assert not reproduce.finished(bench_cases.row(name="hairdryer-lstm"), "paper", TINY, folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_a_broken_report_is_not_finished(text: str, tmp_path: Path) -> None:
    (tmp_path / "hairdryer-mlp.json").write_text(text, encoding="utf-8")
    assert not reproduce.finished(bench_cases.row(), "paper", TINY, tmp_path)


# --- baselines ----------------------------------------------------------------------------------


def test_the_baselines_of_a_record() -> None:
    assert measure.names("heat-exchanger") == [
        *("arx", "output-error", "process", "process-disturbance", "gp-se", "gp-rq"),
        *("mlp-plain", "lstm-plain", "lstm-no-lags"),
    ]
    assert measure.names("coupled-drives")[0] == "arx"


@pytest.mark.parametrize("name", measure.PLAIN)
def test_plain_networks_are_the_papers_without_a_prior(name: str) -> None:
    plain = measure.plain_settings("glass-tube", name, restarts=4, seed=9)
    own = experiments()[f"glass-tube-{name.split('-')[0]}"].settings
    assert (plain.restarts, plain.seed, plain.cycles) == (4, 9, 1)
    assert plain.epochs == own.epochs * own.cycles
    assert (plain.prune_psi, plain.prune_weight) == (0, 0)
    assert plain.lam[0] < 1e-6
    lags = (0, 0) if name == "lstm-no-lags" else (own.input_lags, own.output_lags)
    assert (plain.input_lags, plain.output_lags) == lags
    assert (plain.network, plain.hidden, plain.bias) == (own.network, own.hidden, own.bias)


def test_a_plain_network_under_both_protocols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "load", lambda *_: bench_cases.data())
    plain = TINY.replace(lam=(1e-9,), prune_psi=0.0, prune_weight=0.0, cycles=1)
    monkeypatch.setattr(measure, "plain_settings", lambda *_: plain)
    found = measure.measure_one("hairdryer", "mlp-plain", 3, 0)
    result = train(bench_cases.data().estimation, plain)
    best = int(np.argmin(result.table["free_run_rmse"][0, :, 0, 0]))
    for record in bench_cases.data().test:
        runs = {n: result.free_runs(record, n)[0, :, 0, :, 0] - record.y[:, 0] for n in (3, N_INIT)}
        whole = np.sqrt(np.mean(runs[3] ** 2, axis=1))
        after = np.sqrt(np.mean(runs[N_INIT][:, N_INIT:] ** 2, axis=1))
        assert found["paper"]["rmse"][record.name] == pytest.approx(whole.min(), rel=1e-6)
        assert found["paper"]["mean"][record.name] == pytest.approx(whole.mean(), rel=1e-6)
        assert found["honest"]["rmse"][record.name] == pytest.approx(after[best], rel=1e-6)


@pytest.mark.parametrize(("same", "trainings"), [(True, 1), (False, 2)])
def test_protocols_with_the_same_estimation_records_share_a_training(
    same: bool, trainings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench_cases.data()
    count: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        count.append(1)
        return train(*arguments, **options)

    other = (
        made if same else made._replace(estimation=(bench_cases.process(80, 0, "made estimation"),))
    )
    e = bench_cases.row()
    for module in (reproduce, measure):
        load = lambda record, protocol: made if protocol == "paper" else other  # noqa: E731
        monkeypatch.setattr(module, "load", load)
        monkeypatch.setattr(module, "train", counted)
    paper, honest = reproduce.runs(e, ("paper", "honest"), e.settings)
    assert (paper.protocol, honest.protocol, len(count)) == ("paper", "honest", trainings)
    assert honest.chosen == honest.result.best_index
    monkeypatch.setattr(measure, "plain_settings", lambda *_: TINY.replace(cycles=1))
    measure.measure_one("hairdryer", "mlp-plain", 3, 0)
    assert len(count) == 2 * trainings


class Candidate:
    """A baseline that misses every output by a constant."""

    def __init__(self, miss: float, criterion: float) -> None:
        self.miss, self.criterion, self.max_lag, self.parameters = miss, criterion, 2, 1

    def describe(self) -> str:
        return f"misses {self.miss:g}"

    def free_run(self, u: np.ndarray, y_init: np.ndarray) -> np.ndarray:
        by_name = {len(r): r.y for r in bench_cases.data().test}
        y = by_name[len(u)].copy()
        assert np.array_equal(y_init, y[: len(y_init)])
        y[len(y_init) :] += self.miss
        return y


def test_a_classical_baseline_is_chosen_as_the_protocol_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the test error in the paper's protocol, by its own criterion in the honest one."""
    monkeypatch.setattr(measure, "load", lambda *_: bench_cases.data())
    candidates = [Candidate(3.0, 1.0), Candidate(2.0, 5.0), Candidate(np.nan, 9.0)]
    fake = SimpleNamespace(candidates=lambda records: candidates)
    monkeypatch.setitem(BASELINES, "arx", fake)
    found = measure.measure_one("hairdryer", "arx", 3, 0)
    assert (found["paper"]["model"], found["honest"]["model"]) == ("misses 2", "misses 3")
    assert found["honest"]["candidates"] == 3
    for record in bench_cases.data().test:
        n = len(record)  # two known samples count as zero error in the paper's protocol
        assert found["paper"]["rmse"][record.name] == pytest.approx(2 * np.sqrt((n - 2) / n))
        assert found["honest"]["rmse"][record.name] == pytest.approx(3.0)


def test_baselines_resume_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def one(record: str, name: str, restarts: int, seed: int) -> dict[str, Any]:
        if name == "subspace" and "subspace" not in measured:
            measured.append(name)
            raise KeyboardInterrupt
        measured.append(name)
        errors = {"rmse": {"t": float("inf") if name == "armax" else 0.5}, "model": "m"}
        return {"name": name, "paper": errors, "honest": errors, "seconds": float(seed)}

    monkeypatch.setattr(measure, "measure_one", one)
    with pytest.raises(KeyboardInterrupt):
        measure.measure_all("hairdryer", tmp_path / "new", restarts=2, seed=3)
    path = tmp_path / "new" / "baselines-hairdryer.json"
    names = measure.names("hairdryer")
    before = names[: names.index("subspace")]
    assert [r["name"] for r in json.loads(path.read_text("utf-8"))["rows"]] == before
    measured[:] = ["subspace"]
    told: list[str] = []
    measure.measure_all("hairdryer", tmp_path / "new", 2, 3, lambda r: told.append(r["name"]))
    assert measured[1:] == names[names.index("subspace") :]
    assert told == names
    found = json.loads(path.read_text("utf-8"))
    assert [r["name"] for r in found["rows"]] == names
    assert found["warning"] == WARNING
    assert all(row["machine"] and row["date"] for row in found["rows"])
    drawn = {row["name"]: (row["restarts"], row["seed"]) for row in found["rows"] if "seed" in row}
    assert drawn == dict.fromkeys(measure.PLAIN, (2, 3))
    assert found["rows"][names.index("armax")]["paper"]["rmse"] == {"t": None}

    done = len(measured)
    measure.measure_all("hairdryer", tmp_path / "new", 2, 4)  # another seed: the networks alone
    assert measured[done:] == list(measure.PLAIN)
    measure.measure_all("hairdryer", tmp_path / "new", 5, 4, only=["lstm-plain", "arx"])
    assert measured[done + 3 :] == ["lstm-plain"]
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert [row["name"] for row in rows] == names
    assert [row["restarts"] for row in rows if "seed" in row] == [2, 5, 2]
