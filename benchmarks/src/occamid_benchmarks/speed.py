"""How long an identification takes as a user meets it: in a process of its own, first and again.

Cold is with no compiled program at hand, warm with those of the cold run.  Run as a module it is
the process that is timed: ``python -m occamid_benchmarks.speed RECORD EFFORT``.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from occamid.identification.identify import identify
from occamid.training.entries import VARIABLE as PROGRAMS
from occamid.training.provenance import provenance
from occamid_benchmarks.suite import records
from occamid_benchmarks.suite.measure import put
from occamid_benchmarks.timing import told_by

KINDS = ("cold", "warm")


def measure(record: str, effort: str) -> dict[str, Any]:
    """Seconds, processor seconds and peak memory of two identifications, and what was found."""
    found: dict[str, Any] = {"kind": "speed", "record": record, "effort": effort}
    with tempfile.TemporaryDirectory(prefix="occamid-speed-") as cache:
        for kind in KINDS:
            found[kind] = _alone(record, effort, cache)
    return found | provenance()


def _alone(record: str, effort: str, cache: str) -> dict[str, Any]:
    command = [sys.executable, "-m", __name__, record, effort]
    began = time.perf_counter()
    told = told_by(command, f"{record}: the identification", {PROGRAMS: cache})
    return {"seconds": round(time.perf_counter() - began, 1)} | told


def write(result: dict[str, Any], folder: Path) -> Path:
    """One file for each record and effort."""
    path = folder / f"{result['record']}-{result['effort']}.json"
    put(result, path)
    return path


def main(record: str, effort: str) -> None:
    """The process that is timed; its last line says what it used."""
    case = records.load(record)
    fit = identify(case.estimation, effort=effort)
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gib": round(used.ru_maxrss / 2**20, 2),  # Linux counts KiB
        "rows": sum(map(len, case.estimation)),
        "family": fit.family.name,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:3])
