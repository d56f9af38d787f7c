"""``occamid identify``: from a log file to a run folder with model, figures and report."""

from __future__ import annotations

from pathlib import Path

from occamid.cli import arguments as a
from occamid.cli.shared import require_files


def identify(
    files: a.Files = None,
    inputs: a.Inputs = None,
    outputs: a.Outputs = None,
    time: a.Time = None,
    sampling_time: a.Step = None,
    experiment: a.Experiment = None,
    resample: a.Resample = False,
    resample_to: a.ResampleTo = None,
    gaps: a.Gaps = None,
    variable: a.Variable = None,
    test: a.Test = None,
    split: a.Split = None,
    prepare: a.Prepare = None,
    every_row: a.EveryRow = False,
    effort: a.Effort = None,
    network: a.Network = None,
    hidden: a.Hidden = None,
    order: a.Order = None,
    units: a.StateUnits = None,
    lags: a.Lags = None,
    input_lags: a.InputLags = None,
    output_lags: a.OutputLags = None,
    lam: a.Lam = None,
    restarts: a.Restarts = None,
    single: a.Single = False,
    example: a.Example = None,
    config: a.Config = None,
    seed: a.Seed = None,
    out: a.Out = Path("runs/identify"),
    force: a.Force = False,
    resume: a.Resume = False,
    store: a.Store = None,
    cluster: a.Cluster = None,
    workers: a.Processes = None,
    as_json: a.Json = False,
) -> None:
    """Identify a dynamic system from logged inputs and outputs.

    Lags, network, λ and everything else are chosen from the data by cross-validation; a test
    record is only used to say how good the model is.  The run folder gets the model, a report
    to open in a browser, figures, and settings.toml, which repeats the run with --config.

    Try: [bold]occamid identify log.csv --input pump --output level --split 0.7[/bold]
    """
    told = dict(locals())
    data, fixed = a.data_options(told), a.identify_options(told)
    require_files([*(files or []), *(test or []), *([prepare] if prepare else [])])

    from occamid.cli import training  # heavy
    from occamid.identification.crew import Workers

    to = training.Folder(out, force, resume, Workers(cluster, workers), store)
    training.identify(config, data, fixed, to, quiet=as_json)
