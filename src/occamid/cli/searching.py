"""The work of ``occamid search``: read, search, fit, judge, write, and tell."""

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
from occamid.cli.shared import console, neutral, say, stage_bar
from occamid.cli.training import Folder, job_of, show_run
from occamid.data.findings import ordered
from occamid.errors import FileError, OccamidError
from occamid.files.checkpoints import Checkpoints
from occamid.files.folder import ElsewhereError, Place, claim, new_folder
from occamid.identification import crew
from occamid.identification.job import Job
from occamid.identification.search import search as searches
from occamid.identification.search import study as studies
from occamid.reporting import runs, trials

RESUME = "Finished trials are kept: the same command with --resume goes on from there."


class Plan(NamedTuple):
    """How many trials, which is taken, and where they are kept."""

    trials: int
    pick: str
    study: str | None = None


def search(
    config: Path | None,
    data: dict[str, Any],
    fixed: dict[str, Any],
    to: Folder,
    plan: Plan,
    *,
    quiet: bool,
) -> None:
    """A job of a file and of options, searched; ``quiet`` prints its summary as JSON only."""
    studies.require()
    crew.check(to.workers)
    searches.check(plan.trials, plan.study, to.resume and plan.study is not None, plan.pick)
    job, read = job_of(config, data, fixed)
    if plan.study is not None and "://" not in plan.study:
        _check_study(Path(plan.study), to.out, read)
        read.append(Path(plan.study))
    with claim(to.out, overwrite=to.force, inputs=read) as place:
        summary = _run(job, place, plan, to, quiet=quiet)
    if quiet:
        print(json.dumps(summary))


def _check_study(path: Path, out: Path, read: list[Path]) -> None:
    """Refuse a file that is data, or that would lie in the run's own folder."""
    if any(path.absolute() == other.absolute() for other in read):
        raise FileError(f"{path} is read by this command; name another file with `study`.")
    if out.absolute() in path.absolute().parents:
        raise FileError(f"{path} is inside the run folder {out}; name a file beside it.")
    studies.check_journal(path)


def _run(job: Job, place: Place, plan: Plan, to: Folder, *, quiet: bool) -> dict[str, Any]:
    """Read, search, fit and write; trials are kept beside the folder until then."""
    estimation, test, noticed, job, logged = job.look()
    found = ordered([*noticed, *check(*logged)])
    if not quiet:
        show(found)
    out = place.folder
    partial = out.absolute().parent / f".{out.name}.partial"
    checkpoints = Checkpoints(partial)
    own = partial.with_suffix(".study")
    with _kept(plan, own, to.resume) as study, stage_bar(quiet) as progress:
        searched = searches.search(
            estimation,
            job.options,
            trials=plan.trials,
            study=study,
            resume=to.resume,
            pick=plan.pick,
            progress=progress,
            checkpoints=checkpoints,
            workers=to.workers.told,
        )
        done = job.model_copy(update={"options": searched.fit.options})
        with new_folder(place) as folder:
            summary = runs.write(searched.fit, done, test, folder, found, searched=searched)
    checkpoints.clear()
    if not quiet:
        _show_front(searched)
        show_run(searched.fit, summary, out)
    return summary | {"search": trials.summary(searched)}


@contextmanager
def _kept(plan: Plan, own: Path, resume: bool) -> Iterator[str]:
    """Where the trials are kept: the user's study, or a journal of ours that goes when all is done.

    Where trials stay after Ctrl-C or an error, say what they are good for.
    """
    if plan.study is not None:  # the user's, and stays
        yield plan.study
        return
    if not resume and studies.is_ours(own):
        own.unlink()
    try:
        yield str(own)
    except (KeyboardInterrupt, typer.Abort):
        if _left(own):
            print(RESUME, file=sys.stderr)
        raise
    except ElsewhereError:
        own.unlink(missing_ok=True)
        raise
    except OccamidError as error:
        if not _left(own):
            raise
        raise type(error)(f"{error} {RESUME}") from error
    own.unlink(missing_ok=True)


def _left(journal: Path) -> bool:
    """Whether a journal of ours has trials to go on with; one without is removed."""
    if not studies.is_ours(journal):
        return False
    if studies.ended_in(journal):
        return True
    journal.unlink()
    return False


def _show_front(searched: searches.Searched) -> None:
    """Error against size: the trials to which no other is both smaller and better."""
    title = "front of error (free run, held-back data, in spreads) against size"
    table = Table(title=title, title_justify="left")
    for heading in ("trial", "parameters", "error", "settings"):
        table.add_column(heading, no_wrap=heading != "settings")
    for trial in searched.front:
        mark = " *" if trial.number == searched.chosen.number else ""
        knobs = neutral(trials.said(trial.knobs))
        table.add_row(f"{trial.number}{mark}", str(trial.size), f"{trial.score:.4g}", knobs)
    console.print(table)
    states = [t.state for t in searched.trials]
    say(f"{len(states)} trials: {states.count('pruned')} pruned, {states.count('failed')} failed")
