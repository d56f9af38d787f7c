"""``occamid search``: many settings tried on held-back data, one of them fitted."""

from __future__ import annotations

from pathlib import Path

from occamid.cli import arguments as a
from occamid.cli.shared import require_files


def search(
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
    trials: a.Trials = 30,
    pick: a.Pick = "simplest",
    study: a.Study = None,
    effort: a.Effort = None,
    network: a.Network = None,
    hidden: a.Hidden = None,
    activation: a.Activation = None,
    order: a.Order = None,
    units: a.StateUnits = None,
    lags: a.Lags = None,
    input_lags: a.InputLags = None,
    output_lags: a.OutputLags = None,
    input_delay: a.InputDelay = None,
    lam: a.Lam = None,
    restarts: a.Restarts = None,
    single: a.Single = False,
    example: a.Example = None,
    config: a.Config = None,
    seed: a.Seed = None,
    out: a.Out = Path("runs/search"),
    force: a.Force = False,
    resume: a.Resume = False,
    cluster: a.Cluster = None,
    workers: a.Processes = None,
    as_json: a.Json = False,
) -> None:
    """Search settings on held-back data, and fit the simplest of the best.

    λ, lags, delay, widths, activations, orders and units are varied, except those that are given;
    every trial is judged as identify judges.  The run folder is one of identify, with a table of
    the trials and error against size in its report.

    Try: [bold]occamid search log.csv --input pump --output level --split 0.7 --trials 30[/bold]
    """
    told = dict(locals())
    data = a.data_options(told)
    fixed = a.identify_options(told) | {"activation": activation, "input_delay": input_delay}
    require_files([*(files or []), *(test or []), *([prepare] if prepare else [])])

    from occamid.cli import searching, training  # heavy
    from occamid.identification.crew import Workers

    to = training.Folder(out, force, resume, Workers(cluster, workers))
    plan = searching.Plan(trials, pick, study)
    searching.search(config, data, fixed, to, plan, quiet=as_json)
