"""The work of ``occamid simulate``, ``predict`` and ``compare``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from occamid.assessment.run import Run
from occamid.bands.combine import load
from occamid.bands.ensemble import Ensemble
from occamid.cli.shared import console, listed, neutral, say
from occamid.data.prepare import apply_steps, put_back
from occamid.data.record import Record
from occamid.errors import DataError, SettingsError
from occamid.files.atomic import replace_file
from occamid.files.plain import cell_name, plain
from occamid.identification.job import Job, job_of
from occamid.reading.choose import Wanted
from occamid.reading.experiments import SAME_STEP, Options
from occamid.reading.log import Log, read_log
from occamid.reporting import figures, runs


class Like(NamedTuple):
    """A run, and how its files are read."""

    run: Path
    gaps: str = "error"
    resample: bool = False
    sampling_time: float | None = None


class Start(NamedTuple):
    """Where a free run starts from, and how its band is made."""

    n_init: int | None = None
    initial: str | Path | None = None
    samples: int | None = None


class Target(NamedTuple):
    """Where a table goes."""

    out: Path
    force: bool = False
    as_json: bool = False


def read(
    like: Like, ensemble: Ensemble, file: Path, *, ahead: bool = False, last: bool = False
) -> Log:
    """The longest record of a file, or the last one, with the channels and steps of the model.

    What the file is like (time column, experiments, variable) is what identify was told.
    """
    told, names, given = job_of(like.run), ensemble.terms, like.sampling_time
    usual = ensemble.sampling_time
    wanted = Wanted(
        names.input_names,
        names.output_names,
        told.time if given is None else None,
        told.experiment,
        timed=(told.sampling_time if given is None and not like.resample else given) is None,
    )
    options = Options(
        told.sampling_time if given is None and not like.resample else given,
        usual if like.resample else None,
        like.gaps,  # type: ignore[arg-type]
    )
    found = read_log(file, wanted, options, told.variable, ahead=ahead, last=last)
    log = _prepared(told, found, file)
    step = log.record.sampling_time
    if abs(step - usual) > SAME_STEP * usual and len(log.record) > 1:
        raise DataError(
            f"{file} is sampled every {step:g} s, but the model was identified "
            f"at {usual:g} s; interpolate with --resample or, if it has no time column, give "
            f"--sampling-time {usual:g}."
        )
    return log._replace(record=replace(log.record, sampling_time=usual))


def _prepared(told: Job, log: Log, file: Path) -> Log:
    """The steps that the model's data went through, done to this log too."""
    if told.prepare is None:
        return log
    record = apply_steps(told.prepare, log.record)
    if len(record) == len(log.record):
        return log._replace(record=record)
    if not log.complete:
        raise DataError(
            f"{file} has rows without outputs, and the steps of this model change the number of "
            "rows; give a file with all outputs, or identify without those steps."
        )
    times = list(np.arange(len(record)) * record.sampling_time)
    return log._replace(record=record, times=times, measured=len(record))


def _put_back(like: Like, record: Record, found: Run) -> tuple[Record, Run]:
    """Record and run with the means that were removed before identification."""
    steps = job_of(like.run).prepare
    if steps is None or not steps.offsets:
        return record, found
    back = partial(put_back, steps, record.output_names)
    assert found.quantiles is not None
    whole = replace(found, mean=back(found.mean), quantiles=back(found.quantiles))
    return replace(record, y=back(record.y)), whole


def _long_enough(log: Log, ensemble: Ensemble, file: Path) -> Log:
    if len(log.record) < ensemble.start + 2:
        raise DataError(
            f"{file}: {len(log.record)} rows in one piece, but the model needs "
            f"{ensemble.start + 2} or more; use a longer file."
        )
    return log


def simulate(like: Like, file: Path, start: Start, to: Target) -> None:
    """Free run on a file's inputs."""
    ensemble = load(like.run)
    log = read(like, ensemble, file, ahead=True)
    record = log.record
    if start.initial is not None:
        initial: Any = start.initial
        if isinstance(initial, Path):
            initial = read(like, ensemble, initial, last=True).record
        found = ensemble.simulate(record, initial=initial, samples=start.samples)
    else:
        found = ensemble.simulate(
            record, _known(log, ensemble, start.n_init, file), samples=start.samples
        )
    record, found = _put_back(like, record, found)
    facts: dict[str, Any] = {"rows with measured outputs": log.measured}
    if log.complete:
        judged = runs.judge(record, found)
        named = {"rmse": "rmse", "fit": "fit %", "coverage95": "95 % band covers"}
        facts = {name: judged[key] for key, name in named.items()}
    facts |= _piece(log)
    _write(_table(log.times, record.output_names, found), to, found.n_init, facts)


def _known(log: Log, ensemble: Ensemble, n_init: int | None, file: Path) -> int:
    """How many measured outputs the run starts from."""
    if log.complete:
        _long_enough(log, ensemble, file)
        return ensemble.start if n_init is None else n_init
    known = log.measured if n_init is None else n_init
    if ensemble.fewest_known <= known <= log.measured:
        return known
    raise DataError(
        f"{file} has {log.measured} rows with measured outputs at its head, but the run needs "
        f"{max(known, ensemble.fewest_known)} to start from: say with --initial what came before, "
        "last (the end of the estimation data), steady (rest under the first inputs) or a file."
    )


