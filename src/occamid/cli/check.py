"""``occamid check``: what is odd about log files, before a model is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamid.cli import arguments as a
from occamid.cli.flags import as_flags
from occamid.cli.shared import require_files, say

if TYPE_CHECKING:
    from occamid.data.findings import Finding

CLEAN, ADVICE = 0, 1
Files = Annotated[
    list[Path], typer.Argument(help="CSV, Excel, Parquet, MATLAB, NumPy or HDF5 files.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Plot of the records with the findings marked, PNG or SVG.")
]
Share = Annotated[float | None, typer.Option(help="Share to estimate on; the rest is test data.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the plot if there is one already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the findings as JSON, nothing else.")]


def check(
    files: Files,
    inputs: a.Inputs = None,
    outputs: a.Outputs = None,
    time: a.Time = None,
    sampling_time: a.Step = None,
    experiment: a.Experiment = None,
    variable: a.Variable = None,
    test: a.Test = None,
    split: Share = None,
    out: Plot = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find gaps, stuck sensors, spikes, delay, feedback, poor excitation and more in log files.

    Exit code 0: nothing to look at; 1: advice; 2: the files cannot be read.
    """
    require_files([*files, *(test or [])])

    from occamid.assessment.check.records import check as check_records
    from occamid.data.findings import ordered, worst
    from occamid.data.prepare import split_in_time
    from occamid.errors import SettingsError
    from occamid.reading.files import examine

    told = dict(locals())
    if test and split is not None:
        raise SettingsError("`test` and `split` exclude each other; give one of them.")
    _check_out(out, force, [*files, *(test or [])])
    options = reading_options(told)
    records, findings = examine(files, lenient=True, **options)
    others: Any = ()
    if test:
        others, more = examine(test, lenient=True, **options)
        findings += more
    if split is not None:
        records, others = split_in_time(records, split)
    found = ordered([*findings, *check_records(records, others)])
    if out is not None:
        from occamid.reporting import figures

        figures.save(figures.findings_figure(records, found), out, overwrite=force)
    if as_json:
        print(json.dumps([finding.as_dict() for finding in found]))
    else:
        show(found)
        if out is not None:
            say(f"written to {out}")
    raise typer.Exit(CLEAN if worst(found) == "note" else ADVICE)


def show(findings: list[Finding]) -> None:
    """One line for each finding."""
    for finding in findings:
        say(as_flags(finding.line))
    serious = sum(finding.severity != "note" for finding in findings)
    say(f"{len(findings)} findings about the data, {serious} to look at")


def reading_options(told: dict[str, Any]) -> dict[str, Any]:
    """What the command line says about the columns, as the reader names it."""
    names = ("time", "sampling_time", "experiment", "variable")
    columns = {name: told[name] or () for name in ("inputs", "outputs")}
    return columns | {name: told[name] for name in names}


def _check_out(out: Path | None, force: bool, read: list[Path]) -> None:
    from occamid.errors import FileError
    from occamid.files.atomic import check_new_file

    if out is None:
        return
    from occamid.reporting import figures

    figures.require()
    check_new_file(out, overwrite=force, inputs=read)
    if out.suffix.lower() not in (".png", ".svg"):
        raise FileError(f"{out}: a plot is written as .png or .svg; choose such a name.")
