"""A unit of work: one asset, read, identified, judged and written once.

A unit may be done twice, by two workers or after a kill: the second finds the work of the first.
Its numbers depend on its data, its settings and its name only.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from occamid.assessment.check.records import check
from occamid.data.findings import ordered
from occamid.errors import FileError, OccamidError
from occamid.files import manifest
from occamid.files.checkpoints import Checkpoints, digest_of
from occamid.files.folder import ElsewhereError, Place, claim, new_folder
from occamid.files.lock import BusyError
from occamid.files.parcel import pack, unpack
from occamid.files.plain import plain
from occamid.files.store import Store
from occamid.identification.identify import identify
from occamid.identification.job import Job
from occamid.reporting import runs
from occamid.training.cores import limited
from occamid.training.provenance import source

ROW = "asset.json"  # in the folder of an asset: its row of the table
SETTINGS = "fleet.toml"  # in the folder of the fleet
PAUSE = 1.0  # seconds between two looks at a folder that another worker writes
Row = dict[str, Any]


@dataclass(frozen=True)
class Unit:
    """One asset: what is done, and where it goes."""

    asset: str
    job: Job
    folder: Path
    edition: int  # how often the fleet was begun anew; what an earlier one left does not count
    store: Store | None = None  # where its folder is put, too

    @property
    def key(self) -> str:
        """Everything that was asked for, in short."""
        asked = json.dumps([self.job.model_dump(mode="json"), self.edition, str(self.folder)])
        return sha256(asked.encode()).hexdigest()

    @property
    def entry(self) -> str:
        """The key of its folder in a store: what was asked for, the data, and this version."""
        return self.entry_of(_data(self.job))

    def entry_of(self, data: Any) -> str:
        """The same for data that were read before; a log may have grown meanwhile."""
        return digest_of(self.key, json.dumps(data), source())

    @property
    def about(self) -> Row:
        """Which asset a row is about, whatever came of it."""
        return {
            "asset": self.asset,
            "folder": f"{self.folder.parent.name}/{self.folder.name}",
            "files": list(self.job.files),
        }


def do(unit: Unit) -> Row:
    """The row of an asset; one that cannot be identified has a ``message`` and nothing else."""
    try:
        with limited(1):  # units run side by side; how many there are changes no number
            return _alone(unit)
    except OccamidError as error:
        return failure(unit, str(error))
    except Exception as error:  # of a library: the other assets go on
        return failure(unit, f"{type(error).__name__}: {error}")


def failure(unit: Unit, message: str) -> Row:
    """The row of an asset that could not be identified."""
    return unit.about | {"message": message}


def finished(unit: Unit) -> Row | None:
    """The row of a unit that was done before, if it was this very unit and all of it is there."""
    files = manifest.read(unit.folder)
    if not files or ROW not in files or manifest.changed(unit.folder, files):
        return None
    try:
        row = runs.read_json(unit.folder, ROW)
        same = row["key"] == unit.key and row["data"] == _data(unit.job)
    except (FileError, LookupError):
        return None
    return row if same else None


def fetched(unit: Unit) -> Row | None:
    """The row of a unit whose folder is in the store; the folder is put where it belongs."""
    try:
        content = unit.store.get(unit.entry) if unit.store else None
        files = None if content is None else unpack(content)
        if files is None:
            return None
        read = [Path(path) for path in unit.job.files]
        with claim(unit.folder, overwrite=True, inputs=read) as place, new_folder(place) as folder:
            for name, inside in files.items():
                (folder / name).write_bytes(inside)
    except FileError as error:  # of a log that is gone, a folder that is not ours, the store
        return failure(unit, str(error))
    return finished(unit)


def _alone(unit: Unit) -> Row:
    """Do a unit while no other process does; one that was waited for has left its row."""
    home = unit.folder.parent.parent
    if not (home / SETTINGS).is_file():
        if unit.store is not None:
            return _elsewhere(unit)
        raise FileError(
            f"the worker on {platform.node()} does not see the folder {home}; put `out` where all "
            "workers can write, at the same path, or name a `store` that all can reach."
        )
    while True:
        try:
            read = [Path(path) for path in unit.job.files]
            with claim(unit.folder, overwrite=True, inputs=read) as place:
                row = finished(unit) or _identified(unit, place)
                with suppress(OccamidError):  # the folder is whole, whatever the store says
                    keep(unit, row, place.target)
                return row
        except BusyError:
            time.sleep(PAUSE)
        except ElsewhereError:  # where folders cannot be locked, another worker was quicker
            if (found := finished(unit)) is None:
                raise
            return found


def _elsewhere(unit: Unit) -> Row:
    """Do a unit on a machine that does not see its folder: it goes to the store alone."""
    with (
        tempfile.TemporaryDirectory(prefix="occamid-") as scratch,
        claim(Path(scratch) / unit.folder.name) as place,
    ):
        row = _identified(unit, place)
        keep(unit, row, place.target)
        return row


def keep(unit: Unit, row: Row, folder: Path) -> None:
    """Put the folder of a finished unit into the store, if there is one."""
    if unit.store is not None:
        unit.store.put(unit.entry_of(row["data"]), pack(folder))


def _identified(unit: Unit, place: Place) -> Row:
    """Read, identify, judge and write; finished cycles are kept until then."""
    began, worked = time.perf_counter(), time.process_time()
    data = _data(unit.job)
    estimation, test, noticed, job, logged = unit.job.look()
    found = ordered([*noticed, *check(*logged)])
    checkpoints = Checkpoints(place.folder.with_name(f".{place.folder.name}.partial"))
    fit = identify(estimation, job.options, checkpoints=checkpoints)
    with new_folder(place) as folder:
        summary = runs.write(fit, job, test, folder, found, pictures=False)
        row = unit.about | scores(summary, runs.read_json(folder, runs.CONTENT))
        row |= {"key": unit.key, "data": data}
        row["seconds"] = round(time.perf_counter() - began, 3)
        row["processor_seconds"] = round(time.process_time() - worked, 3)
        (folder / ROW).write_text(json.dumps(plain(row), indent=1, allow_nan=False), "utf-8")
    checkpoints.clear()
    return row


def scores(summary: dict[str, Any], page: dict[str, Any]) -> Row:
    """What a table over many assets shows of a run."""
    role, dynamics = page["data"], page["dynamics"]
    judged = zip(page["facts"]["outputs"], page["residuals"][role]["outputs"], strict=True)
    expected = zip(summary["expected_rmse"], summary["expected_interval"], strict=True)
    return {
        "family": summary["family"],
        "rows": sum(record["rows"] for record in page["records"]),
        "judged_on": role,
        "outputs": [
            {
                "name": facts["name"],
                "expected_rmse": rmse,
                "expected_interval": interval,
                "rmse": (residuals["free_run"] or {}).get("rmse"),
                "fit": facts["fit"],
                "coverage": facts["coverage"],
            }
            for (facts, residuals), (rmse, interval) in zip(judged, expected, strict=True)
        ],
        "regressors": summary["kept_names"],
        "parameters": summary["parameters"],
        "gains": dynamics.get("gains", []),
        "slowest": max((p["seconds"] or 0.0 for p in dynamics.get("poles", [])), default=None),
        "headline": page["verdict"]["headline"],
        "warnings": [warning["title"] for warning in page["verdict"]["warnings"]],
    }


def _data(job: Job) -> dict[str, str]:
    """A digest of each file, so that one that was changed since is read again."""
    return {path: _file_digest(path, *_state(path)) for path in job.files}


def _state(path: str) -> tuple[int, int]:
    try:
        state = os.stat(path)
    except OSError as error:
        raise FileError(f"{path}: the file cannot be read: {error.strerror}.") from None
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=64)
def _file_digest(path: str, size: int, changed: int) -> str:
    """Many assets may share one file: it is looked through once."""
    try:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path}: the file cannot be read: {error.strerror}.") from None
