"""Commands that use a run: simulate, predict, compare, inspect, report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from jinja2 import TemplateError
from rich.table import Table
from rich.text import Text

from occamid.assessment.run import Run
from occamid.bands.ensemble import Ensemble, load
from occamid.bands.modelfile import model_file, read_about
from occamid.cli.shared import console, listed, say
from occamid.data.record import Record
from occamid.errors import DataError, FileError, SettingsError
from occamid.files import manifest
from occamid.files.atomic import check_new_file, replace_file, same_file
from occamid.files.folder import rewrite
from occamid.files.plain import plain
from occamid.identification.job import Job
from occamid.networks import matrices
from occamid.reading.experiments import SAME_STEP
from occamid.reading.files import read
from occamid.reporting import figures, runs
from occamid.reporting.page import render

RunFolder = Annotated[Path, typer.Argument(help="Run folder of identify, or a model file.")]
File = Annotated[Path, typer.Argument(help="File with the columns the model was identified on.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
Gaps = Annotated[str, typer.Option(help="Missing values: error, or split.")]
Resample = Annotated[
    bool, typer.Option("--resample", help="Interpolate to the steps of the model.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if there is one already.")]
Step = Annotated[float | None, typer.Option(help="Seconds between samples, without a time column.")]


def _read(
    run: Path, ensemble: Ensemble, file: Path, gaps: str, resample: bool, step: float | None
) -> Record:
    """The longest record of a file, with the channels and steps of the model.

    What the file is like (time column, experiments, variable) is what identify was told.
    """
    told, names = _job(run), ensemble.terms
    usual = ensemble.first.sampling_time
    found = read(
        file,
        inputs=names.input_names,
        outputs=names.output_names,
        time=told.time if step is None else None,
        sampling_time=told.sampling_time if step is None and not resample else step,
        experiment=told.experiment,
        resample=usual if resample else None,
        gaps=gaps,  # type: ignore[arg-type]
        variable=told.variable,
        constant=True,
    )
    record = max(found, key=len)
    if abs(record.sampling_time - usual) > SAME_STEP * usual:
        raise DataError(
            f"{file} is sampled every {record.sampling_time:g} s, but the model was identified "
            f"at {usual:g} s; interpolate with --resample or, if it has no time column, give "
            f"--sampling-time {usual:g}."
        )
    if len(record) < ensemble.start + 2:
        raise DataError(
            f"{file}: {len(record)} rows in one piece, but the model needs {ensemble.start + 2} "
            "or more; use a longer file."
        )
    return replace(record, sampling_time=usual)


def _job(run: Path) -> Job:
    """What identify was told, as far as the model file knows."""
    told = read_about(run).get("job")
    try:
        return Job(**told) if isinstance(told, dict) else Job()
    except SettingsError:
        return Job()


def _table(record: Record, found: Run) -> pd.DataFrame:
    """Time, mean, standard deviation and 95 % band of every output."""
    low, high = found.interval(0.95)
    columns: dict[str, Any] = {"time": np.arange(len(record)) * record.sampling_time}
    for k, name in enumerate(record.output_names):
        columns |= {
            name: found.mean[:, k],
            f"{name} std": found.spread[:, k],
            f"{name} low": low[:, k],
            f"{name} high": high[:, k],
        }
    return pd.DataFrame(columns)


def _write_table(
    table: pd.DataFrame, out: Path, force: bool, known: int, as_json: bool, facts: Any
) -> None:
    content = table.to_csv(index=False, float_format="%.9g").encode()
    replace_file(out, content, overwrite=force)
    if as_json:
        print(json.dumps(plain({"out": str(out), "known": known, **facts})))
    else:
        for name, value in facts.items():
            say(f"{name}: {listed(value, '.4g') if isinstance(value, tuple) else value}")
        say(f"written to {out}: {len(table)} rows")


def simulate(
    run: RunFolder,
    file: File,
    n_init: Annotated[
        int | None, typer.Option(help="Measured outputs the run may start from; default: the lags.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Monte Carlo samples; default: first-order bands.")
    ] = None,
    out: Annotated[Path, typer.Option(help="CSV to write.")] = Path("sim.csv"),
    force: Force = False,
    gaps: Gaps = "error",
    resample: Resample = False,
    sampling_time: Step = None,
    as_json: Json = False,
) -> None:
    """Free run of a model on a file's inputs, with bands; only its first outputs are looked at."""
    check_new_file(out, overwrite=force, inputs=(model_file(run), file))
    ensemble = load(run)
    record = _read(run, ensemble, file, gaps, resample, sampling_time)
    start = ensemble.start if n_init is None else n_init
    found = ensemble.simulate(record, start, samples=samples)
    judged = runs.judge(record, found)
    named = {"rmse": "rmse", "fit": "fit %", "coverage95": "95 % band covers"}
    facts = {name: judged[key] for key, name in named.items()}
    _write_table(_table(record, found), out, force, start, as_json, facts)


