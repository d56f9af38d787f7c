"""Options of ``occamid identify``, each with the words that explain it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from occamid.errors import SettingsError

Files = Annotated[
    list[Path] | None, typer.Argument(help="CSV, Excel, Parquet, MATLAB, NumPy or HDF5 files.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "--inputs", "-u", help="Input column: name, or position from 1."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option("--output", "--outputs", "-y", help="Output column; repeat for several."),
]
Time = Annotated[str | None, typer.Option(help="Time column; default: found by name.")]
Step = Annotated[float | None, typer.Option(help="Seconds between samples, without a time column.")]
Experiment = Annotated[str | None, typer.Option(help="Column that tells experiments apart.")]
Resample = Annotated[
    bool, typer.Option("--resample", help="Interpolate uneven samples to even steps.")
]
ResampleTo = Annotated[
    float | None, typer.Option(help="Interpolate to steps of this many seconds.")
]
Gaps = Annotated[
    str | None,
    typer.Option(help="Missing values: error; split there; or fill up to three, split at more."),
]
Variable = Annotated[str | None, typer.Option(help="Variable of a MATLAB or HDF5 file.")]
Test = Annotated[
    list[Path] | None, typer.Option(help="File the model must not see; only to judge it.")
]
Split = Annotated[
    float | None, typer.Option(help="Share to estimate on, the first in time, such as 0.7.")
]
Prepare = Annotated[
    Path | None, typer.Option(help="TOML file of steps done to the data before; see prepare.")
]
Effort = Annotated[str | None, typer.Option(help="How much is tried: quick, standard or thorough.")]
Network = Annotated[str | None, typer.Option(help="auto, mlp, lstm, rnn or state-space.")]
Order = Annotated[int | None, typer.Option(help="States of a state-space model.")]
StateUnits = Annotated[
    int | None, typer.Option("--units", help="Units of a state-space model; 0 is a linear one.")
]
Hidden = Annotated[str | None, typer.Option(help="Units of the hidden layers: 10,10.")]
Lags = Annotated[int | None, typer.Option(help="Lags of inputs and outputs.")]
InputLags = Annotated[int | None, typer.Option(help="Lags of the inputs.")]
OutputLags = Annotated[int | None, typer.Option(help="Lags of the outputs.")]
InputDelay = Annotated[int | None, typer.Option(help="Samples before an input can act.")]
Activation = Annotated[str | None, typer.Option(help="Of an mlp or rnn: tanh, relu, silu, …")]
Trials = Annotated[int, typer.Option(help="How many settings to try.")]
Pick = Annotated[
    str,
    typer.Option(
        help="Which trial is fitted: simplest (within one standard error of the best), best, or "
        "the number of one in the study.",
        metavar="simplest|best|NUMBER",
    ),
]
Study = Annotated[
    str | None,
    typer.Option(
        help="Journal file or database address that keeps the trials and that several processes "
        "may share.",
        metavar="FILE|URL",
    ),
]
Lam = Annotated[str | None, typer.Option(help="λ, one or several: 1e-3,2e-3; or auto.")]
Restarts = Annotated[int | None, typer.Option(help="Random initialisations.")]
Single = Annotated[bool, typer.Option("--single", help="One model instead of an ensemble.")]
Example = Annotated[
    str | None,
    typer.Option(
        help="A simulated process instead of files: cascaded-tanks-twin, coupled-drives-twin, "
        "friction-axis-twin, hairdryer-twin, heat-exchanger-twin, hysteretic-masses-twin, "
        "mass-spring-damper-twin, polynomial-narx-twin, thermal-plant-twin, "
        "wiener-hammerstein-twin."
    ),
]
Config = Annotated[Path | None, typer.Option(help="TOML file of a job, such as RUN/settings.toml.")]
Seed = Annotated[int | None, typer.Option(help="Fixes everything that is random.")]
Out = Annotated[Path, typer.Option(help="Run folder to write.")]
EveryRow = Annotated[
    bool,
    typer.Option(
        "--every-row", help="Never take longer steps than the log's, however slow the process is."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the run in the folder; other files stay.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a stopped run left off.")]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a dask scheduler: tcp://10.0.0.1:8786.")
]
Processes = Annotated[
    int | None, typer.Option(help="Processes of this machine; default: threads of this one.")
]
Store = Annotated[
    str | None,
    typer.Option(
        help="Where finished work is kept for --resume, also by workers: a folder, or an address "
        "of fsspec such as s3://bucket/folder; default: beside --out.",
        metavar="FOLDER|URL",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")]

RunFolder = Annotated[Path, typer.Argument(help="Run folder of identify, or a model file.")]
File = Annotated[Path, typer.Argument(help="File with the columns the model was identified on.")]
InputFile = Annotated[
    Path, typer.Argument(help="File with the model's inputs; outputs where they are measured.")
]
Result = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]
UseGaps = Annotated[str, typer.Option("--gaps", help="Missing values: error, or split.")]
UseResample = Annotated[
    bool, typer.Option("--resample", help="Interpolate to the steps of the model.")
]
Replace = Annotated[bool, typer.Option("--force", help="Replace the file if there is one already.")]
NInit = Annotated[
    int | None, typer.Option(help="Measured outputs the run may start from; default: the lags.")
]
Initial = Annotated[
    str | None,
    typer.Option(
        help="What came before the first row: last (the end of the estimation data), steady (rest "
        "under the first inputs), or a file whose last rows were measured just before.",
        metavar="last|steady|FILE",
    ),
]
Samples = Annotated[
    int | None, typer.Option(min=2, help="Monte Carlo samples; default: first-order bands.")
]
Table = Annotated[Path, typer.Option("--out", help="CSV to write.")]
Horizon = Annotated[
    int | None, typer.Option(min=1, help="Steps ahead; default: 1, or all rows of --future.")
]
Future = Annotated[
    Path | None, typer.Option(help="File with the inputs after the end of the log: forecast them.")
]

Linear = Annotated[
    bool, typer.Option("--linear", help="The linear model at an operating point instead.")
]
At = Annotated[
    str | None, typer.Option(help="Inputs of the operating point: 3.4,0; default: their mean.")
]


def data_options(told: dict[str, Any]) -> dict[str, Any]:
    """What the command line says about the data, as a job names it."""
    same = ("example", "inputs", "outputs", "time", "sampling_time", "experiment", "gaps")
    step, resample = told["resample_to"], told["resample"]
    return {name: told[name] for name in (*same, "variable", "split")} | {
        "files": [str(p.absolute()) for p in told["files"] or []],
        "test": [str(p.absolute()) for p in told["test"] or []],
        "resample": (resample or None) if step is None else step,
        "prepare": told["prepare"],
        "every_row": told["every_row"] or None,
    }


def identify_options(told: dict[str, Any]) -> dict[str, Any]:
    """What the command line fixes beforehand, as :class:`Options` names it."""
    lags, lam = told["lags"], told["lam"]
    each = {n: lags if told[n] is None else told[n] for n in ("input_lags", "output_lags")}
    return {
        name: told[name] for name in ("effort", "network", "order", "units", "restarts", "seed")
    } | {
        **each,
        "hidden": numbers(told["hidden"], int, "hidden"),
        "lam": "auto" if lam == "auto" else numbers(lam, float, "lam"),
        "single": told["single"] or None,
    }


def numbers(text: str | None, kind: type, name: str) -> tuple[Any, ...] | None:
    """Comma-separated numbers of an option."""
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"--{name} takes {'whole ' if kind is int else ''}numbers separated by commas, "
            f"not {text!r}."
        ) from None