def predict(like: Like, file: Path, horizon: int, to: Target) -> None:
    """A file's outputs a number of steps ahead of its own measurements."""
    ensemble = load(like.run)
    log = _long_enough(read(like, ensemble, file), ensemble, file)
    record = log.record
    if horizon >= len(record):
        raise SettingsError(
            f"--horizon {horizon} reaches beyond the {len(record)} rows of {file}; give fewer "
            "steps, or the inputs to come with --future."
        )
    record, found = _put_back(like, record, ensemble.predict(record, horizon))
    facts = {"rmse": tuple(map(float, found.rmse(record))), "horizon": horizon} | _piece(log)
    _write(_table(log.times, record.output_names, found), to, ensemble.start, facts)


def forecast(like: Like, file: Path, future: Path, horizon: int | None, to: Target) -> None:
    """The rows after the end of a log, given their inputs.

    It starts from the last measured outputs; inputs that are known after them are run through.
    """
    ensemble = load(like.run)
    past = read(like, ensemble, file, ahead=True, last=True)
    ahead = read(like, ensemble, future, ahead=True)
    if past.measured < ensemble.fewest_known:
        piece = "" if past.pieces == 1 else f" in the last of its {past.pieces} pieces"
        raise DataError(
            f"{file} has {past.measured} rows with measured outputs{piece}, but a forecast starts "
            f"from {ensemble.fewest_known} or more."
        )
    _goes_on(file, past, future, ahead)
    rows = len(ahead.record) if horizon is None else horizon
    if rows > len(ahead.record):
        raise SettingsError(
            f"--horizon {rows} reaches beyond the {len(ahead.record)} rows of {future}; give fewer "
            "steps."
        )
    between = past.record.u[past.measured :]
    u = np.concatenate([between, ahead.record.u[:rows]])
    run = ensemble.simulate(u, initial=past.record[: past.measured])
    _, found = _put_back(like, ahead.record, run.after(len(between)))
    table = _table(ahead.times[:rows], ahead.record.output_names, found)
    _write(table, to, 0, {"horizon": rows})


def _goes_on(file: Path, past: Log, future: Path, ahead: Log) -> None:
    """Refuse inputs that do not begin a step after the log's end, by the files' clocks.

    Where the model's steps are longer than the file's, that is less than one of its steps.
    """
    if past.ends is None or ahead.ends is None:
        return
    step, apart = past.record.sampling_time, ahead.ends[0] - past.ends[1]
    if not 0 < apart <= 1.5 * step:
        side = "after" if apart >= 0 else "before"
        raise DataError(
            f"{future} begins {abs(apart):g} s {side} the last row of {file}, but a forecast goes "
            f"on {step:g} s after it; give the inputs from there on."
        )


def _piece(log: Log) -> dict[str, Any]:
    """Which part of a file in pieces it is."""
    if log.pieces == 1:
        return {}
    return {"piece": f"the longest of {log.pieces}, from {_time(log.times[0])} on"}


def compare(
    likes: Sequence[Like], file: Path, out: Path | None, *, force: bool, as_json: bool
) -> None:
    """Several runs on one file."""
    rows, shown = [], []
    for like in likes:
        ensemble = load(like.run)
        record = _long_enough(read(like, ensemble, file), ensemble, file).record
        record, found = _put_back(like, record, ensemble.simulate(record))
        judged = runs.judge(record, found)
        rows.append({"run": str(like.run), **judged, "parameters": ensemble.parameters})
        shown.append((str(like.run), found.mean))
    if out is not None:
        figure = figures.compare_figure(record, shown, f"free run on {record.name}")
        figures.save(figure, out, overwrite=force)
    if as_json:
        print(json.dumps(plain(rows)))
        return
    table = Table(title=Text(neutral(f"free run on {record.name}")), title_justify="left")
    for heading in ("run", "fit %", "RMSE", "95 % band covers", "parameters"):
        table.add_column(heading)
    for row in sorted(rows, key=lambda r: -np.mean(r["fit"])):
        cells = (
            listed(row["fit"], ".1f"),
            listed(row["rmse"], ".4g"),
            listed(row["coverage95"], ".1%"),
        )
        table.add_row(Text(neutral(row["run"])), *cells, str(row["parameters"]))
    console.print(table)


def _table(times: Sequence[Any], names: Sequence[str], found: Run) -> pd.DataFrame:
    """Time, mean, standard deviation and 95 % band of every output."""
    low, high = found.interval(0.95)
    columns: dict[str, Any] = {"time": list(map(_time, times))}
    for k, name in enumerate(names):
        name = cell_name(name)
        columns |= {
            name: found.mean[:, k],
            f"{name} std": found.spread[:, k],
            f"{name} low": low[:, k],
            f"{name} high": high[:, k],
        }
    return pd.DataFrame(columns)


def _time(t: Any) -> str:
    return f"{t:.15g}" if isinstance(t, float) else str(t)


def _write(table: pd.DataFrame, to: Target, known: int, facts: dict[str, Any]) -> None:
    content = table.to_csv(index=False).encode()  # with every digit
    replace_file(to.out, content, overwrite=to.force)
    if to.as_json:
        print(json.dumps(plain({"out": str(to.out), "known": known, **facts})))
        return
    for name, value in facts.items():
        say(f"{name}: {listed(value, '.4g') if isinstance(value, tuple) else value}")
    say(f"written to {to.out}: {len(table)} rows")
