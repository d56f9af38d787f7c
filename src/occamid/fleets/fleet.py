"""Fleet: many logs of the same kind in, one model for each and a page over all of them out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from occamid.bands.combine import load
from occamid.bands.ensemble import Ensemble
from occamid.errors import DataError, FileError, SettingsError
from occamid.files import manifest
from occamid.files.folder import Place, claim, new_folder
from occamid.files.plain import plain
from occamid.files.store import Store
from occamid.fleets.dispatch import dispatch
from occamid.fleets.names import folder_name, names_of, seed_of
from occamid.fleets.summary import summary
from occamid.fleets.table import to_csv
from occamid.fleets.units import SETTINGS, Row, Unit, do, failure, fetched, finished, keep
from occamid.identification import crew
from occamid.identification.crew import Workers
from occamid.identification.job import Job
from occamid.identification.options import Options
from occamid.reading.assets import asset_names
from occamid.reporting.page import render_fleet
from occamid.training.provenance import provenance
from occamid.training.settings import read_toml

ASSETS = "assets"  # the folder of the assets' folders
TABLE, CONTENT, PAGE = "fleet.csv", "fleet.json", "fleet.html"
OWN = ("example", "files", "test", "asset")  # settings of a job that a fleet decides


class Target(NamedTuple):
    """Where a fleet goes, what may be there already, and where else finished assets are put."""

    out: Path
    resume: bool = False
    force: bool = False
    store: str | Path | None = None


class Done(NamedTuple):
    """One more asset is done: its name, whether it worked, and how far the fleet is."""

    asset: str
    good: bool
    done: int
    total: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Fleet:
    """What came of a fleet.

    Attributes:
        folder: where everything is.
        rows: one for each asset that was identified: scores, regressors, folder.
        failures: one for each that was not, with its ``message``.
        summary: medians and ranges, regressors that most share, the odd ones out.
    """

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Row, ...]
    summary: dict[str, Any]

    def load(self, asset: str) -> Ensemble:
        """The model of an asset."""
        found = next((row for row in self.rows if row["asset"] == asset), None)
        if found is None:
            raise DataError(f"{asset} is no asset that was identified in {self.folder}.")
        return load(manifest.model_file(self.folder / found["folder"]))


def fleet(
    files: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    by: str | int | None = None,
    options: Options | None = None,
    cluster: str | None = None,
    workers: int | None = None,
    resume: bool = False,
    force: bool = False,
    store: str | Path | None = None,
    progress: Callable[[Done], None] | None = None,
    **changes: Any,
) -> Fleet:
    """Identify one model for each of many assets: a file each, or a column that names them.

    Scripts that use more than one process need ``if __name__ == "__main__":`` around the call.

    Args:
        files: logs of the same kind, each of one asset; with ``by`` each may hold many.
        out: folder for the table, the page, and a folder for each asset.
        by: column that names the asset of each row.
        options: effort, seed and what is fixed, as for :func:`occamid.identify`.
        cluster: address of a scheduler of dask; its workers do the work.
        workers: processes of this machine; default: one for each core.
        resume: go on with the fleet in the folder; what is done and unchanged stays.
        force: replace the fleet in the folder.
        store: a folder, or an address of fsspec, where workers put finished assets, too; what
            ``out`` lacks is fetched from there.
        progress: called after each asset.
        **changes: single options (``effort="quick"``) and how files are read (``inputs``,
            ``outputs``, ``time``, ``gaps``, ``split``, …), by the names of :class:`Options` and
            :func:`occamid.read`.
    """
    told = {k: v for k, v in changes.items() if k in Options.model_fields}
    rest = {k: v for k, v in changes.items() if k not in told}
    for name in OWN:
        if name in rest:
            raise SettingsError(f"a fleet has no setting {name}; leave it out.")
    chosen = Options(**((options.given() if options else {}) | told))
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    job = Job(**rest, by=by, options=chosen)
    to = Target(Path(out), resume, force, store)
    return run_fleet(job, list(map(Path, paths)), to, Workers(cluster, workers), progress)


def run_fleet(
    job: Job,
    files: Sequence[Path],
    to: Target,
    workers: Workers,
    progress: Callable[[Done], None] | None = None,
) -> Fleet:
    """A fleet of which every asset is identified as the job says."""
    if not files:
        raise SettingsError("name one or more files; each is one asset, or has many with `by`.")
    if to.resume and to.force:
        raise SettingsError("give `resume` to go on or `force` to begin anew, not both.")
    crew.check(workers)
    store = None if to.store is None else Store.of(to.store)
    if store:
        store.check(to.out)
    job = job.model_copy(update=dict.fromkeys(OWN[1:3], ()) | {"example": None, "asset": None})
    read = _assets(job, files)
    _check_there(to)
    with claim(to.out, overwrite=to.resume or to.force, inputs=files) as place:
        place, edition = _begun(place, job, to.resume)
        home = place.target / ASSETS
        home.mkdir(exist_ok=True)  # before any worker looks for it
        units = [
            replace(_unit(job, name, paths, home, edition), store=store)
            for name, paths in read.items()
        ]
        try:
            rows = _rows(units, workers, to.resume, progress)
        finally:
            with suppress(OSError):
                home.rmdir()  # if nothing came
        return _written(place, job, [rows[unit.asset] for unit in units], to.out)


def _assets(job: Job, files: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of each asset."""
    if job.by is None:
        return {name: [path] for name, path in zip(names_of(files), files, strict=True)}
    names_of(files)  # none twice
    found: dict[str, list[Path]] = {}
    for path in files:
        for name in asset_names(Path(os.path.abspath(path)), job.by, job.variable):
            found.setdefault(name, []).append(path)
    return found


