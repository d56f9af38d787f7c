"""Commands that use a run: simulate, predict, compare, inspect, report.

What can be refused is refused here, before anything heavy is imported.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from occamid.cli import arguments as a
from occamid.cli.shared import require_files
from occamid.errors import FileError, SettingsError
from occamid.files.atomic import check_new_file
from occamid.files.manifest import CONTENT, current, model_file


def require_models(runs: Sequence[Path]) -> None:
    """Refuse a run that is not there."""
    for path in map(model_file, runs):
        if not path.is_file():
            raise FileError(
                f"{path} is not a file; name a run folder of identify, or a model file."
            )


def simulate(
    run: a.RunFolder,
    file: a.InputFile,
    n_init: a.NInit = None,
    initial: a.Initial = None,
    samples: a.Samples = None,
    out: a.Table = Path("sim.csv"),
    force: a.Replace = False,
    gaps: a.UseGaps = "error",
    resample: a.UseResample = False,
    sampling_time: a.Step = None,
    as_json: a.Result = False,
) -> None:
    """Free run of a model on a file's inputs, with bands; outputs only to start from.

    The file needs no outputs after the first rows, and with --initial none at all: [bold]occamid
    simulate runs/tank tomorrow.csv --initial last[/bold].  Where it has them, only its first ones
    are looked at, and the rest says how good the run was.
    """
    if n_init is not None and initial is not None:
        raise SettingsError("give --n-init or --initial, not both.")
    before = [] if initial in (None, "last", "steady") else [Path(str(initial))]
    check_new_file(out, overwrite=force, inputs=(model_file(run), file, *before))
    require_models([run])
    require_files([file, *before])

    from occamid.cli import simulation as work  # heavy

    like = work.Like(run, gaps, resample, sampling_time)
    start = work.Start(n_init, before[0] if before else initial, samples)
    work.simulate(like, file, start, work.Target(out, force, as_json))


def predict(
    run: a.RunFolder,
    file: a.File,
    horizon: a.Horizon = None,
    future: a.Future = None,
    out: a.Table = Path("prediction.csv"),
    force: a.Replace = False,
    gaps: a.UseGaps = "error",
    resample: a.UseResample = False,
    sampling_time: a.Step = None,
    as_json: a.Result = False,
) -> None:
    """Predict outputs a number of steps ahead of measurements, or beyond the end of a log.

    With [bold]--future inputs.csv[/bold] the rows after the end of the log are forecast.
    """
    after = [] if future is None else [future]
    check_new_file(out, overwrite=force, inputs=(model_file(run), file, *after))
    require_models([run])
    require_files([file, *after])

    from occamid.cli import simulation as work  # heavy

    like = work.Like(run, gaps, resample, sampling_time)
    to = work.Target(out, force, as_json)
    if future is None:
        work.predict(like, file, horizon or 1, to)
    else:
        work.forecast(like, file, future, horizon, to)


def compare(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, then the file to compare on.")],
    out: Annotated[Path | None, typer.Option(help="Plot to write, PNG or SVG.")] = None,
    force: a.Replace = False,
    gaps: a.UseGaps = "error",
    resample: a.UseResample = False,
    sampling_time: a.Step = None,
    as_json: a.Result = False,
) -> None:
    """Fit, error and size of one or more runs in free run on one file."""
    if len(paths) < 2:
        raise SettingsError("compare needs one or more run folders and a file after them.")
    *folders, file = paths
    if out is not None:
        from occamid.reporting import figures

        figures.require()
        check_new_file(out, overwrite=force, inputs=(*map(model_file, folders), file))
        if out.suffix.lower() not in (".png", ".svg"):
            raise FileError(f"{out}: a plot is written as .png or .svg; choose such a name.")
    require_models(folders)
    require_files([file])

    from occamid.cli import simulation as work  # heavy

    likes = [work.Like(folder, gaps, resample, sampling_time) for folder in folders]
    work.compare(likes, file, out, force=force, as_json=as_json)


def inspect(
    run: a.RunFolder, linear: a.Linear = False, at: a.At = None, as_json: a.Result = False
) -> None:
    """What a model is made of and what it does.

    Regressors with their evidence and, of a linear model, its coefficients, poles and gains;
    how many parameters were kept; settings and provenance.  With --linear the model at an
    operating point: poles, time constants and gains.
    """
    require_models([run])
    point = a.numbers(at, float, "at")
    if linear or point is not None:
        from occamid.cli import dynamics  # heavy

        dynamics.inspect_linear(run, point, as_json)
        return

    from occamid.cli import inspection  # heavy

    inspection.inspect(run, as_json)


def report(
    run: Annotated[Path, typer.Argument(help="Run folder of identify.")],
    out: Annotated[Path | None, typer.Option(help="HTML to write; default: in the folder.")] = None,
    force: a.Replace = False,
    as_json: a.Result = False,
) -> None:
    """Write the report of a run again: one HTML file that opens without a network."""
    if not os.path.lexists(current(run, CONTENT)):
        raise FileError(
            f"{run / CONTENT} cannot be read ({os.strerror(errno.ENOENT)}); is {run} a run folder?"
        )

    from occamid.cli import inspection  # heavy

    inspection.report(run, out, force, as_json)
