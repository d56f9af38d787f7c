"""The report: its numbers, its words, and a page that cannot be made to run or fetch anything."""

from __future__ import annotations

import copy
import importlib
import json
import re
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamid import Fit, Options, report
from occamid.assessment.metrics import fit_percent
from occamid.bands.ensemble import Ensemble
from occamid.bands.units import DivergedWarning
from occamid.identification.families import Family
from occamid.identification.referee import Trial
from occamid.reporting.content import content, show
from occamid.reporting.page import num, render, squares
from occamid.reporting.plots import figures
from occamid.reporting.report import fit_content
from occamid.reporting.series import LONGEST, decimate, rounded, share_of_points
from occamid.reporting.structure import column_norms
from occamid.reporting.verdict import p_value, percent, verdict
from occamid.training.batch import STATUS, Index
from tests.support.report_cases import (
    HOSTILE,
    IMAGE,
    LINK,
    Links,
    hostile_content,
    one_channel,
    small_content,
)

OUT: dict[str, Any] = {
    "name": "y",
    "fit": 87.3,
    "coverage": 0.94,
    "white": True,
    "white_p": 0.4,
    "depends_on": [],
}
SURE = {"samples": [3, 3], "seconds": [0.24, 0.24], "best": 3, "probability": 0.97}
UNSURE = {"samples": [0, 2], "seconds": [0.0, 1.0], "best": 1, "probability": 0.5}
FACTS: dict[str, Any] = {
    "kept": 6,
    "candidates": 41,
    "inputs": [{"name": "u", "lag": 3, "seconds": 0.24, "delay": SURE}],
    "outputs": [OUT],
    "data": "test",
    "n_init": 20,
    "rows": 1000,
    "members": 10,
    "families": 1,
    "parameters": 40,
    "diverged": 0.0,
    "failed": 1,
    "runs": 20,
}


def titles(**changed: Any) -> list[str]:
    return [w["title"] for w in verdict(FACTS | changed)["warnings"]]


def test_verdict_of_a_good_model() -> None:
    found = verdict(FACTS)
    assert found["headline"] == (
        "Keeps 6 of 41 regressors; the input u acts after 3 samples (0.24 s, 97 % sure); "
        "free-run fit 87 %; the 95 % band covers 94 %."
    )
    assert found["basis"] == (
        "Fit and coverage are those of free runs on test data the model has not seen, by an "
        "ensemble of the 10 best models, each started from 20 measured samples."
    )
    assert found["warnings"] == []


def test_verdict_of_several_channels() -> None:
    inputs = [
        {"name": "valve", "lag": 0, "seconds": 0.0},
        {"name": "pump", "lag": 1, "seconds": 0.5, "delay": UNSURE},
        {"name": "fan", "lag": None, "seconds": None},
    ]
    outputs = [OUT | {"name": "p", "fit": 99.62}, OUT | {"name": "T", "fit": 0.4}]
    facts = FACTS | {"inputs": inputs, "outputs": outputs, "kept": 1, "candidates": 1}
    assert verdict(facts)["headline"] == (
        "Keeps 1 of 1 regressor; the input valve is used; the input pump acts after 0 to 2 samples "
        "(0 to 1 s, 90 % sure); the input fan is not used; free-run fit 99.6 % (p), 0.4 % (T); "
        "the 95 % band covers 94 % (p), 94 % (T)."
    )
    many = verdict(FACTS | {"inputs": inputs * 3})["headline"]
    assert "; 5 further inputs in the table below;" in many


def test_verdict_of_a_stack_is_about_all_of_it() -> None:
    facts = FACTS | {"families": 3, "members": 12, "parameters": 699}
    found = verdict(facts)
    said = "A stack of 3 families with 699 parameters, whose first model keeps 6 of 41 regressors;"
    assert found["headline"].startswith(said)
    assert "by a stack of 12 models of 3 families, each started from" in found["basis"]
    for states, said in (((1, 0), "is linear, with 1 hidden state;"), ((2, 5), "has 2 hidden st")):
        assert f"whose first model {said}" in verdict(facts | {"states": states})["headline"]


@pytest.mark.parametrize(
    ("rows", "coverage", "told"),
    [
        (1000, 0.999, "wider than needed"), (90, 1.0, "wider than needed"), (89, 1.0, ""),
        (1000, 0.89, "too narrow"), (9, 8 / 9, ""), (20, 0.7, "too narrow"), (20, 0.85, ""),
    ],
)  # fmt: skip
def test_a_band_is_not_blamed_for_what_chance_does(rows: int, coverage: float, told: str) -> None:
    """Were errors independent, a true band would do as badly in one case of a hundred."""
    found = titles(rows=rows, outputs=[OUT | {"coverage": coverage}])
    assert found == ([f"The bands of y are {told}"] if told else [])


