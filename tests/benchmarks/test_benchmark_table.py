"""What the benchmark says in words and tables, and its part of the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from occamid import FileError, cli
from occamid_benchmarks import experiments as rows
from occamid_benchmarks import registry, reproduce
from occamid_benchmarks.baselines import measure
from occamid_benchmarks.experiments import WARNING, experiments
from occamid_benchmarks.tables.document import document, quoted
from occamid_benchmarks.tables.structure import described, lags
from tests.support import bench_cases, suite_cases
from tests.support.bench_cases import Numbers, finished_folder, finished_run, write_json


def fail(*_: object, **__: object) -> Any:
    raise AssertionError("nothing should be trained here")


# --- sentences ----------------------------------------------------------------------------------


def report(**changes: Any) -> dict[str, Any]:
    return {**finished_run("hairdryer-mlp", "paper", Numbers()), "sparsity": 0.9871, **changes}


def test_the_sentences_of_a_model_with_a_delay() -> None:
    assert described(report()) == (
        "**hairdryer-mlp** keeps 3 of 21 regressors and 2 of 50 neurons at 98.7% sparsity "
        "(cycle 5): u at lags 2–3 and y at lag 1. "
        "The first input lag that survives is 2: the output answers after 0.16 s."
    )


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (["u[t]", "y[t-1]"], "u at lag 0 and y at lag 1. The input acts at once: u[t] survives, "),
        (["y[t-2]"], "no u and y at lag 2. No input survives: "),
        (["u[t-9]", "u[t-3]", "u[t-4]", "u[t-5]"], "u at lags 3–5, 9 and no y. The first input"),
        (["u[t-1]"], "answers after 0.08 s. No past output survives: "),
        ([], "no u and no y. No input survives: "),
    ],
)
def test_sentences_of_other_survivors(kept: list[str], said: str) -> None:
    found = described(report(kept_names=kept, regressors_kept=len(kept)))
    assert said in found
    assert f"keeps {len(kept)} of 21 regressors" in found
    assert ("No past output" in found) == (not any(n.startswith("y") for n in kept))


def test_operators_of_an_lstm_that_vanished() -> None:
    some = {"lstm0.W_ii": 1.0, "lstm0.W_hf": 1.0, "lstm0.W_ig": 0.999, "out.W": 1.0}
    assert described(report(sparsity_by_matrix=some)).endswith(
        " Of the LSTM's operators `lstm0.W_ii`, `lstm0.W_hf` vanished altogether."
    )
    none = {"lstm0.W_ii": 0.5, "out.W": 1.0}
    assert described(report(sparsity_by_matrix=none)).endswith(
        " None of the LSTM's eight operators vanished."
    )
    assert "operators" not in described(report(sparsity_by_matrix={"layer0.W": 1.0}))


def test_lags_of_a_channel() -> None:
    names = ["u[t-10]", "u[t]", "u2[t-3]", "y[t-1]", "uy[t-7]"]
    assert lags(names, "u") == [0, 3, 10]
    assert lags(names, "y") == [1]


# --- tables -------------------------------------------------------------------------------------


def parsed(text: str) -> dict[str, list[list[dict[str, str]]]]:
    """Tables by heading: rows with cells by column, the second column of a name being "name 2"."""
    found: dict[str, list[list[dict[str, str]]]] = {}
    heading, head = "", None
    for line in text.splitlines():
        if line.startswith("#"):
            heading, head = line.lstrip("# "), None
        elif not line.startswith("|"):
            head = None
        else:
            cells = [c.strip() for c in line.strip("|").split("|")]
            if head is None:
                head = [f"{c} 2" if c in cells[:k] else c for k, c in enumerate(cells)]
                found.setdefault(heading, []).append([])
            elif not set(line) <= set("|-: "):
                assert len(cells) == len(head)
                found[heading][-1].append(dict(zip(head, cells, strict=True)))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    finished_folder(tmp_path / "results")
    return tmp_path / "results"


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text("utf-8"))


def leaves(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in leaves(v)]
    if isinstance(value, list):
        return [x for v in value for x in leaves(v)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def test_every_number_of_ours_is_in_a_file(folder: Path) -> None:
    known = [x for path in folder.rglob("*.json") for x in leaves(json.loads(path.read_text()))]
    formatted = {f(x) for x in known for f in ("{:.4f}".format, "{:.1%}".format, "{:.1f}".format)}
    formatted |= {str(x) for x in known if isinstance(x, int)}
    published = {f"{v:.4f}" for q in quoted()["published"] for v in q["rmse"]}
    columns = {
        *("ours", "our best", "RMSE", "sparsity", "regressors", "neurons", "cycle"),
        *("ours, paper protocol", "ours, honest", "compiling [s]", "auto, ensemble"),
        *("true model", "95 % band covers"),
    }
    seen = set()
    for tables in parsed(document(folder)).values():
        for cells in (cells for found in tables for cells in found):
            for column in columns & set(cells):
                numbers = re.findall(r"\d+(?:\.\d+)?%?", cells[column])
                allowed = formatted | published if "quoted" in cells.get("note", "") else formatted
                assert set(numbers) <= allowed, (column, cells)
                seen.update(numbers)
    assert len(seen) > 60


def test_table_1(folder: Path) -> None:
    found = parsed(document(folder))["Table 1 of the paper, side by side"]
    first, trade_off = found
    assert [r["experiment"] for r in first] == [
        *("hairdryer-mlp", "hairdryer-lstm", "coupled-drives-mlp")
    ]
    ours, quoted = read(folder / "paper", "coupled-drives-mlp"), experiments()["coupled-drives-mlp"]
    a, b = ours["rmse"].values()
    p, q = quoted.paper_rmse
    assert first[2] == {
        "experiment": "coupled-drives-mlp",
        "paper": f"{p.mean:g} ± {p.std:g} / {q.mean:g} ± {q.std:g}",
        "ours": f"{a['mean']:.4f} ± {a['std']:.4f} / {b['mean']:.4f} ± {b['std']:.4f}",
        "ratio": f"{a['mean'] / p.mean:.2f} / {b['mean'] / q.mean:.2f}",
        "paper best": f"{p.min:.3f} / {q.min:.3f}",
        "our best": f"{a['min']:.4f} / {b['min']:.4f}",
        "ratio 2": f"{a['min'] / p.min:.2f} / {b['min'] / q.min:.2f}",
    }
    accurate, sparsest = ours["most_accurate"], ours["chosen"]
    for row, name, at in (
        (trade_off[4], "most accurate", accurate),
        (trade_off[5], "sparsest", sparsest),
    ):
        assert row == {
            "model": f"coupled-drives-mlp, {name}",
            "RMSE": f"{at['rmse'][0]:.4f} / {at['rmse'][1]:.4f}",
            "sparsity": f"{at['sparsity']:.1%}",
            "paper's": f"{quoted.paper_sparsity:.1%}",
            "regressors": "3 of 21",
            "neurons": "2 of 50",
            "cycle": str(at["cycle"]),
        }


def test_the_comparison_of_a_record(folder: Path) -> None:
    text = document(folder)
    heading = f"hairdryer: {registry.get('hairdryer').about}"
    (found,) = parsed(text)[heading]
    by_title = {r["model"]: r for r in found}
    baselines = {r["name"]: r for r in read(folder / "baselines", "baselines-hairdryer")["rows"]}
    arx = by_title["ARX"]
    assert arx["paper"] == "0.103"
    assert arx["ours, paper protocol"] == f"{baselines['arx']['paper']['rmse']['t']:.4f}"
    assert arx["ours, honest"] == f"{baselines['arx']['honest']['rmse']['t']:.4f}"
    assert arx["model or source"] == "arx model"
    assert by_title["LSTM without regularisation"]["ours, honest"] == "–"  # diverged
    assert by_title["ARMAX"]["ours, paper protocol"] == "–"  # not run
    bayes = by_title["Bayesian MLP"]
    own = {p: read(folder / p, "hairdryer-mlp") for p in ("paper", "honest")}
    assert (
        bayes["ours, paper protocol"] == f"{next(iter(own['paper']['rmse'].values()))['min']:.4f}"
    )
    assert bayes["ours, honest"] == f"{own['honest']['chosen']['rmse'][0]:.4f}"
    assert by_title["made-up (not in the paper)"]["paper"] == "–"
    lasso = by_title["cycle-1 group lasso, lstm (not in the paper)"]
    first = read(folder / "paper", "hairdryer-lstm")["first_cycle"].values()
    assert lasso["ours, paper protocol"] == " / ".join(f"{v['min']:.4f}" for v in first)
    assert [r["model"] for r in found].count("Bayesian MLP") == 1
    assert all(f"{r}: {registry.get(r).about}" in parsed(text) for r in registry.BENCHMARKS)


def test_the_honest_tables_are_in_order(folder: Path) -> None:
    found = parsed(document(folder))
    (hairdryer,) = found["hairdryer"]
    errors = [float(r["RMSE"]) for r in hairdryer]
    assert errors == sorted(errors)
    auto = read(folder / "auto", "honest-hairdryer")
    ensemble = next(r for r in hairdryer if r["model"] == "**auto, ensemble**")
    assert ensemble["RMSE"] == f"{auto['rmse']['t']['mean']:.4f}"
    assert ensemble["note"] == (
        f"mean of 3 seeds, standard deviation {auto['rmse']['t']['std']:.4f}"
    )
    models = {r["model"] for r in hairdryer}
    assert "lstm-plain" not in models  # it diverged
    assert {"arx", "auto, single model", "the paper's settings, hairdryer-lstm"} <= models
    ((twin,),) = found["Simulated processes"]
    made = read(folder / "auto", "honest-some-twin")
    mean, true = made["rmse"]["t"]["mean"], made["true_model"]["t"]
    assert (twin["twin"], twin["ratio"]) == ("some-twin", f"{mean / true:.2f}")
    assert twin["95 % band covers"] == f"{made['coverage95']:.1%}"


def test_times_add_up(folder: Path) -> None:
    (found,) = parsed(document(folder))["Time"]
    runs = [read(folder / "paper", r["experiment"])["seconds"] for r in found[:-1]]
    assert [r["compiling [s]"] for r in found[:-1]] == [f"{s['compile']:.1f}" for s in runs]
    assert found[-1]["training [s]"] == f"{sum(s['compile'] + s['run'] for s in runs):.1f}"


def test_the_document_warns_and_reads(folder: Path) -> None:
    text = document(folder)
    assert text.count(WARNING) == 2
    for name in ("hairdryer-mlp", "hairdryer-lstm", "coupled-drives-mlp"):
        assert described(read(folder / "paper", name)) in text
    assert text.endswith("|\n")
    assert "None" not in text
    assert "nan" not in text


def test_an_empty_folder(tmp_path: Path) -> None:
    said = f"{tmp_path} holds no finished experiment; run occamid benchmark run --out "
    with pytest.raises(FileError, match=re.escape(said)):
        document(tmp_path)
    write_json(tmp_path / "notes.json", [1, 2])  # not a result
    with pytest.raises(FileError, match=re.escape(said)):
        document(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe"])
def test_a_broken_file(folder: Path, content: bytes) -> None:
    path = folder / "paper" / "glass-tube-mlp.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=re.escape(f"{path} is not a readable result: ")):
        document(folder)


def test_a_row_whose_restarts_all_diverged(folder: Path) -> None:
    """Such errors are null in the file; the rest of the document must still come."""
    path = folder / "paper" / "hairdryer-mlp.json"
    content = read(folder / "paper", "hairdryer-mlp")
    for spread in content["rmse"].values():
        spread.update(mean=None, std=None, min=None)
    write_json(path, content)
    assert "hairdryer-lstm" in document(folder)


# --- the command line ---------------------------------------------------------------------------


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two rows on made data; results go below the folder returned."""
    made = {n: bench_cases.row(name=n) for n in ("hairdryer-mlp", "hairdryer-lstm")}
    monkeypatch.setattr(rows, "experiments", lambda: made)
    monkeypatch.setattr(reproduce, "load", lambda *_: bench_cases.data())
    monkeypatch.setattr(reproduce.figures, "save", lambda figure, path: path.write_bytes(b"PNG"))  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli._run([str(a) for a in arguments])
    return (code, *capsys.readouterr())


