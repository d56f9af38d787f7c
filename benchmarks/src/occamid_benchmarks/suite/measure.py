"""One record, one effort, one seed: identified, judged on every test, and written down."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.assessment import scores
from occamid.assessment.run import Run
from occamid.bands.ensemble import Ensemble
from occamid.bands.units import DivergedWarning
from occamid.data.record import Record
from occamid.errors import FileError
from occamid.files.atomic import replace_file
from occamid.files.plain import plain
from occamid.identification.crew import HERE, Workers
from occamid.identification.identify import Fit, identify
from occamid.identification.progress import Stage
from occamid.training.provenance import provenance
from occamid_benchmarks.suite.peers import Peer
from occamid_benchmarks.suite.plain_bands import conformal, diagonal
from occamid_benchmarks.suite.records import Case

Array = np.ndarray
AHEAD = 10  # steps, of the predictions whose bands are counted
LONGEST = 5_000  # rows predicted together: the sensitivities of every row are kept


def run_seed(
    name: str,
    case: Case,
    peers: Mapping[str, Peer],
    *,
    effort: str,
    seed: int,
    progress: Callable[[Stage], None] | None = None,
    workers: Workers = HERE,
) -> dict[str, Any]:
    """One identification, its errors and bands on the tests, and the peers' errors beside."""
    began = time.perf_counter()
    fit = identify(
        case.estimation,
        effort=effort,
        seed=seed,
        progress=progress,
        workers=workers.told,
    )
    seconds = time.perf_counter() - began
    expected = np.asarray(fit.expected_rmse)
    return {
        "kind": "suite",
        "record": name,
        "effort": effort,
        "seed": seed,
        "family": fit.family.name,
        "parameters": fit.model.parameters_in_all,
        "seconds": round(seconds, 1),
        "unit": case.unit,
        "expected_rmse": (case.factor * expected).tolist(),
        "expected_interval": (case.factor * np.array(fit.expected_interval)).tolist(),
        "shares": fit.shares,
        "trials": {t.family: t.score for t in fit.trials},
        "tests": [
            judge(fit.model, record, case, expected, peers)
            | {"crps_plain": plain_crps(fit, record, case)}
            for record in case.test
        ],
        "peers": {n: {"model": p.about, "seconds": round(p.seconds, 1)} for n, p in peers.items()},
        **provenance(),
    }


def judge(
    model: Ensemble,
    record: Record,
    case: Case,
    expected: Float[Array, " ny"],
    peers: Mapping[str, Peer],
) -> dict[str, Any]:
    """Free run and predictions on one test; peers know at least the same first outputs."""
    run = free_run(model, record, case.n_init)
    found, error = run.scores(record), run.rmse(record)
    weights = pooling(case)
    return {
        "name": record.name,
        "rows": len(record),
        "n_init": run.n_init,
        "rmse": (case.factor * error).tolist(),
        "pooled": pooled(error, weights),
        "coverage": {f"{share:.0%}": float(np.mean(v)) for share, v in found.coverage.items()},
        f"coverage_{AHEAD}_steps": coverage_ahead(model, record, run.n_init),
        "crps": float(np.mean(found.crps * weights)),
        "expected_over_test": pooled(expected, weights) / pooled(error, weights),
        "diverged": run.diverged,
        "peers": {n: _peer(peer, record, case, run.n_init) for n, peer in peers.items()},
    }


def plain_crps(fit: Fit, record: Record, case: Case) -> dict[str, float | None]:
    """The same score of plainer bands around the same runs."""
    weights = pooling(case)
    run = free_run(fit.model, record, case.n_init)
    y, rest = record.y[run.n_init :], run.after(run.n_init)
    other = free_run(diagonal(fit.model), record, case.n_init).after(run.n_init)
    spreads = {"diagonal posterior": other.spread}
    if fit.held_back:
        spreads["split conformal"] = np.broadcast_to(conformal(fit.held_back), y.shape)
    return {
        name: float(np.mean(scores.crps(y, rest.mean, std) * weights))
        for name, std in spreads.items()
    }


def _peer(peer: Peer, record: Record, case: Case, n_init: int) -> dict[str, Any]:
    known = max(n_init, peer.fewest_known)
    error = peer.errors(record, known)
    return {
        "n_init": known,
        "rmse": (case.factor * error).tolist(),
        "pooled": pooled(error, pooling(case)),
    }


def pooling(case: Case) -> Float[Array, " ny"]:
    """Factors that bring errors of the outputs to one unit: the table's, or σ of each output."""
    outputs = np.concatenate([r.y for r in case.estimation])
    if outputs.shape[1] == 1:
        return np.array([case.factor])
    return 1 / np.std(outputs, axis=0)


def pooled(error: Float[Array, " ny"], weights: Float[Array, " ny"]) -> float:
    """Root mean square over the outputs, in one unit."""
    return float(np.sqrt(np.mean((error * weights) ** 2)))


def free_run(model: Ensemble, record: Record, n_init: int | None) -> Run:
    """The free run from the official window, or a longer one where the model needs it."""
    known = None if n_init is None else max(n_init, model.fewest_known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)  # the share is in the result
        return model.simulate(record, known)


def coverage_ahead(model: Ensemble, record: Record, n_init: int) -> float | None:
    """Share of the measurements in the 95 % band of predictions, over all outputs.

    Long records are predicted in pieces of one length, each after as many known rows as the
    first; every row after those is counted once.
    """
    known = max(n_init, model.start + AHEAD)  # before that they are fewer steps ahead
    length = min(len(record), max(LONGEST, 2 * known))
    inside, done = [], known
    while done < len(record):
        first = min(done - known, len(record) - length)
        piece = record[first : first + length]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            low, high = model.predict(piece, AHEAD).interval(0.95)
        inside.append(((piece.y >= low) & (piece.y <= high))[done - first :])
        done = first + length
    return float(np.mean(np.concatenate(inside))) if inside else None


# --- files --------------------------------------------------------------------------------------


def path_of(folder: Path, name: str, effort: str, seed: int) -> Path:
    """Where the result of one run is."""
    return folder / f"{name}-{effort}-{seed}.json"


def write(result: dict[str, Any], folder: Path) -> None:
    """``RECORD-EFFORT-SEED.json``."""
    put(result, path_of(folder, result["record"], result["effort"], result["seed"]))


def put(result: dict[str, Any], path: Path) -> None:
    """A result in a file, and a folder for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {path.parent}: {error.strerror}.") from None
    content = json.dumps(plain(result), indent=1, allow_nan=False, ensure_ascii=False)
    replace_file(path, content.encode())


def finished(folder: Path, name: str, effort: str, seed: int) -> bool:
    """Whether the folder already holds this run, whole."""
    try:
        found = json.loads(path_of(folder, name, effort, seed).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    keys = ("kind", "record", "effort", "seed")
    return isinstance(found, dict) and [found.get(k) for k in keys] == ["suite", name, effort, seed]


def unfinished(folder: Path, name: str, effort: str, seeds: Sequence[int]) -> list[int]:
    """Seeds that are still to be run."""
    return [seed for seed in seeds if not finished(folder, name, effort, seed)]


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result of the suite in a folder; there must be one."""
    found = results_of(folder, "suite")
    if not found:
        raise FileError(f"{folder} holds no result of the suite; run occamid benchmark suite.")
    return found


def results_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Every result of one kind in a folder, which need not be there; others are left alone."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(f"{path} is not a readable result: {error}.") from None
        if isinstance(content, dict) and content.get("kind") == kind:
            found.append(content)
    return found
