"""Peers that live in an environment of their own: what they are told, started and judged.

One JSON file for each record and peer; a failure is a result too, with its reason.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import occamid_benchmarks
from occamid.assessment.metrics import rmse
from occamid.data.record import Record
from occamid.errors import FileError
from occamid_benchmarks.peers.exchange import (
    Answer,
    Problem,
    Signals,
    read_answer,
    write_problem,
)
from occamid_benchmarks.suite.measure import pooled, pooling, put, results_of
from occamid_benchmarks.suite.records import DAISY_KNOWN, Case

Json = dict[str, Any]
ROWS = 20_000  # of the estimation data, its first; FROLS keeps a matrix of as many rows
ONE_CORE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


class Settings(NamedTuple):
    """How a peer is run."""

    python: Path  # of the peers' environment
    seconds: int  # of the processor, after which a peer begins nothing more
    limit: int  # after which it is ended
    seed: int


def problem_of(case: Case) -> Problem:
    """What a peer may know of a case; where nobody says how many first outputs, 20."""
    estimation, left = [], ROWS
    for record in case.estimation:
        if left > 0:
            estimation.append(Signals(record.u[:left], record.y[:left]))
            left -= len(record)
    known = case.n_init or DAISY_KNOWN
    return Problem(tuple(estimation), tuple(Signals(r.u, r.y[:known]) for r in case.test))


def run_peer(name: str, peer: str, case: Case, settings: Settings) -> Json:
    """One peer on one record, judged on every test."""
    problem = problem_of(case)
    found = ask(peer, problem, settings)
    rows, given = (sum(len(r.u) for r in part) for part in (case.estimation, problem.estimation))
    return {
        "kind": "peer",
        "record": name,
        "peer": peer,
        "model": found.about,
        "error": found.error,
        "seconds": found.seconds,
        "unit": case.unit,
        "rows": given,
        "note": f"the first {given} of {rows} estimation rows" if given < rows else "",
        "tests": [judge(k, record, case, problem, found) for k, record in enumerate(case.test)],
        "seed": settings.seed,
        "asked_to_stop_after_s": settings.seconds,
        "limit_s": settings.limit,
        "digest": problem.digest,
        "versions": found.versions,
        "machine": f"{platform.system()} {platform.machine()}, one core of {os.cpu_count()}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def ask(peer: str, problem: Problem, settings: Settings) -> Answer:
    """Start a peer in its environment; what goes wrong there is in the answer."""
    began = time.perf_counter()
    root = Path(occamid_benchmarks.__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="occamid-peers-") as folder:
        told, heard = Path(folder) / "problem.npz", Path(folder) / "answer.json"
        write_problem(told, problem)
        command = [
            *(settings.python.absolute(), "-m", "occamid_benchmarks.peers.answer", peer),
            *(told, heard, settings.seconds, settings.limit, settings.seed),
        ]
        try:
            ended = subprocess.run(
                list(map(str, command)),
                cwd=folder,
                env={**os.environ, **ONE_CORE, "PYTHONPATH": str(root)},
                capture_output=True,
            )
        except OSError as caught:
            raise FileError(
                f"{settings.python} cannot be started: {caught.strerror}; run make peers."
            ) from None
        if heard.exists() and ended.returncode == 0:
            found = read_answer(heard)
            return found._replace(error=_without_paths(found.error))
    if ended.returncode == -signal.SIGXCPU:
        return Answer((), "", f"ended at the limit of {settings.limit} s", settings.limit, {})
    # It died: out of memory, or its environment is not whole.
    last = (ended.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    error = _without_paths(f"ended with status {ended.returncode}: {last}")[:200]
    return Answer((), "", error, round(time.perf_counter() - began, 1), {})


def _without_paths(text: str) -> str:
    """Results are published: where things lie on this machine is nobody's business."""
    return re.sub(r"(?:/[\w.+-]+){2,}", "…", text)


def judge(k: int, record: Record, case: Case, problem: Problem, answer: Answer) -> Json:
    """Errors of one test as the suite counts them, or the failure."""
    failure, errors = answer.error, np.full(record.y.shape[1], np.inf)
    if not failure and answer.predictions[k].shape != record.y.shape:
        failure = f"predicted {answer.predictions[k].shape} values of {record.y.shape}"
    if not failure:
        with np.errstate(all="ignore"):
            errors = rmse(record.y, answer.predictions[k], problem.n_init)
        failure = "" if np.isfinite(errors).all() else "diverged"
    return {
        "name": record.name,
        "n_init": problem.n_init,
        "rmse": (case.factor * errors).tolist(),
        "pooled": None if failure else pooled(errors, pooling(case)),
        "failure": failure,
    }


# --- files --------------------------------------------------------------------------------------


def path_of(folder: Path, name: str, peer: str) -> Path:
    """Where a peer's result on a record is."""
    return folder / f"{name}-{peer}.json"


def write(result: Json, folder: Path) -> None:
    """``RECORD-PEER.json``."""
    put(result, path_of(folder, result["record"], result["peer"]))


def finished(folder: Path, name: str, peer: str, digest: str) -> bool:
    """Whether this peer was measured on the very same numbers."""
    try:
        found = json.loads(path_of(folder, name, peer).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("digest") == digest


def read(folder: Path) -> list[Json]:
    """Every result in a folder, which need not be there."""
    return results_of(folder, "peer")


def errors_of(results: Sequence[Json], record: str, test: str) -> dict[str, float | None]:
    """By peer, the error of one test; none where it failed."""
    return {
        r["peer"]: t["pooled"]
        for r in results
        if r["record"] == record
        for t in r["tests"]
        if t["name"] == test
    }
