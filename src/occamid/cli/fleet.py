"""``occamid fleet``: one model for each of many logs, and a page over all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from occamid.cli import arguments as a
from occamid.cli.shared import require_files

By = Annotated[str | None, typer.Option(help="Column that names the asset of each row.")]
Out = Annotated[Path, typer.Option(help="Folder for the table, the page and every model.")]
Force = Annotated[bool, typer.Option("--force", help="Begin anew; replaces what a fleet wrote.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on where a stopped fleet left off, or with more files.")
]
Store = Annotated[
    str | None,
    typer.Option(
        help="Folder, or address of fsspec such as s3://bucket/folder, where workers put finished "
        "assets, too; what --out lacks is fetched from there.",
        metavar="FOLDER|URL",
    ),
]
Count = Annotated[
    int | None, typer.Option(help="Processes of this machine; default: one for each core.")
]


def fleet(
    files: a.Files = None,
    by: By = None,
    inputs: a.Inputs = None,
    outputs: a.Outputs = None,
    time: a.Time = None,
    sampling_time: a.Step = None,
    experiment: a.Experiment = None,
    resample: a.Resample = False,
    resample_to: a.ResampleTo = None,
    gaps: a.Gaps = None,
    variable: a.Variable = None,
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
    config: a.Config = None,
    seed: a.Seed = None,
    cluster: a.Cluster = None,
    workers: Count = None,
    out: Out = Path("runs/fleet"),
    force: Force = False,
    resume: Resume = False,
    store: Store = None,
    as_json: a.Json = False,
) -> None:
    """One model for each of many logs of the same kind: pumps, cells, houses.

    Each file is one asset, or --by names the column that tells them apart.  The folder gets a
    table (CSV and JSON), a page with shared regressors and odd ones out, and a folder with the
    model of each asset.  Files that fail are listed; exit code 2 if all do.

    Try: [bold]occamid fleet logs/*.csv --input pump --output level --out runs/pumps[/bold]
    """
    told = dict(locals()) | {"files": None, "test": None, "example": None}
    data, fixed = a.data_options(told), a.identify_options(told)
    given = files or []
    if by is not None or not any(map(os.path.lexists, given)):
        require_files(given)
    require_files([prepare] if prepare else [])

    from occamid.cli import fleets, training  # heavy
    from occamid.fleets.fleet import Target
    from occamid.identification.crew import Workers

    job, _ = training.job_of(config, data | {"by": by}, fixed)
    to = Target(out, resume, force, store)
    fleets.run(job, given, to, Workers(cluster, workers), quiet=as_json)
