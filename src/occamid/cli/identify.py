"""``occamid identify``: from a log file to a run folder with model, figures and report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from occamid.cli.shared import console, listed, numbers, say, stage_bar
from occamid.data import twins
from occamid.data.record import Record
from occamid.errors import FileError, OccamidError
from occamid.files import manifest
from occamid.files.checkpoints import Checkpoints
from occamid.files.folder import ElsewhereError, Place, claim, new_folder
from occamid.identification import identify as auto
from occamid.identification.job import Job, job_from
from occamid.reporting import runs

RESUME = "Finished cycles are kept: the same command with --resume goes on from there."


def identify(
    files: Annotated[
        list[Path] | None, typer.Argument(help="CSV, Excel, Parquet, MATLAB, NumPy or HDF5 files.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "--inputs", "-u", help="Input column: name, or position from 1."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", "--outputs", "-y", help="Output column; repeat for several."),
    ] = None,
    time: Annotated[str | None, typer.Option(help="Time column; default: found by name.")] = None,
    sampling_time: Annotated[
        float | None, typer.Option(help="Seconds between samples, without a time column.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Column that tells experiments apart.")
    ] = None,
    resample: Annotated[
        bool, typer.Option("--resample", help="Interpolate uneven samples to even steps.")
    ] = False,
    resample_to: Annotated[
        float | None, typer.Option(help="Interpolate to steps of this many seconds.")
    ] = None,
    gaps: Annotated[str | None, typer.Option(help="Missing values: error, or split.")] = None,
    variable: Annotated[str | None, typer.Option(help="Variable of a MATLAB or HDF5 file.")] = None,
    test: Annotated[
        list[Path] | None, typer.Option(help="File the model must not see; only to judge it.")
    ] = None,
    split: Annotated[
        float | None, typer.Option(help="Share of each record to estimate on, such as 0.7.")
    ] = None,
    effort: Annotated[
        str | None, typer.Option(help="How much is tried: quick, standard or thorough.")
    ] = None,
    network: Annotated[str | None, typer.Option(help="auto, mlp, lstm or rnn.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Units of the hidden layers: 10,10.")] = None,
    lags: Annotated[int | None, typer.Option(help="Lags of inputs and outputs.")] = None,
    input_lags: Annotated[int | None, typer.Option(help="Lags of the inputs.")] = None,
    output_lags: Annotated[int | None, typer.Option(help="Lags of the outputs.")] = None,
    lam: Annotated[str | None, typer.Option(help="λ, one or several: 1e-3,2e-3; or auto.")] = None,
    restarts: Annotated[int | None, typer.Option(help="Random initialisations.")] = None,
    single: Annotated[
        bool, typer.Option("--single", help="One model instead of an ensemble.")
    ] = False,
    example: Annotated[
        str | None,
        typer.Option(help=f"A simulated process instead of files: {', '.join(twins.TWINS)}."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of a job, such as RUN/settings.toml.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes everything that is random.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder to write.")] = Path("runs/identify"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace the run in the folder; other files stay.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a stopped run left off.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")
    ] = False,
) -> None:
    """Identify a dynamic system from logged inputs and outputs.

    Lags, network, λ and everything else are chosen from the data by cross-validation; a test
    record is only used to say how good the model is.  The run folder gets the model, a report
    to open in a browser, figures, and settings.toml, which repeats the run with --config.

    Try: [bold]occamid identify log.csv --input pump --output level --split 0.7[/bold]
    """
    options = {
        "example": example,
        "files": [str(p.absolute()) for p in files or []],
        "inputs": list(inputs or []),
        "outputs": list(outputs or []),
        "time": time,
        "sampling_time": sampling_time,
        "experiment": experiment,
        "resample": (resample or None) if resample_to is None else resample_to,
        "gaps": gaps,
        "variable": variable,
        "test": [str(p.absolute()) for p in test or []],
        "split": split,
    }
    fixed = {
        "effort": effort,
        "network": network,
        "hidden": numbers(hidden, int, "hidden"),
        "input_lags": lags if input_lags is None else input_lags,
        "output_lags": lags if output_lags is None else output_lags,
        "lam": "auto" if lam == "auto" else numbers(lam, float, "lam"),
        "restarts": restarts,
        "single": single or None,
        "seed": seed,
    }
    job = job_from(config, options, fixed)
    read = [*map(Path, (*job.files, *job.test)), *([config] if config else [])]
    with claim(out, overwrite=force, inputs=read) as place:
        summary = run_job(job, place, resume=resume, quiet=as_json)
    if as_json:
        print(json.dumps(summary))


def run_job(job: Job, place: Place, *, resume: bool, quiet: bool) -> dict[str, Any]:
    """Read, identify, judge and write; finished cycles are kept beside the folder until then."""
    estimation, test = job.read()
    out = place.folder
    checkpoints = Checkpoints(out.absolute().parent / f".{out.name}.partial")
    if not resume:
        checkpoints.clear()
    with _going_on(checkpoints):
        found = _identify(job, estimation, checkpoints, quiet)
        with new_folder(place) as folder:
            summary = runs.write(found, job, test, folder)
    checkpoints.clear()
    if not quiet:
        _show(found, summary, out)
    return summary


def _identify(
    job: Job, estimation: tuple[Record, ...], checkpoints: Checkpoints, quiet: bool
) -> auto.Automatic:
    """The identification itself, with a bar."""
    try:
        with stage_bar(quiet) as progress:
            return auto.identify_auto(
                estimation, job.plan, progress=progress, checkpoints=checkpoints
            )
    except FileError:  # a full disk
        raise
    except OccamidError:  # it would come again: nothing to go on with
        checkpoints.clear()
        raise


@contextmanager
def _going_on(checkpoints: Checkpoints) -> Iterator[None]:
    """Where finished cycles stay after Ctrl-C or an error, say what they are good for."""
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        if checkpoints.kept():
            print(RESUME, file=sys.stderr)
        raise
    except ElsewhereError:
        checkpoints.clear()
        raise
    except OccamidError as error:
        if not checkpoints.kept():
            raise
        raise type(error)(f"{error} {RESUME}") from error


def _show(found: auto.Automatic, summary: dict[str, Any], out: Path) -> None:
    """What was tried, what was chosen, and the verdict."""
    if found.trials:
        table = Table(title="cross-validation on the estimation data", title_justify="left")
        for heading in ("family", "free-run error", "what it is"):
            table.add_column(heading, no_wrap=heading == "family")
        for trial in found.trials:
            mark = " *" if trial.family == found.family.name else ""
            table.add_row(trial.family + mark, listed(trial.rmse, ".4g"), trial.about)
        console.print(table)
    say(summary["verdict"]["headline"])
    for warning in summary["verdict"]["warnings"]:
        say(f"note: {warning['title']}. {warning['text']}")
    for judged in summary["test"]:
        say(
            f"{judged['name']}, free run after {judged['n_init']} samples: RMSE "
            f"{listed(judged['rmse'], '.4g')}, fit {listed(judged['fit'], '.1f', ' %')}, "
            f"95 % band covers {listed(judged['coverage95'], '.1%')}"
        )
    written = sorted([manifest.LIST, *(manifest.read(out) or {})])
    say(f"written to {out}: {', '.join(written)}")
    say(f"open {out / runs.PAGE} in a browser")