def test_a_run_from_the_command_line(
    standin: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning, the figures, and the second time nothing is trained; another seed is."""
    call = ("benchmark", "run", "hairdryer-mlp")
    code, out, err = said(capsys, *call)
    assert (code, err) == (0, "")
    assert out.startswith(WARNING)
    path = standin / "benchmarks" / "results" / "paper" / "hairdryer-mlp.json"
    found = json.loads(path.read_text("utf-8"))
    first = found["rmse"]["made test 1"]
    assert (
        f"made test 1: RMSE {first['mean']:.4f} ± {first['std']:.4f}, best {first['min']:.4f} "
        "(paper 0.5 ± 0.1, best 0.4)"
    ) in out
    assert f"sparsity {found['most_accurate']['sparsity']:.1%}" in out

    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "train", fail)
        code, out, _ = said(capsys, *call)
        assert code == 0
        assert "hairdryer-mlp: finished before, in benchmarks/results/paper; --force" in out
        for other in (("--seed", 1), ("--restarts", 2), ("--force",), ("--protocol", "honest")):
            with pytest.raises(AssertionError, match="nothing should be trained"):
                said(capsys, *call, *other)
            capsys.readouterr()
    assert path.read_bytes() == before
    code, out, _ = said(capsys, *call, "--seed", 1, "--protocol", "honest", "--out", "own")
    assert code == 0
    assert WARNING not in out
    assert json.loads((standin / "own" / "hairdryer-mlp.json").read_text())["seed"] == 1


def test_both_protocols_from_the_command_line(
    standin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One goes to each folder; what is finished under one of them is not run again."""
    call = ("benchmark", "run", "hairdryer-mlp", "--protocol", "both")
    code, out, err = said(capsys, *call)
    assert (code, err) == (0, "")
    assert out.startswith(WARNING)
    folder = standin / "benchmarks" / "results"
    for protocol in ("paper", "honest"):
        assert read(folder / protocol, "hairdryer-mlp")["protocol"] == protocol
    (folder / "honest" / "hairdryer-mlp.json").unlink()
    before = (folder / "paper" / "hairdryer-mlp.json").stat().st_mtime_ns
    code, out, _ = said(capsys, *call)
    assert "finished before, in benchmarks/results/paper" in out
    assert (folder / "paper" / "hairdryer-mlp.json").stat().st_mtime_ns == before
    assert read(folder / "honest", "hairdryer-mlp")["protocol"] == "honest"


def test_a_row_with_several_values_of_lam(folder: Path) -> None:
    content = read(folder / "paper", "hairdryer-mlp")
    content |= {"lam": 2e-4, "tried": [{"lam": 1e-4}, {"lam": 2e-4}], "device": "a GPU"}
    write_json(folder / "paper" / "hairdryer-mlp.json", content)
    text = document(folder)
    assert re.search(r"\| Bayesian MLP \| 0.073 \|.*\| λ = 0.0002, best of 2 \|", text)
    assert "| a machine, 2 cores, a GPU |" in text


def test_the_list_of_experiments() -> None:
    shown = CliRunner().invoke(cli.app, ["benchmark", "list"], env={"COLUMNS": "400"})
    assert shown.exit_code == 0
    words = " ".join(shown.output.split())
    for name, e in experiments().items():
        assert name in words
        for q in e.paper_rmse:
            assert f"{q.mean:g} ± {q.std:g}" in words


def test_the_table_from_the_command_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.md"
    code, text, _ = said(capsys, "benchmark", "table", "--results", folder, "--out", out)
    assert code == 0
    assert out.read_text("utf-8") == document(folder)
    assert text.strip() == f"written to {out}: {len(out.read_text('utf-8').splitlines())} lines"


def test_baselines_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"rmse": {"a": 0.5, "b": None}, "model": "a model"}
    made = lambda record, name, *_: {  # noqa: E731
        **{"name": name, "paper": row, "honest": row, "seconds": 2.0}
    }
    monkeypatch.setattr(measure, "measure_one", made)
    code, out, _ = said(capsys, "benchmark", "baselines", "hairdryer", "--out", tmp_path)
    assert code == 0
    assert out.startswith(WARNING)
    assert "hairdryer, arx: 0.5000 chosen on validation data (a model), 0.5000 honest" in out
    assert (tmp_path / "baselines-hairdryer.json").exists()
    call = ("benchmark", "baselines", "heat-exchanger", "--only", "lstm-plain", "--out", tmp_path)
    assert said(capsys, *call)[0] == 0
    assert [row["name"] for row in read(tmp_path, "baselines-heat-exchanger")["rows"]] == [
        "lstm-plain"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("benchmark", "run", "toaster-mlp"), "no experiment is called 'toaster-mlp'; there are "),
        (
            ("benchmark", "run", "hairdryer-mlp", "--protocol", "kind"),
            "protocol 'kind' is unknown; choose one of paper, honest, both.",
        ),
        (("benchmark", "run", "--restarts", "0"), "Invalid value for '--restarts': "),
        (("benchmark", "baselines", "toaster"), "record 'toaster' is unknown; choose one of "),
        (
            ("benchmark", "baselines", "hairdryer", "--only", "toaster"),
            "baseline 'toaster' is unknown; choose one of ",
        ),
        (("benchmark", "table", "--results", "none"), "none holds no finished experiment; "),
        (("benchmark", "tables"), "No such command 'tables'."),
        (("data", "path", "toaster"), "no benchmark is called 'toaster'; there are hairdryer, "),
        (("data", "fetch", "toaster"), "no benchmark is called 'toaster'; there are hairdryer, "),
        (("data", "path"), "Missing argument "),
    ],
)
def test_errors_are_one_line_and_code_2(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "train", fail)
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_records_on_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(registry, "fetch", fail)
    monkeypatch.setattr(registry, "_check", lambda *_: None)
    own = tmp_path / "own"
    own.mkdir()
    (own / "hairdryer.mat").write_bytes(b"")
    monkeypatch.setenv(registry.VARIABLE, str(own))
    code, out, err = said(capsys, "data", "path", "hairdryer")
    assert (code, out, err) == (0, f"{own / 'hairdryer.mat'}\n", "")
    code, out, err = said(capsys, "data", "path", "glass-tube")
    assert (code, out) == (2, "")
    assert err == (
        "error: glass-tube is not on this machine; run occamid data fetch glass-tube, or name its "
        "folder in OCCAMID_DATA.\n"
    )
    shown = CliRunner().invoke(cli.app, ["data", "list"], env={"COLUMNS": "400"})
    assert shown.exit_code == 0
    assert all(name in shown.output for name in registry.BENCHMARKS)
    assert "0.08 s" in shown.output
    code, out, _ = said(capsys, "data", "fetch", "hairdryer")
    assert (code, out) == (0, f"hairdryer: {own / 'hairdryer.mat'}\n")


def test_the_suite_is_in_the_document_where_it_was_run(tmp_path: Path) -> None:
    finished_folder(tmp_path)
    assert "## The suite" not in document(tmp_path)
    tested = [suite_cases.judged("ph test", 0.5, {"arx": 0.75})]
    write_json(tmp_path / "suite" / "ph-quick-0.json", suite_cases.result("ph", 0, tested))
    text = document(tmp_path)
    assert text.index("## The suite") < text.index("### Effort quick") < text.index("## Time")
    assert "| ph test | 1 | 0.5 mV | arx | 0.75 | 0.67 | 48.0% | 79.0% | 93.0% |" in text