def predict(
    run: RunFolder,
    file: File,
    horizon: Annotated[int, typer.Option(min=1, help="Steps ahead.")] = 1,
    out: Annotated[Path, typer.Option(help="CSV to write.")] = Path("prediction.csv"),
    force: Force = False,
    gaps: Gaps = "error",
    resample: Resample = False,
    sampling_time: Step = None,
    as_json: Json = False,
) -> None:
    """Predict a file's outputs a number of steps ahead from its own measurements."""
    check_new_file(out, overwrite=force, inputs=(model_file(run), file))
    ensemble = load(run)
    record = _read(run, ensemble, file, gaps, resample, sampling_time)
    if horizon >= len(record):
        raise SettingsError(
            f"--horizon {horizon} reaches beyond the {len(record)} rows of {file}; give fewer "
            "steps."
        )
    found = ensemble.predict(record, horizon)
    facts = {"rmse": tuple(map(float, found.rmse(record))), "horizon": horizon}
    _write_table(_table(record, found), out, force, ensemble.start, as_json, facts)


def compare(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, then the file to compare on.")],
    out: Annotated[Path | None, typer.Option(help="Plot to write, PNG or SVG.")] = None,
    force: Force = False,
    gaps: Gaps = "error",
    resample: Resample = False,
    sampling_time: Step = None,
    as_json: Json = False,
) -> None:
    """Fit, error and size of one or more runs in free run on one file."""
    if len(paths) < 2:
        raise SettingsError("compare needs one or more run folders and a file after them.")
    *folders, file = paths
    if out is not None:
        figures.require()
        check_new_file(out, overwrite=force, inputs=(*map(model_file, folders), file))
        if out.suffix.lower() not in (".png", ".svg"):
            raise FileError(f"{out}: a plot is written as .png or .svg; choose such a name.")
    rows, shown = [], []
    for folder in folders:
        ensemble = load(folder)
        record = _read(folder, ensemble, file, gaps, resample, sampling_time)
        found = ensemble.simulate(record)
        judged = runs.judge(record, found)
        rows.append({"run": str(folder), **judged, "parameters": ensemble.parameters})
        shown.append((str(folder), found.mean))
    if out is not None:
        figure = figures.compare_figure(record, shown, f"free run on {record.name}")
        figures.save(figure, out, overwrite=force)
    if as_json:
        print(json.dumps(plain(rows)))
        return
    table = Table(title=Text(f"free run on {record.name}"), title_justify="left")
    for heading in ("run", "fit %", "RMSE", "95 % band covers", "parameters"):
        table.add_column(heading)
    for row in sorted(rows, key=lambda r: -np.mean(r["fit"])):
        cells = (
            listed(row["fit"], ".1f"),
            listed(row["rmse"], ".4g"),
            listed(row["coverage95"], ".1%"),
        )
        table.add_row(Text(row["run"]), *cells, str(row["parameters"]))
    console.print(table)


def inspect(run: RunFolder, as_json: Json = False) -> None:
    """What a model is made of: regressors with their evidence, sparsity, settings, provenance."""
    ensemble = load(run)
    about = read_about(run)
    best = max(ensemble.posteriors, key=lambda p: p.log_evidence)
    rows = [r._asdict() for r in best.table()]
    evidence = best.regressor_evidence()
    sparsity = {n: float(np.mean(W == 0)) for n, W in matrices(best.model.weights).items()}
    if as_json:
        content = {
            "members": len(ensemble.weights),
            "parameters": ensemble.parameters,
            "regressors": evidence,
            "weights": rows,
            "sparsity": sparsity,
            **about,
        }
        print(json.dumps(plain(content)))
        return
    say(
        f"{len(ensemble.weights)} members with {ensemble.parameters} parameters in all; the one "
        f"with most evidence has {best.model.parameters}"
    )
    table = Table(title="its regressors", title_justify="left")
    for heading in ("regressor", "log evidence", "weights ± standard error"):
        table.add_column(heading, no_wrap=heading != "weights ± standard error")
    for name, value in evidence.items():
        own = [r for r in rows if r["regressor"] == name]
        spelled = ", ".join(f"{r['value']:.3g} ± {r['standard_error']:.2g}" for r in own)
        table.add_row(Text(name), f"{value:.1f}", spelled)  # u[t-3] is no markup
    console.print(table)
    for name, share in sparsity.items():
        say(f"{name}: {share:.1%} pruned")
    for part, values in about.items():
        say(f"{part}: {json.dumps(values)}")


def report(
    run: Annotated[Path, typer.Argument(help="Run folder of identify.")],
    out: Annotated[Path | None, typer.Option(help="HTML to write; default: in the folder.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run again: one HTML file that opens without a network."""
    content = runs.read_json(run, runs.CONTENT)
    target = out or run / runs.PAGE
    again = target.name == runs.PAGE and same_file(target.parent, run)
    read = manifest.current(run, runs.CONTENT)
    check_new_file(target, overwrite=force or again, inputs=(read,))
    try:
        page = render(content)
    except (ArithmeticError, AttributeError, LookupError, TemplateError, TypeError, ValueError):
        raise FileError(f"{run / runs.CONTENT} is damaged; identify again.") from None
    if again:
        rewrite(run, runs.PAGE, page.encode(), overwrite=force)
    else:
        replace_file(target, page.encode(), overwrite=force)
    if as_json:
        print(json.dumps({"out": str(target)}))
    else:
        say(f"written to {target}")
