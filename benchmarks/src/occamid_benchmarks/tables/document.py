"""docs/results.md from the JSON files of finished runs; not a number in it is typed by hand."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from occamid.errors import FileError
from occamid_benchmarks import registry
from occamid_benchmarks.experiments import WARNING, experiments
from occamid_benchmarks.suite import measure, others
from occamid_benchmarks.suite import table as suite_table
from occamid_benchmarks.tables import peers
from occamid_benchmarks.tables.markdown import markdown
from occamid_benchmarks.tables.structure import described

Json = dict[str, Any]
DIFFERENCES = (
    "Where the baselines differ from the paper's figures by more than a tenth: its linear "
    "models of the hairdryer are worse than a plain least-squares ARX; starting them from a "
    "zero state, without the copied initial window, brings them to the paper's level. Its "
    "transfer function of the heat exchanger seems to have settled on a wrong delay; a scan "
    "over delays finds a better one. Its Gaussian processes could not be matched on every "
    "record with any of the lags tried, neither in free run nor one step ahead. Plain "
    "networks depend on restarts and early stopping, of which the paper says little; the "
    "number of restarts stands in the last column."
)


def quoted() -> dict[str, list[Json]]:
    """Rows of the paper's Tables E.1 and E.2, and newer published results."""
    return tomllib.loads((files("occamid_benchmarks.tables") / "quoted.toml").read_text("utf-8"))


def load(folder: Path) -> dict[str, dict[str, Json]]:
    """Finished runs: by protocol and experiment, baselines by record, `auto` by record."""
    found: dict[str, dict[str, Json]] = {"paper": {}, "honest": {}, "baselines": {}, "auto": {}}
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(f"{path} is not a readable result: {error}.") from None
        if not isinstance(content, dict):
            continue
        if "protocol" in content and "experiment" in content:
            found[content["protocol"]][content["experiment"]] = content
        elif path.name.startswith("baselines-"):
            found["baselines"][content["record"]] = content
        elif path.name.startswith("honest-"):
            found["auto"][content["record"]] = content
    if not found["paper"]:
        raise FileError(
            f"{folder} holds no finished experiment; "
            f"run occamid benchmark run --out {folder}/paper."
        )
    return found


