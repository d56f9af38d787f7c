"""The work of ``occamid identify``: read, identify, judge, write, and tell."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.table import Table

from occamid.assessment.check.records import check
from occamid.cli.check import show
from occamid.cli.shared import console, listed, neutral, say, stage_bar
from occamid.data.findings import ordered
from occamid.data.record import Record
from occamid.errors import FileError, OccamidError
from occamid.files import manifest
from occamid.files.checkpoints import Checkpoints
from occamid.files.folder import ElsewhereError, Place, claim, new_folder
from occamid.files.store import Store
from occamid.identification import crew
from occamid.identification import identify as identification
from occamid.identification.crew import HERE, Workers
from occamid.identification.job import Job, job_from
from occamid.reporting import figures, runs
from occamid.training.cores import suited_to
from occamid.training.settings import read_toml

RESUME = "Finished cycles are kept: the same command with --resume goes on from there."


class Folder(NamedTuple):
    """Where the run goes, what may be there already, who does the work and where it is kept."""

    out: Path
    force: bool = False
    resume: bool = False
    workers: Workers = HERE
    store: str | None = None  # the user's own; else beside the run

    @property
    def checkpoints(self) -> Checkpoints:
        """Where finished work is kept."""
        named = None if self.store is None else Store.of(self.store, reads=self.resume)
        return Checkpoints(self.out.absolute().parent / f".{self.out.name}.partial", named)


def identify(
    config: Path | None, data: dict[str, Any], fixed: dict[str, Any], to: Folder, *, quiet: bool
) -> None:
    """A job of a file and of options, done; ``quiet`` prints its summary as JSON only."""
    crew.check(to.workers)
    if to.checkpoints.named:
        to.checkpoints.named.check(to.out, to.checkpoints.folder)
    job, read = job_of(config, data, fixed)
    with claim(to.out, overwrite=to.force, inputs=read) as place:
        summary = run_job(job, place, to, quiet=quiet)
    if quiet:
        print(json.dumps(summary))


def job_of(
    config: Path | None, data: dict[str, Any], fixed: dict[str, Any]
) -> tuple[Job, list[Path]]:
    """The job, and every file that it reads."""
    steps = data.get("prepare")
    if steps is not None:
        data = data | {"prepare": read_toml(steps)}
    job = job_from(config, data, fixed)
    return job, [
        *map(Path, (*job.files, *job.test)), *(path for path in (config, steps) if path)
    ]  # fmt: skip


def run_job(job: Job, place: Place, to: Folder, *, quiet: bool) -> dict[str, Any]:
    """Read, identify, judge and write; finished cycles are kept beside the folder until then."""
    estimation, test, noticed, job, logged = job.look()
    found = ordered([*noticed, *check(*logged)])
    if not quiet:
        show(found)
    out, checkpoints = place.folder, to.checkpoints
    if not to.resume:
        checkpoints.clear()
    with _going_on(checkpoints), suited_to(sum(map(len, estimation))):
        fit = _identify(job, estimation, checkpoints, to.workers, quiet)
        with new_folder(place) as folder:
            summary = runs.write(fit, job, test, folder, found)
    checkpoints.clear()
    if not quiet:
        _show(fit, summary, out)
    return summary


def _identify(
    job: Job,
    estimation: tuple[Record, ...],
    checkpoints: Checkpoints,
    workers: Workers,
    quiet: bool,
) -> identification.Fit:
    """The identification itself, with a bar."""
    try:
        with stage_bar(quiet) as progress:
            return identification.identify(
                estimation,
                job.options,
                progress=progress,
                checkpoints=checkpoints,
                workers=workers.told,
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
        if checkpoints.kept() or checkpoints.named:
            print(RESUME, file=sys.stderr)
        raise
    except ElsewhereError:
        checkpoints.clear()
        raise
    except OccamidError as error:
        if not checkpoints.kept():
            raise
        raise type(error)(f"{error} {RESUME}") from error


def _show(fit: identification.Fit, summary: dict[str, Any], out: Path) -> None:
    """What was tried, what was chosen, and the verdict."""
    if fit.trials:
        table = Table(title="free run on held-back estimation data", title_justify="left")
        for heading in ("family", "error", "what it is"):
            table.add_column(heading, no_wrap=heading == "family")
        for trial in fit.trials:
            mark = " *" if trial.family in fit.shares else ""
            table.add_row(trial.family + mark, listed(trial.rmse, ".4g"), neutral(trial.about))
        console.print(table)
    show_run(fit, summary, out)


def show_run(fit: identification.Fit, summary: dict[str, Any], out: Path) -> None:
    """The chosen model, the verdict, and what was written."""
    say(fit.coverage_of_data)
    say(f"chosen: {fit.grounds}")
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
    if not figures.available():
        say(f"no free_run.png and sparsity.png: {figures.MISSING}")
    say(f"open {out / runs.PAGE} in a browser")
