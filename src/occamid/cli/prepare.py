"""``occamid prepare``: log files cut, filled, filtered and resampled into one CSV file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from occamid.cli import arguments as a
from occamid.cli.check import Files, reading_options
from occamid.cli.shared import require_files, say

if TYPE_CHECKING:
    from occamid.data.record import Record
    from occamid.data.steps import Steps

Rows = Annotated[
    list[str] | None, typer.Option(help="First and last row of a range, such as 100:5000.")
]
Times = Annotated[
    list[str] | None, typer.Option(help="A range in seconds of the log, such as 60:3600.")
]
Fill = Annotated[int | None, typer.Option(help="Interpolate up to so many missing rows.")]
Mask = Annotated[bool, typer.Option("--mask-outliers", help="Replace spikes by interpolation.")]
Every = Annotated[int | None, typer.Option(help="Keep every so many-th sample, filtered before.")]
Hertz = Annotated[float | None, typer.Option(help="Edge of a filter without phase shift, in Hz.")]
Remove = Annotated[str | None, typer.Option(help="Remove means or trends.")]
Merge = Annotated[bool, typer.Option("--merge", help="Join all pieces end to end.")]
StepsFile = Annotated[Path | None, typer.Option(help="TOML file of steps; options come on top.")]
Out = Annotated[Path, typer.Option(help="CSV to write; the steps are written beside it as TOML.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files if they exist already.")]
Share = Annotated[
    float | None, typer.Option(help="Write the last part to a second file, such as 0.7.")
]
Json = Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")]


def prepare(
    files: Files,
    out: Out,
    inputs: a.Inputs = None,
    outputs: a.Outputs = None,
    time: a.Time = None,
    sampling_time: a.Step = None,
    experiment: a.Experiment = None,
    variable: a.Variable = None,
    steps: StepsFile = None,
    keep_rows: Rows = None,
    drop_rows: Rows = None,
    keep_times: Times = None,
    drop_times: Times = None,
    fill: Fill = None,
    mask_outliers: Mask = False,
    resample_to: a.ResampleTo = None,
    decimate: Every = None,
    low_pass: Hertz = None,
    high_pass: Hertz = None,
    remove: Remove = None,
    merge: Merge = False,
    split: Share = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Cut, fill, filter and resample log files; write a CSV file and the steps as TOML.

    The steps can be given to [bold]occamid identify --prepare[/bold], which keeps them with the
    model.
    """
    require_files([*files, *([steps] if steps else [])])

    from occamid.data.prepare import fitted, split_in_time
    from occamid.data.prepare import prepare as prepare_records
    from occamid.reading.files import examine

    told = dict(locals())
    targets = _targets(out, split)
    _check_targets(targets, force, [*files, *([steps] if steps else [])])
    wanted = _steps(told)
    raw, findings = examine(files, lenient=True, **reading_options(told))
    wanted = fitted(wanted, raw)
    records = prepare_records(raw, wanted)
    parts = split_in_time(records, split) if split is not None else (records,)
    _write(targets, parts, wanted, force)
    _told(as_json, targets, parts, findings)


def _steps(told: dict[str, Any]) -> Steps:
    """The steps of a file with those of the command line on top."""
    from occamid.data.steps import Steps
    from occamid.training.settings import read_toml

    content = read_toml(told["steps"]) if told["steps"] else {}
    single = ("fill", "decimate", "low_pass", "high_pass", "remove")
    given = {name: told[name] for name in single} | {"resample": told["resample_to"]}
    given |= {name: told[name] or None for name in ("mask_outliers", "merge")}
    for name in ("keep_rows", "drop_rows", "keep_times", "drop_times"):
        given[name] = [_range(text, name) for text in told[name] or []] or None
    return Steps(**(content | {k: v for k, v in given.items() if v is not None}))


def _range(text: str, name: str) -> tuple[float, float]:
    from occamid.errors import SettingsError

    first, _, last = text.partition(":")
    try:
        return float(first or 0), float(last) if last else 1e300
    except ValueError:
        raise SettingsError(f"`{name}` takes FIRST:LAST, not {text!r}.") from None


def _targets(out: Path, split: float | None) -> list[Path]:
    """The table, the test table if asked for, and the steps."""
    test = [out.with_name(f"{out.stem}-test{out.suffix}")] if split is not None else []
    return [out, *test, out.with_suffix(".toml")]


def _check_targets(targets: list[Path], force: bool, read: list[Path]) -> None:
    from occamid.errors import FileError
    from occamid.files.atomic import check_new_file

    if targets[0].suffix.lower() != ".csv":
        raise FileError(f"{targets[0]}: a table is written as .csv; choose such a name.")
    for target in targets:
        check_new_file(target, overwrite=force, inputs=read)


def _write(
    targets: list[Path], parts: tuple[tuple[Record, ...], ...], steps: Steps, force: bool
) -> None:
    import tomli_w

    from occamid.files.atomic import replace_file
    from occamid.files.records import records_to_csv

    for target, records in zip(targets, parts, strict=False):
        replace_file(target, records_to_csv(records).encode(), overwrite=force)
    replace_file(targets[-1], tomli_w.dumps(steps.given()).encode(), overwrite=force)


def _told(as_json: bool, targets: list[Path], parts: Any, findings: Any) -> None:
    from occamid.cli.check import show

    written = [str(target) for target in targets]
    rows = [sum(map(len, records)) for records in parts]
    if as_json:
        print(json.dumps({"out": written, "rows": rows}))
        return
    if findings:
        show(list(findings))
    for target, count in zip(written, rows, strict=False):
        say(f"written to {target}: {count} rows")
    say(f"steps written to {written[-1]}")