def _unit(job: Job, name: str, paths: Sequence[Path], home: Path, edition: int) -> Unit:
    seed = seed_of(name, job.options.seed)
    mine = {
        "files": tuple(os.path.abspath(path) for path in paths),
        "asset": None if job.by is None else name,
        "options": Options(**(job.options.given() | {"seed": seed})),
    }
    return Unit(name, job.model_copy(update=mine), home / folder_name(name), edition)


def _check_there(to: Target) -> None:
    """Say what can be done with a fleet that is there already."""
    if os.path.lexists(to.out / SETTINGS) and not (to.resume or to.force):
        raise FileError(
            f"{to.out} already holds a fleet; go on with it with `resume`, replace it with "
            "`force`, or choose another `out`."
        )


def _begun(place: Place, job: Job, resume: bool) -> tuple[Place, int]:
    """The folder with the settings of the fleet in it, and its edition."""
    path = place.target / SETTINGS
    edition = 1
    if SETTINGS in place.old:
        old = read_toml(path)
        edition = int(old["edition"])
        if resume:
            _check_same(Job(**old["job"]), job, place.folder)
            return place, edition
        edition += 1
    elif place.old:
        raise FileError(f"{place.folder} holds a run and no fleet; choose another `out`.")
    with new_folder(place) as scratch:
        told = tomli_w.dumps({"edition": edition, "job": job.given()})
        (scratch / SETTINGS).write_text(told, "utf-8")
    return replace(place, old=manifest.read(place.target) or {}), edition


def _check_same(old: Job, new: Job, folder: Path) -> None:
    """A table must not mix models that were made differently."""
    before, now = old.model_dump(), new.model_dump()
    before |= before.pop("options")
    now |= now.pop("options")
    if other := [name for name in now if before[name] != now[name]]:
        raise SettingsError(
            f"the fleet in {folder} was begun with another {', '.join(other)}; `resume` with the "
            "same, use `force` to begin anew, or choose another `out`."
        )


def _rows(
    units: Sequence[Unit],
    workers: Workers,
    resume: bool,
    progress: Callable[[Done], None] | None,
) -> dict[str, Row]:
    """A row for each unit: of before where it was done, else from a worker."""
    began = time.perf_counter()
    rows = {unit.asset: row for unit in units if (row := _before(unit, resume))}
    left = [unit for unit in units if unit.asset not in rows]
    for unit, row in dispatch(do, left, workers):
        rows[unit.asset] = _brought(unit, row)
        if progress:
            spent = time.perf_counter() - began
            progress(Done(unit.asset, "message" not in row, len(rows), len(units), spent))
    return rows


def _before(unit: Unit, resume: bool) -> Row | None:
    """The row of a unit that was done before, here or, when resuming, as the store has it."""
    row = finished(unit)
    if row is not None:
        with suppress(FileError):  # it is here all the same
            keep(unit, row, unit.folder)
    elif resume:
        row = fetched(unit)
    return None if row is None or "message" in row else row


def _brought(unit: Unit, row: Row) -> Row:
    """The row of a unit whose folder is here; one that a worker could only store is fetched."""
    if unit.store is None or "message" in row or finished(unit):
        return row
    return fetched(unit) or failure(
        unit,
        f"a worker has done it, but nothing of it is in {unit.store.address}; put `out` or `store` "
        "where all workers can write.",
    )


def _written(place: Place, job: Job, rows: Sequence[Row], out: Path) -> Fleet:
    """Table, numbers and page beside the settings."""
    good = tuple(row for row in rows if "message" not in row)
    bad = tuple(row for row in rows if "message" in row)
    about = summary(good) if good else {}
    odd = {found["asset"]: found["reasons"] for found in about.get("odd", [])}
    content = plain(
        {
            "occamid": "fleet",
            "title": out.name,
            "provenance": provenance() | {"seed": job.options.seed, "effort": job.options.effort},
            "summary": about,
            "assets": list(good),
            "failures": list(bad),
        }
    )
    settings = (place.target / SETTINGS).read_bytes()
    with new_folder(place) as folder:
        (folder / SETTINGS).write_bytes(settings)
        (folder / TABLE).write_text(to_csv(good, bad, odd), "utf-8")
        (folder / CONTENT).write_text(json.dumps(content, indent=1, allow_nan=False), "utf-8")
        (folder / PAGE).write_text(render_fleet(content), "utf-8")
    return Fleet(out, good, bad, about)