def test_verdict_without_a_test_record_says_so_first() -> None:
    found = verdict(FACTS | {"data": "estimation", "members": 1, "n_init": 1})
    assert found["basis"] == (
        "Fit and coverage are those of free runs on the estimation data itself, by one model, "
        "each started from 1 measured sample."
    )
    assert found["warnings"][0]["title"] == "No test record"


def test_every_doubt_is_told() -> None:
    assert titles(outputs=[OUT | {"white": False}]) == ["Residuals of y are not white"]
    dependent = [OUT | {"depends_on": ["u", "v"]}, OUT | {"name": "z", "depends_on": ["v"]}]
    found = verdict(FACTS | {"outputs": dependent})["warnings"]
    assert [w["title"] for w in found] == ["Residuals still depend on past inputs"]
    assert found[0]["text"].startswith("Those of y on u, v; z on v.")
    narrow = verdict(FACTS | {"outputs": [OUT | {"coverage": 0.71}]})["warnings"]
    assert [w["title"] for w in narrow] == ["The bands of y are too narrow"]
    assert narrow[0]["text"].startswith("The 95 % band covers 71 % of the measurements.")
    assert titles(outputs=[OUT | {"coverage": 0.999}]) == ["The bands of y are wider than needed"]
    assert titles(outputs=[OUT | {"fit": -3.0}]) == ["The free run of y is worse than the mean"]
    assert titles(diverged=0.004) == ["Part of the posterior diverged"]
    assert titles(failed=11) == ["Most restarts failed"]
    assert titles(failed=10) == []
    lost = verdict(FACTS | {"outputs": [OUT | {"fit": None, "coverage": None}]})
    assert lost["headline"].endswith("; the free run diverges.")


def test_numbers_as_words() -> None:
    assert [percent(v) for v in (87.3, 99.62, 100.0, 0.04, 0.0, -12.4, None)] == [
        *("87 %", "99.6 %", "100 %", "0.0 %", "0 %", "-12 %", "not finite"),
    ]
    assert (p_value(1e-9), p_value(0.0314)) == ("p < 0.0001", "p = 0.031")
    assert [num(v) for v in (12345, -0.123456, None)] == ["12 345", "−0.1235", "–"]


