"""The suite: splits, checksums, what is measured, what is not run again, and its table."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from scipy.stats import norm

from occamid import DataError, FileError, Record, cli, combine
from occamid.assessment.metrics import rmse
from occamid.bands.calibration import HORIZONS
from occamid.identification.assemble import Workshop
from occamid.identification.families import CLASSICAL
from occamid.identification.folds import whole
from occamid.identification.options import BUDGETS
from occamid_benchmarks import registry
from occamid_benchmarks.suite import measure, peers, records, table
from occamid_benchmarks.suite.peers import Peer
from occamid_benchmarks.suite.plain_bands import conformal, diagonal
from occamid_benchmarks.suite.records import Case
from tests.support import suite_cases
from tests.support.linear_model import linear_model, linear_posterior, linear_record
from tests.support.real import real_case
from tests.support.suite_cases import Offset, judged, numbered, result

NO_PEER = Peer(None, "failed: made so", 0.0)


# --- records ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "estimation", "tests", "channels", "n_init"),
    [
        (
            "silverbox",
            65062,
            {"multisine": 21688, "arrow": 40475, "arrow-no-extrapolation": 32000},
            (1, 1),
            50,
        ),
        ("wiener-hammerstein", 100_000, {"test": 78_800}, (1, 1), 50),
        ("emps", 24841, {"test": 24841}, (1, 1), 20),
        ("steam-exchanger", 2400, {"test": 1600}, (1, 1), 20),
        ("steam-generator", 5760, {"test": 3840}, (4, 4), 20),
        ("evaporator", 3783, {"test": 2522}, (3, 3), 20),
        ("robot-arm", 614, {"test": 410}, (1, 1), 20),
        ("ph", 1200, {"test": 801}, (2, 1), 20),
        ("cd-player", 1228, {"test": 820}, (2, 2), 20),
        ("glass-furnace", 748, {"test": 499}, (3, 6), 20),
    ],
)
def test_official_splits(
    name: str, estimation: int, tests: dict[str, int], channels: tuple[int, int], n_init: int
) -> None:
    case = real_case(name)
    assert [len(r) for r in case.estimation] == [estimation]
    assert {r.name: len(r) for r in case.test} == {f"{name} {k}": n for k, n in tests.items()}
    for record in (*case.estimation, *case.test):
        assert (record.u.shape[1], record.y.shape[1]) == channels
    assert case.n_init == n_init


def test_the_papers_records_keep_their_official_splits() -> None:
    drives = real_case("coupled-drives")
    assert [len(r) for r in (*drives.estimation, *drives.test)] == [400, 400, 100, 100]
    assert (drives.n_init, drives.factor) == (10, 1.0)


def test_there_are_fifteen() -> None:
    assert len(set(records.names())) == 15
    assert records.names()[:5] == tuple(registry.BENCHMARKS)
    with pytest.raises(DataError, match="no record is called 'toaster'; there are hairdryer, "):
        records.load("toaster")


def put(
    folder: Path, name: str, patch: pytest.MonkeyPatch, contents: dict[str, dict[str, Any] | str]
) -> None:
    """Made files that the suite takes for the real ones."""
    patch.setenv(registry.VARIABLE, str(folder))
    sums = {}
    for file, content in contents.items():
        path = folder / "suite" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        else:
            scipy.io.savemat(path, content)
        sums[file] = sha256(path.read_bytes()).hexdigest()
    patch.setitem(records.SOURCES, name, replace(records.SOURCES[name], files=sums))


def ends(record: Record) -> tuple[float, float]:
    """First and last input, which are the numbers of the rows; outputs are their negatives."""
    np.testing.assert_array_equal(record.y, -record.u)
    return record.u[0, 0], record.u[-1, 0]


def test_the_rows_of_the_silverbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(131_072.0)[None]
    put(tmp_path, "silverbox", monkeypatch, {"SNLS80mV.mat": {"V1": rows, "V2": -rows}})
    case = records.load("silverbox")
    assert ends(case.estimation[0]) == (40_650, 105_711)
    assert [ends(r) for r in case.test] == [(105_712, 127_399), (100, 40_574), (100, 32_099)]
    assert (case.factor, case.unit) == (1000, "mV")
    assert case.test[0].sampling_time == pytest.approx(1 / 610.35, rel=1e-5)


def test_the_rows_of_wiener_hammerstein(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{k},{-k},," for k in range(188_000)]
    text = "\n".join(['"uBenchMark","yBenchMark","fs",', *lines, "", ""])
    put(tmp_path, "wiener-hammerstein", monkeypatch, {"WienerHammerBenchmark.csv": text})
    case = records.load("wiener-hammerstein")
    assert ends(case.estimation[0]) == (5_200, 105_199)
    assert ends(case.test[0]) == (105_200, 183_999)


def test_emps_learns_from_one_file_and_is_tested_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("DATA_EMPS.mat", "DATA_EMPS_PULSES.mat")
    rows = [np.arange(k, k + 30.0)[:, None] for k in (100, 500)]
    made = {f: {"vir": r, "qm": -r, "qg": r + 1} for f, r in zip(files, rows, strict=True)}
    put(tmp_path, "emps", monkeypatch, dict(made))
    case = records.load("emps")
    assert (ends(case.estimation[0]), ends(case.test[0])) == ((100, 129), (500, 529))
    assert (case.factor, case.unit) == (1000, "mm")


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("steam-exchanger", [1], [2]),
        ("steam-generator", [1, 2, 3, 4], [5, 6, 7, 8]),
        ("evaporator", [0, 1, 2], [3, 4, 5]),
        ("robot-arm", [0], [1]),
        ("ph", [1, 2], [3]),
        ("cd-player", [0, 1], [2, 3]),
        ("glass-furnace", [1, 2, 3], [4, 5, 6, 7, 8, 9]),
    ],
)
def test_the_columns_of_daisy(
    name: str,
    inputs: list[int],
    outputs: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A matrix whose entries say where they stood: row + column / 100."""
    columns = max(outputs) + 1
    matrix = np.arange(101)[:, None] + np.arange(columns) / 100
    (file,) = records.SOURCES[name].files
    put(tmp_path, name, monkeypatch, {file: {"matrix": matrix}})
    case = records.load(name)
    (estimation,), (test,) = case.estimation, case.test
    np.testing.assert_array_equal(estimation.u, matrix[:60, inputs])
    np.testing.assert_array_equal(estimation.y, matrix[:60, outputs])
    np.testing.assert_array_equal(test.u, matrix[60:, inputs])
    np.testing.assert_array_equal(test.y, matrix[60:, outputs])
    assert (case.unit == "σ") == (len(outputs) > 1)


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = records.SOURCES["ph"].files
    put(tmp_path, "ph", monkeypatch, {file: {"m": np.ones((9, 4))}})
    records.load("ph")
    path = tmp_path / "suite" / file
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(FileError, match=r"pHdata\.mat is not the ph record it should be") as caught:
        records.load("ph")
    assert "replace it by the original" in str(caught.value)