def document(folder: Path) -> str:
    """The whole document."""
    found, outside = load(folder), others.read(folder / "peers")
    parts = [
        "# Results",
        "Made by `occamid benchmark table` from the files in `benchmarks/results`; each carries "
        "its seed, version and machine.",
        "## Table 1 of the paper, side by side",
        f"**{WARNING}** RMSE over the whole validation record, the first samples copied; mean ± "
        "standard deviation over the restarts of each one's best cycle, and the best of all. Where "
        "a row was tried with several λ, it is that with the best model, as the paper tuned its λ.",
        table_1(found["paper"]),
        "Both ends of the trade-off along the cycles: the most accurate model, and the sparsest "
        "one that still meets the row's limit (error at most 10 % above the paper's best; where no "
        "model so accurate is about as sparse as the paper's, at most the row's limit above the "
        "paper's mean).",
        trade_off(found["paper"]),
        "## What the surviving structure says",
        *(
            f"{described(found['paper'][n])} {figure_links(folder, n)}".strip()
            for n in experiments()
            if n in found["paper"]
        ),
        "## Tables E.1 and E.2, side by side",
        f"**{WARNING}** For the baselines, too: the `paper` column picks orders and restarts on "
        "the validation record. The `honest` column picks them on the estimation record alone "
        "and counts errors after the initial window, on the official split where there is one.",
        DIFFERENCES,
        *(comparison(record, found) for record in registry.BENCHMARKS),
        "## The honest protocol",
        "Nothing of the test record is used but its input and the outputs of the initial window; "
        "errors are counted after that window. Cascaded Tanks and Coupled Drives use the official "
        "splits and windows, the others the paper's split and the largest lag.",
        honest(found),
        *_suite(folder, outside),
        *peers.section(outside),
        "## Time",
        times(found["paper"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _suite(folder: Path, outside: Sequence[Json]) -> list[str]:
    """The automatic mode on all records, if any of them was run."""
    results = measure.results_of(folder / "suite", "suite")
    found = suite_table.sections(results, outside, level="###")
    return ["## The suite", *found] if found else []


def figure_links(folder: Path, name: str) -> str:
    """Links to the figures of a run that lie beside its file."""
    paths = sorted(folder.rglob(f"{name}-*.png"))
    links = [
        f"[{path.stem.removeprefix(f'{name}-').replace('-', ' ')}](../{path.as_posix()})"
        for path in paths
        if not path.is_absolute() and "paper" in path.parts
    ]
    return f"Figures: {', '.join(links)}." if links else ""


def _errors(values: Iterable[float | None], digits: int = 4) -> str:
    return " / ".join("–" if v is None or v != v else f"{v:.{digits}f}" for v in values)


def table_1(found: dict[str, Json]) -> str:
    """Mean, spread and minimum beside the paper's, with ratios."""
    rows = []
    for name, e in experiments().items():
        if name not in found:
            continue
        ours = list(found[name]["rmse"].values())
        rows.append(
            (
                name,
                " / ".join(f"{q.mean:g} ± {q.std:g}" for q in e.paper_rmse),
                " / ".join(f"{_errors([v['mean']])} ± {_errors([v['std']])}" for v in ours),
                _ratios([v["mean"] for v in ours], [q.mean for q in e.paper_rmse]),
                _errors([q.min for q in e.paper_rmse], 3),
                _errors(v["min"] for v in ours),
                _ratios([v["min"] for v in ours], [q.min for q in e.paper_rmse]),
            )
        )
    head = ("experiment", "paper", "ours", "ratio", "paper best", "our best", "ratio")
    return markdown(head, rows)


def _ratios(ours: Sequence[float | None], theirs: Sequence[float]) -> str:
    return " / ".join(
        "–" if a is None else f"{a / b:.2f}" for a, b in zip(ours, theirs, strict=True)
    )


def trade_off(found: dict[str, Json]) -> str:
    """Error, sparsity, regressors and neurons of the two chosen models."""
    rows = []
    for name, e in experiments().items():
        if name not in found:
            continue
        r = found[name]
        for what in ("most_accurate", "chosen"):
            at = r[what]
            rows.append(
                (
                    f"{name}, {'most accurate' if what == 'most_accurate' else 'sparsest'}",
                    _errors(at["rmse"]),
                    f"{at['sparsity']:.1%}",
                    f"{e.paper_sparsity:.1%}",
                    f"{at['regressors']} of {r['regressors_total']}",
                    f"{at['neurons']} of {r['neurons_total']}",
                    str(at["cycle"]),
                )
            )
    head = ("model", "RMSE", "sparsity", "paper's", "regressors", "neurons", "cycle")
    return markdown(head, rows)


def comparison(record: str, found: dict[str, dict[str, Json]]) -> str:
    """One record: every row of the paper's table with what the project measures for it."""
    baselines = {row["name"]: row for row in found["baselines"].get(record, {}).get("rows", [])}
    rows = []
    for quote in (q for q in quoted()["table"] if q["record"] == record):
        key = quote.get("run")
        ours, honest_error, note = None, None, quote.get("source", "")
        if key in found["paper"]:
            ours = [v["min"] for v in found["paper"][key]["rmse"].values()]
            if tried := found["paper"][key].get("tried"):
                note = f"λ = {found['paper'][key]['lam']:g}, best of {len(tried)}"
            if key in found["honest"]:
                honest_error = found["honest"][key]["chosen"]["rmse"]
        elif key in baselines:
            ours, honest_error = (
                list(baselines[key][p]["rmse"].values()) for p in ("paper", "honest")
            )
            note = baselines[key]["paper"]["model"]
        if not key:
            note = f"quoted: {note}"
        rows.append(_compared(quote["title"], quote["paper"], ours, honest_error, note))
    quoted_runs = {q.get("run") for q in quoted()["table"] if q["record"] == record}
    for name in (n for n in baselines if n not in quoted_runs):
        paper, own = (list(baselines[name][p]["rmse"].values()) for p in ("paper", "honest"))
        model = baselines[name]["paper"]["model"]
        rows.append(_compared(f"{name} (not in the paper)", [], paper, own, model))
    lasso = [
        (f"cycle-1 group lasso, {n.rsplit('-', 1)[1]} (not in the paper)", found["paper"][n])
        for n in experiments()
        if experiments()[n].record == record and n in found["paper"]
    ]
    for title, r in lasso:
        ours = [v["min"] for v in r["first_cycle"].values()]
        rows.append(_compared(title, [], ours, None, "first cycle, best restart"))
    head = ("model", "paper", "ours, paper protocol", "ours, honest", "model or source")
    return f"### {record}: {registry.get(record).about}\n\n" + markdown(head, rows)


def _compared(
    title: str,
    paper: Sequence[float],
    ours: Sequence[float] | None,
    honest_error: Sequence[float] | None,
    note: str,
) -> tuple[str, ...]:
    shown = (_errors(v) if v else "–" for v in (ours, honest_error))
    return (title, _errors(paper, 3) if paper else "–", *shown, note)


def honest(found: dict[str, dict[str, Json]]) -> str:
    """Each record: `auto`, single models, baselines, published figures, smallest error first."""
    tables = []
    for record in registry.BENCHMARKS:
        rows: list[tuple[float, tuple[str, ...]]] = []

        def add(title: str, errors: Sequence[float | None], note: str, rows: Any = rows) -> None:
            known = [e for e in errors if e is not None]
            if known:
                rows.append((sum(known) / len(known), (title, _errors(errors), note)))

        auto = found["auto"].get(record)
        if auto:
            for kind, title in (("rmse", "**auto, ensemble**"), ("single", "auto, single model")):
                each = auto[kind].values()
                spread = " / ".join(f"{v['std']:.4f}" for v in each)
                note = f"mean of {len(auto['seeds'])} seeds, standard deviation {spread}"
                add(title, [v["mean"] for v in each], note)
        for name, e in experiments().items():
            if e.record == record and name in found["honest"]:
                chosen = found["honest"][name]["chosen"]
                add(
                    f"the paper's settings, {name}", chosen["rmse"], "one model, chosen by evidence"
                )
        for row in found["baselines"].get(record, {}).get("rows", []):
            add(row["name"], list(row["honest"]["rmse"].values()), row["honest"]["model"])
        for quote in (q for q in quoted()["published"] if q["record"] == record):
            add(quote["title"], quote["rmse"], f"quoted: {quote['source']}, {quote['protocol']}")
        ordered = [cells for _, cells in sorted(rows, key=lambda r: r[0])]
        if ordered:
            tables.append(f"### {record}\n\n" + markdown(("model", "RMSE", "note"), ordered))
    return "\n\n".join(tables + _twins(found["auto"]))


def _twins(auto: dict[str, Json]) -> list[str]:
    """The simulated processes, beside the error that the true model would have."""
    rows = [
        (
            name,
            _errors(v["mean"] for v in r["rmse"].values()),
            _errors(r["true_model"].values()),
            " / ".join(f"{r['rmse'][k]['mean'] / r['true_model'][k]:.2f}" for k in r["true_model"]),
            f"{r['coverage95']:.1%}",
        )
        for name, r in sorted(auto.items())
        if "true_model" in r
    ]
    if not rows:
        return []
    head = ("twin", "auto, ensemble", "true model", "ratio", "95 % band covers")
    return ["### Simulated processes\n\n" + markdown(head, rows)]


def times(found: dict[str, Json]) -> str:
    """Wall time of every row, and of all of them."""
    rows, total = [], 0.0
    for name in experiments():
        if name in found:
            s = found[name]["seconds"]
            total += s["compile"] + s["run"]
            device = found[name].get("device", "cpu")
            machine = found[name]["machine"] + ("" if device == "cpu" else f", {device}")
            rows.append((name, f"{s['compile']:.1f}", f"{s['run']:.1f}", machine))
    rows.append(("all", "", f"{total:.1f}", ""))
    return markdown(("experiment", "compiling [s]", "training [s]", "machine"), rows)