def test_decimation_keeps_every_extreme_and_both_ends(rng: np.random.Generator) -> None:
    columns = np.cumsum(rng.normal(size=(50_000, 4)), axis=0)
    columns[31_234, 2] = 1e6  # a glitch of one sample
    at = decimate(columns, 900)
    assert len(at) <= 900
    assert (at[0], at[-1]) == (0, 49_999)
    assert np.all(np.diff(at) > 0)
    assert 31_234 in at
    np.testing.assert_array_equal(columns[at].max(axis=0), columns.max(axis=0))
    np.testing.assert_array_equal(columns[at].min(axis=0), columns.min(axis=0))
    edges = np.linspace(0, 50_000, 898 // 8 + 1).astype(int)
    for a, b in pairwise(edges.tolist()):
        inside = at[(at >= a) & (at < b)]
        np.testing.assert_array_equal(columns[inside].max(axis=0), columns[a:b].max(axis=0))
    np.testing.assert_array_equal(decimate(columns[:700], 900), np.arange(700))


def test_rounding_loses_nothing_that_can_be_seen() -> None:
    values = np.array([1000.0001234, 1000.0009876, np.nan, np.inf])
    assert rounded(values) == [1000.00012340, 1000.00098760, None, None]
    assert rounded(np.array([123456.7, 0.0])) == [123457.0, 0.0]
    assert rounded(np.array([2.5, 2.5])) == [2.5, 2.5]


def test_content_is_plain_json() -> None:
    for found in (small_content(), hostile_content()):
        assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_content_holds_the_free_run_and_its_figures() -> None:
    case, found = one_channel(), small_content()
    start = case.model.start
    run = case.unseen[0].free
    np.testing.assert_array_equal(run.mean, case.model.simulate(case.test).mean)
    shown = found["runs"][0]
    low, high = run.interval(0.95)
    for key, values in (
        ("measured", case.test.y),
        ("mean", run.mean),
        ("low", low),
        ("high", high),
    ):
        np.testing.assert_allclose(shown["outputs"][0][key], values[:, 0], atol=1e-4)
    np.testing.assert_allclose(shown["time"], np.arange(len(case.test)) * 0.08)
    fit = fit_percent(case.test.y, run.mean, start)[0]
    assert found["facts"]["outputs"][0]["fit"] == pytest.approx(fit)
    inside = np.mean(((case.test.y >= low) & (case.test.y <= high))[start:])
    assert found["calibration"]["outputs"][0]["coverage"][-1] == pytest.approx(inside)
    assert found["data"] == "test"
    assert set(found["residuals"]) == {"estimation", "test"}
    assert [r["role"] for r in found["records"]] == ["estimation", "test"]


def test_importance_is_the_norm_of_first_layer_columns() -> None:
    case, found = one_channel(), small_content()
    assert [c["name"] for c in found["importance"]] == ["u", "y"]
    told = {
        name: (strength, kept)
        for c in found["importance"]
        for name, strength, kept in zip(c["regressors"], c["strength"], c["kept"], strict=True)
    }
    assert set(told) == set(case.batch.terms.names)
    for name, (strength, kept) in told.items():
        expected, count = 0.0, 0
        for share, p in zip(case.model.weights, case.model.posteriors, strict=True):
            if name in p.model.regressors:
                column = p.model.regressors.index(name)
                expected += share * np.linalg.norm(p.model.weights["layer0.W"][:, column])
                count += 1
        assert (strength, kept) == (pytest.approx(expected), count)


def test_direct_paths_count_as_first_layer() -> None:
    model = one_channel().model.first
    extra = np.ones((1, len(model.terms)))
    with_skip = replace(model, weights={**model.weights, "skip.W": extra})
    before, after = column_norms(model), column_norms(with_skip)
    for name, value in before.items():
        assert after[name] == pytest.approx(np.hypot(value, 1.0))


def test_sparsity_and_trade_off_repeat_the_result() -> None:
    case, found = one_channel(), small_content()
    best = case.batch.best
    for matrix in found["sparsity"]["matrices"]:
        kept = np.array([[cell == "#" for cell in row] for row in matrix["cells"]])
        np.testing.assert_array_equal(kept, best.weights[matrix["name"]] != 0)
        assert matrix["kept"] == kept.sum()
    scale = case.batch.scaling.y_scale[0]
    for path in found["trade_off"]["paths"]:
        lam = case.batch.settings.lam.index(path["lam"])
        for cycle, size, error in zip(path["cycles"], path["weights"], path["error"], strict=True):
            row = case.batch.row(Index(lam, path["restart"] - 1, cycle - 1))
            assert error == pytest.approx(row.free_run_rmse[0] / scale, rel=1e-4)
            assert size == case.batch.table["weights"][lam, path["restart"] - 1, cycle - 1]
    chosen = case.batch.best_index
    assert found["trade_off"]["best"]["cycle"] == chosen.cycle + 1


def test_large_matrices_are_drawn_coarser_and_small_ones_cell_by_cell() -> None:
    assert squares(["#.", ".#"]) == "M0.06 0.06h.88v.88h-.88zM1.06 1.06h.88v.88h-.88z"
    assert squares(["##." * 1000]).startswith("M0 0h2v1h-2zM3 0h2v1h-2z")


def test_failed_restarts_are_counted() -> None:
    case = one_channel()
    status = case.batch.table["status"].copy()
    status[0, 0] = STATUS.index("diverged")
    batch = replace(case.batch, table={**case.batch.table, "status": status})
    found = content(case.model, batch, case.seen, case.unseen)
    assert [(row["lam"], row["failed"], len(row["scores"])) for row in found["restarts"]] == [
        *((1e-3, 1, 1), (3e-3, 0, 2)),
    ]
    assert (found["facts"]["failed"], found["facts"]["runs"]) == (1, 4)
    paths = [(path["lam"], path["restart"]) for path in found["trade_off"]["paths"]]
    assert paths == [(1e-3, 2), (3e-3, 1), (3e-3, 2)]
    names = [t.get("name") for t in figures(found)["trade_off"]["data"]]
    assert "λ = 0.001" in names


def test_without_a_test_record_the_page_says_what_it_shows() -> None:
    found = one_channel().content(test=False)
    assert found["data"] == "estimation"
    assert found["verdict"]["warnings"][0]["title"] == "No test record"
    page = render(found)
    assert "On the estimation data: there was no test record." in page
    assert "0 test records" in page


def test_report_of_a_fit_is_its_page(tmp_path: Path) -> None:
    """One test record or several, in any container, or none."""
    case = one_channel()
    trial = Trial("mlp", "a small network", (0.25,), 0.3, 0.0, 1.0)
    family = Family("mlp", "network", "a small network", case.batch.settings)
    fit = Fit(
        model=case.model,
        family=family,
        trials=(trial,),
        grounds="it is the only one",
        batch=case.batch,
        records=(case.seen[0].record,),
        options=Options(),
        expected_rmse=(0.25,),
        expected_interval=((0.2, 0.31),),
    )
    path = tmp_path / "report.html"
    pages = []
    for test in (case.test, [case.test], iter([case.test]), (), []):
        report(fit, test, path)
        pages.append(path.read_text("utf-8"))
    assert pages[0] == pages[1] == pages[2]
    assert pages[3] == pages[4]
    assert pages[0] == render(fit_content(fit, case.seen, case.unseen, case.seen[0].record.name))
    assert pages[3] == render(fit_content(fit, case.seen, (), case.seen[0].record.name))
    assert "mlp: a small network" in pages[0]
    assert "0.25 (0.2 to 0.31)" in pages[0]
    assert "it is the only one" in pages[0]
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    report(fit, case.test, path, n_init=20)
    assert "each started from 20 measured samples" in path.read_text("utf-8")


def test_divergence_is_told_in_the_report_and_not_as_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Ensemble.simulate

    def diverging(self: Ensemble, *args: Any, **options: Any) -> Any:
        warnings.warn("some left", DivergedWarning, stacklevel=2)
        return replace(honest(self, *args, **options), diverged=0.03)

    monkeypatch.setattr(Ensemble, "simulate", diverging)
    case = one_channel()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unseen = show(case.model, [case.test])
    found = content(case.model, case.batch, case.seen, unseen)
    assert found["facts"]["diverged"] == 0.03
    assert "Part of the posterior diverged" in [w["title"] for w in found["verdict"]["warnings"]]


def test_settings_and_provenance_are_listed() -> None:
    found = small_content()
    changed = {s["name"]: s["value"] for s in found["settings"] if s["changed"]}
    assert changed["lam"] == "0.001, 0.003"
    assert "activation" not in changed
    told = {row["name"]: row["value"] for row in found["provenance"]}
    assert told["command"] == "occamid identify"
    assert {"version", "jax", "machine", "date"} <= set(told)
    assert any(name.startswith("seconds, ") for name in told)


@pytest.mark.parametrize("made", [small_content, hostile_content])
def test_figures_are_what_plotly_understands(made: Any) -> None:
    go: Any = importlib.import_module("plotly.graph_objects")  # it has no types
    found = figures(made())
    for name, figure in found.items():
        painted = json.loads(re.sub(r'"@\w+"', '"#123456"', json.dumps(figure)))
        common = painted.pop("x", None)
        assert all("x" in trace or common for trace in painted["data"]), name
        assert len(go.Figure(painted).data) > 0, name
        named = set(re.findall(r'"@(\w+)"', json.dumps(figure)))
        style = (Path(render.__code__.co_filename).parent / "style.css").read_text()
        assert all(f"--{colour}:" in style for colour in named), name


@pytest.mark.parametrize("made", [small_content, hostile_content])
def test_page_is_whole_in_itself(made: Any) -> None:
    page = render(made())
    assert len(page.encode()) < 6e6
    links = Links()
    links.feed(page)
    assert all(re.fullmatch(r"#[a-z-]+", address) for address in links.addresses)
    assert links.handlers == []
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(links.tags)
    assert links.tags.count("script") == 3
    assert not re.search(r"url\(|@import", links.text["style1"])
    assert not re.search(r"import|fetch|http", links.text["script3"])
    assert "default-src 'none'" in page


def test_hostile_names_are_text() -> None:
    page = render(hostile_content())
    links = Links()
    links.feed(page)
    own = page.replace(links.text["script2"], "")
    for name in (HOSTILE, IMAGE, LINK):
        assert name not in own
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in own
    embedded = json.loads(links.text["script1"])
    assert embedded == figures(hostile_content())
    assert "<" not in links.text["script1"]
    for figure in embedded.values():
        text = json.dumps([figure["layout"], [t.get("name") for t in figure["data"]]])
        assert "<script" not in text
        assert "<a " not in text
        assert "<img" not in text


def test_many_long_records_stay_below_the_size(rng: np.random.Generator) -> None:
    """Six records of 100,000 rows, two inputs and two outputs: the largest that is drawn."""
    found = copy.deepcopy(small_content())
    count = share_of_points(6 * (1 + 4 * 2 + 2))
    assert 1000 < count < LONGEST
    series = [rounded(np.cumsum(rng.normal(size=count))) for _ in range(4)]
    run = found["runs"][0]
    out = run["outputs"][0] | dict(zip(("measured", "mean", "low", "high"), series, strict=True))
    channel = {"name": "u", "values": series[0]}
    run |= {"outputs": [out] * 2, "inputs": [channel] * 2, "rows": 100_000, "points": count}
    run["time"] = rounded(np.sort(rng.uniform(0.0, 1e4, count)), 100.0)
    found["runs"] = [run] * 6
    page = render(found)
    assert len(page.encode()) < 6e6
    assert "100 000 samples, drawn with 1 515 points" in page