def test_a_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    where = tmp_path / "suite" / "daisy" / "robotArm.mat"
    message = (
        f"robot-arm needs {where}, which cannot be read: No such file or directory. Put the file "
        "there, or name the folder that holds suite/daisy/robotArm.mat in OCCAMID_DATA."
    )
    with pytest.raises(FileError) as caught:
        records.load("robot-arm")
    assert str(caught.value) == message
    out = tmp_path / "out"
    assert cli._run(["benchmark", "suite", "robot-arm", "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not out.exists()
    monkeypatch.delenv(registry.VARIABLE)
    with pytest.raises(FileError, match=r"robot-arm needs suite/daisy/robotArm\.mat; put it into"):
        records.load("robot-arm")


# --- measures -----------------------------------------------------------------------------------


def test_figures_of_one_output_are_in_the_tables_unit() -> None:
    case = suite_cases.case(factor=1000, unit="mV")
    found = measure.judge(Offset([0.5], [0.4]), case.test[0], case, np.array([0.25]), {})  # type: ignore[arg-type]
    assert (found["name"], found["n_init"]) == ("made test", 6)  # the model needs more than 5
    assert found["rmse"] == pytest.approx([500])
    assert found["pooled"] == pytest.approx(500)
    assert found["expected_over_test"] == pytest.approx(0.5)
    # 0.5 is beyond the 50 % band (0.27) and inside those of 80 % (0.51) and 95 % (0.78)
    assert found["coverage"] == {"50%": 0, "80%": 1, "95%": 1}
    z = 0.5 / 0.4
    crps = 0.4 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found["crps"] == pytest.approx(1000 * crps)


def test_figures_of_several_outputs_are_pooled_in_their_spread() -> None:
    case = suite_cases.case(outputs=2, n_init=None, unit="σ")
    spread = case.estimation[0].y.std(axis=0)
    assert spread[1] > 5 * spread[0]
    model: Any = Offset([3 * spread[0], 4 * spread[1]], [100 * spread[0], 0.01 * spread[1]])
    found = measure.judge(model, case.test[0], case, 2 * spread, {})
    assert found["n_init"] == 8  # as the model asks for
    assert found["rmse"] == pytest.approx([3 * spread[0], 4 * spread[1]])
    assert found["pooled"] == pytest.approx(np.sqrt(12.5))
    assert found["expected_over_test"] == pytest.approx(2 / np.sqrt(12.5))
    assert found["coverage"] == {"50%": 0.5, "80%": 0.5, "95%": 0.5}


def test_plainer_bands_lie_around_the_same_runs() -> None:
    """A correlated posterior loses its correlation; a constant band holds 95 % of the errors."""
    factor = np.array([[0.03, 0.0], [0.02, 0.01]])
    posterior = replace(linear_posterior(linear_model(), 0.1), factor=factor)
    model = replace(combine([posterior]), inflation=np.full((len(HORIZONS), 1), 7.0))
    found = diagonal(model)
    precision = np.linalg.inv(factor @ factor.T)
    np.testing.assert_allclose(found.posteriors[0].factor, 1 / np.sqrt(np.diag(precision)))
    record = linear_record()
    one, other = model.simulate(record, 5), found.simulate(record, 5)
    np.testing.assert_allclose(one.mean, other.mean)
    assert np.all(other.spread[5:] < one.spread[5:])
    errors = np.linspace(-1, 1, 999)[:, None]
    assert conformal([errors[:400], errors[400:]]) == pytest.approx([0.95 / 1.95996], rel=5e-3)


@pytest.mark.parametrize("longest", [5000, 40, 31])
def test_ten_steps_ahead_every_row_counts_once(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long records are cut; rows that are fewer steps ahead are not counted."""
    monkeypatch.setattr(measure, "LONGEST", longest)
    model: Any = Offset([0.0], [1.0])
    record = numbered(150)
    found = measure.coverage_ahead(model, record, 5)
    assert found == pytest.approx(np.mean(np.arange(14, 150) % 3 == 0))
    assert set(model.asked) == {min(longest, 150)}
    assert measure.coverage_ahead(model, numbered(14), 5) is None


class Shift:
    """A peer that is wrong by as much as it is told outputs, so that its window is seen."""

    def free_run(self, u: np.ndarray, y_init: np.ndarray) -> np.ndarray:
        return np.zeros((len(u), 1)) + len(y_init)


def test_peers_know_the_same_outputs_and_may_fail() -> None:
    case = suite_cases.case(factor=10)
    fitted = {"shift": Peer(Shift(), "a peer", 0.0), "none": NO_PEER}  # type: ignore[arg-type]
    zero = replace(case.test[0], y=np.zeros((60, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "fewest_known", 0)
        found = measure.judge(Offset([1.0], [1.0]), zero, case, np.ones(1), fitted)["peers"]  # type: ignore[arg-type]
        assert found["shift"] == {"n_init": 6, "rmse": [60], "pooled": 60}
        assert found["none"]["pooled"] == np.inf
        patch.setattr(Peer, "fewest_known", 9)
        found = measure.judge(Offset([1.0], [1.0]), zero, case, np.ones(1), fitted)["peers"]  # type: ignore[arg-type]
    assert found["shift"] == {"n_init": 9, "rmse": [90], "pooled": 90}


def linear(rows: int, seed: int, noise: float = 0.0) -> Record:
    """A linear process of second order, with white noise on its measured output."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=rows), np.zeros(rows)
    for t in range(2, rows):
        y[t] = 1.2 * y[t - 1] - 0.5 * y[t - 2] + u[t - 1]
    return Record(u=u, y=3 + y + noise * rng.normal(size=rows))


def test_figures_of_a_real_model() -> None:
    """The stand-ins above behave as an ensemble does: its own numbers come out."""
    shop = Workshop(whole([linear(300, 0, 0.1)]), BUDGETS["quick"])
    model, record = shop.model(CLASSICAL[0]), linear(120, 1, 0.1)
    found = measure.judge(model, record, Case((record,), (record,), 30), np.ones(1), {})
    assert found["n_init"] == 30
    free = model.free_run(record.u, record.y[:30])
    np.testing.assert_allclose(found["rmse"], rmse(record.y, free, 30), rtol=1e-4)
    low, high = (edge[30:] for edge in model.predict(record, 10).interval(0.95))
    covered = np.mean((record.y[30:] >= low) & (record.y[30:] <= high))
    assert found["coverage_10_steps"] == pytest.approx(covered)
    assert 0.2 < found["coverage"]["50%"] < found["coverage"]["80%"] < found["coverage"]["95%"]
    assert found["coverage"]["95%"] > 0.85


def test_peers_find_a_linear_process() -> None:
    record = linear(120, 1)
    fitted = peers.fit_peers([linear(300, 0)])
    assert set(fitted) == {"arx", "output-error", "subspace"}
    for name, peer in fitted.items():
        assert peer.model is not None, peer.about
        error = peer.errors(record, max(20, peer.fewest_known))
        assert error < 0.01 * record.y.std(), name
        assert np.isinf(peer.errors(record, 120)).all()


def test_a_peer_that_cannot_be_fitted_says_why() -> None:
    fitted = peers.fit_peers([Record(u=np.arange(5.0), y=np.arange(5.0))])
    for peer in fitted.values():
        assert peer.model is None
        assert re.match(r"failed: .*(too short|too few)", peer.about)


# --- the command --------------------------------------------------------------------------------


class Identify:
    """A cheap stand-in that remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.fail = False

    def __call__(self, estimation: Any, *, effort: str, seed: int, **_: Any) -> Any:
        assert [r.name for r in estimation] == ["made estimation"]
        if self.fail and seed == 0:
            raise DataError("made to fail.")
        self.calls.append((effort, seed))
        return suite_cases.fit(Offset([1.0 + seed], [2.0]), (3.0,))


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Identify:
    made = Identify()
    monkeypatch.setattr(measure, "identify", made)
    monkeypatch.setattr(measure, "diagonal", lambda model: model)
    monkeypatch.setattr(records, "load", lambda name: suite_cases.case())
    monkeypatch.setattr(peers, "fit_peers", lambda estimation: {"none": NO_PEER})
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli._run(["benchmark", "suite", *map(str, arguments)])
    return (code, *capsys.readouterr())


def test_finished_results_are_not_computed_again(
    tmp_path: Path, standin: Identify, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a" / "results"
    call = ("ph", "--effort", "quick", "--out", out, "--seeds")
    code, text, err = said(capsys, *call, 1)
    assert (code, err) == (0, "")
    assert standin.calls == [("quick", 0)]
    assert "ph, peers: none: failed: made so, 0 s" in text
    path = out / "ph-quick-0.json"
    found = json.loads(path.read_text("utf-8"))
    assert [found[k] for k in ("record", "effort", "seed", "family")] == [
        *("ph", "quick", 0, "made-family")
    ]
    assert {"version", "machine", "seconds"} <= set(found)
    assert [t["name"] for t in found["tests"]] == ["made test", "made other"]
    assert found["tests"][0]["pooled"] == pytest.approx(1)
    assert found["tests"][0]["peers"]["none"]["pooled"] is None  # infinity is no JSON
    assert found["peers"]["none"]["model"] == "failed: made so"

    before = path.read_bytes()
    code, text, _ = said(capsys, *call, 2)
    assert code == 0
    assert standin.calls == [("quick", 0), ("quick", 1)]
    assert f"ph: 1 of 2 seeds finished before, in {out}" in text
    assert path.read_bytes() == before
    assert text.rstrip().endswith(f"written to {out / 'suite.md'}")
    (row,) = (
        line
        for line in (out / "suite.md").read_text("utf-8").splitlines()
        if line.startswith("| made test")
    )
    assert row.startswith("| made test | 2 | 1.5 | – | – | – | ")  # mean of 1 and 2

    said(capsys, *call, 2)
    said(capsys, "ph", "--out", out, "--table")
    assert len(standin.calls) == 2
    path.write_text(path.read_text("utf-8")[:-5], encoding="utf-8")  # cut short
    said(capsys, *call, 2)
    said(capsys, "ph", "--effort", "standard", "--out", out, "--seeds", 1)
    assert standin.calls[2:] == [("quick", 0), ("standard", 0)]
    document = (out / "suite.md").read_text("utf-8")
    assert document.index("## Effort quick") < document.index("## Effort standard")


def test_what_fails_does_not_stop_the_others(
    tmp_path: Path, standin: Identify, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.fail = True
    code, _, err = said(capsys, "ph", "robot-arm", "--seeds", 2, "--out", tmp_path)
    assert code == 2
    assert standin.calls == [("standard", 1)] * 2
    assert err == (
        "error: no result for ph, seed 0: made to fail.; robot-arm, seed 0: made to fail.\n"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        *("ph-standard-1.json", "robot-arm-standard-1.json", "suite.md")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("toaster",), "record 'toaster' is unknown; choose one of hairdryer, "),
        (("ph", "--effort", "some"), "effort 'some' is unknown; choose one of quick, standard, "),
        (("ph", "--table"), "results holds no result of the suite; run occamid benchmark suite."),
    ],
)
def test_errors(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    standin: Identify,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = said(capsys, *arguments, "--out", "results")
    assert code == 2
    assert err.startswith(f"error: {message}")
    assert standin.calls == []
    assert list(tmp_path.iterdir()) == []


# --- the table ----------------------------------------------------------------------------------


def cells(rows: list[tuple[str, ...]]) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.HEAD, row, strict=True)) for row in rows}


def test_the_table_from_results_made_by_hand() -> None:
    """Two seeds of two tests; the best peer is that of each test, over the seeds."""
    made = [
        result("ph", 0, [judged("ph test", 1.0, {"arx": 4.0})], unit=""),
        result(
            "silverbox",
            0,
            [
                judged("silverbox multisine", 0.3, {"arx": 2.0, "subspace": 1.0}),
                judged("silverbox arrow", 1.25, {"arx": 0.5, "subspace": 1.0}),
            ],
        ),
        result(
            "silverbox",
            1,
            [
                judged("silverbox multisine", 0.5, {"arx": 0.5, "subspace": 1.0}),
                judged("silverbox arrow", 1.75, {"arx": 0.5, "subspace": None}),
            ],
            family="state-space",
            shares={"state-space": 0.75, "arx": 0.25},
            seconds=31.0,
        ),
    ]
    rows = table.rows(made)
    assert [row[0] for row in rows] == ["silverbox multisine", "silverbox arrow", "ph test"]
    found = cells(rows)
    assert found["silverbox multisine"] == {
        "record": "silverbox multisine",
        "seeds": "2",
        "error": "0.4 mV",
        "best peer": "subspace",
        "its error": "1",
        "ratio": "0.40",
        "50 %": "48.0%",
        "80 %": "79.0%",
        "95 %": "93.0%",
        "95 %, 10 steps": "97.0%",
        "CRPS": "0.125",
        "diagonal posterior": "0.25",
        "split conformal": "0.2",
        "expected / test": "1.10",
        "family": "curved, state-space 75% + arx 25%",
        "seconds": "20",
    }
    arrow = found["silverbox arrow"]
    assert (arrow["best peer"], arrow["its error"], arrow["ratio"]) == ("arx", "0.5", "3.00")
    assert found["ph test"]["error"] == "1"


def test_what_diverged_is_a_dash() -> None:
    tests = [judged("ph test", None, {"arx": None}), judged("ph test", 2.0, {"arx": None})]
    row = cells(table.rows([result("ph", k, [t]) for k, t in enumerate(tests)]))["ph test"]
    assert row["error"].startswith("–")
    assert (row["best peer"], row["its error"], row["ratio"]) == ("–", "–", "–")


def test_the_document_says_what_is_not_measured(tmp_path: Path) -> None:
    made = [
        result("ph", 0, [judged("ph test", 1.0, {"arx": 4.0})], effort=effort)
        for effort in ("standard", "quick")
    ]
    text = table.document(made)
    assert "those of `make peers` as far as they are measured" in text
    assert text.count("| ph test | 1 | 1 mV | arx | 4 | 0.25 |") == 2
    assert text.index("## Effort quick") < text.index("## Effort standard")
    assert "version 0.1.0 on a machine" in text
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(FileError, match="holds no result of the suite"):
        measure.read(tmp_path)
    (tmp_path / "ph-quick-0.json").write_text("{")
    with pytest.raises(FileError, match=r"ph-quick-0\.json is not a readable result: "):
        measure.read(tmp_path)
