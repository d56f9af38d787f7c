"""Baselines on a record under both protocols, beside the paper's Tables E.1 and E.2."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from occamid.data.record import Record
from occamid.files.atomic import replace_file
from occamid.files.plain import plain
from occamid.training.batch import Batch
from occamid.training.provenance import provenance
from occamid.training.settings import Settings
from occamid.training.train import train
from occamid_benchmarks.baselines.grid import BASELINES, Fitted
from occamid_benchmarks.experiments import WARNING, Protocol, experiment
from occamid_benchmarks.registry import Data, same_estimation
from occamid_benchmarks.reproduce import free_run_errors, known_outputs, load

# Networks that are trained like the paper's rows, but without what makes those sparse.
PLAIN = ("mlp-plain", "lstm-plain", "lstm-no-lags")
NOTHING = 1e-9  # a λ that leaves the data term alone


def names(record: str) -> list[str]:
    """Baselines that run on this record: those for which the paper has a row, and ARX."""
    own = [n for n, b in BASELINES.items() if record in b.records or n == "arx"]
    return [*own, *PLAIN]


def plain_settings(record: str, name: str, restarts: int, seed: int) -> Settings:
    """The settings of the paper's row in one cycle of the same length, without a prior."""
    row = experiment(f"{record}-{name.split('-')[0]}").settings
    lags = {"input_lags": 0, "output_lags": 0} if name == "lstm-no-lags" else {}
    return row.replace(
        lam=(NOTHING,),
        prune_psi=0.0,
        prune_weight=0.0,
        epochs=row.epochs * row.cycles,
        cycles=1,
        restarts=restarts,
        seed=seed,
        **lags,
    )


def measure_one(record: str, name: str, restarts: int, seed: int) -> dict[str, Any]:
    """Test errors of one baseline under both protocols, and how the choice was made."""
    began = time.perf_counter()
    if name in PLAIN:
        found = _plain(record, plain_settings(record, name, restarts, seed))
    else:
        found = {p: _classical(record, name, p) for p in get_args(Protocol)}
    return {"name": name, **found, "seconds": round(time.perf_counter() - began, 2)}


def _classical(record: str, name: str, protocol: Protocol) -> dict[str, Any]:
    data = load(record, protocol)
    candidates = BASELINES[name].candidates(data.estimation)
    runs = [_errors(c, data.test, protocol, data.n_init) for c in candidates]
    if protocol == "paper":
        at = int(np.argmin([np.mean(errors) for errors in runs]))
    else:
        at = int(np.argmin([c.criterion for c in candidates]))
    return {
        "rmse": dict(zip([r.name for r in data.test], runs[at], strict=True)),
        "model": candidates[at].describe(),
        "candidates": len(candidates),
    }


def _errors(
    candidate: Fitted,
    tests: tuple[Record, ...],
    protocol: Protocol,
    window: int | None,
) -> list[float]:
    n_init = max(candidate.max_lag, (window or 0) if protocol == "honest" else 0, 1)
    with np.errstate(all="ignore"):
        return [
            float(free_run_errors(candidate.free_run(r.u, r.y[:n_init]), r, protocol, n_init))
            for r in tests
        ]


def _plain(record: str, settings: Settings) -> dict[str, Any]:
    """Both protocols from one training, where they estimate on the same records."""
    found: dict[str, Any] = {}
    before: tuple[Data, Batch] | None = None
    for protocol in get_args(Protocol):
        data = load(record, protocol)
        if before is None or not same_estimation(before[0], data):
            before = data, train(data.estimation, settings)
        found[protocol] = _restarts(data, before[1], protocol)
    return found


def _restarts(data: Data, result: Batch, protocol: Protocol) -> dict[str, Any]:
    """The chosen one of the restarts, and the mean of all."""
    n_init = known_outputs(data, protocol, result.start)
    errors = np.stack(
        [
            free_run_errors(result.free_runs(r, n_init)[0, :, 0], r, protocol, n_init)
            for r in data.test
        ]
    )
    seen = np.sqrt(np.mean(result.table["free_run_rmse"][0, :, 0] ** 2, axis=-1))
    # As the paper: the best of the restarts on each validation record.
    chosen = errors.min(axis=1) if protocol == "paper" else errors[:, int(np.nanargmin(seen))]
    names, restarts = [r.name for r in data.test], result.settings.restarts
    return {
        "rmse": dict(zip(names, map(float, chosen), strict=True)),
        "mean": dict(zip(names, map(float, errors.mean(axis=1)), strict=True)),
        "model": f"{restarts} restarts",
        "candidates": restarts,
    }


def measure_all(
    record: str,
    folder: Path,
    restarts: int = 20,
    seed: int = 0,
    tell: Callable[[dict[str, Any]], None] = lambda row: None,
    only: Sequence[str] | None = None,
) -> None:
    """Baselines of a record; the file grows row by row, and finished rows are kept.

    Each row says which version and machine made it, a network's also its restarts and seed.
    """
    path = folder / f"baselines-{record}.json"
    rows = rows_of(path)
    for name in only or names(record):
        key = {"restarts": restarts, "seed": seed} if name in PLAIN else {}
        if name not in rows or not key.items() <= rows[name].items():
            row = {**measure_one(record, name, restarts, seed), **key, **provenance()}
            rows = rows_of(path) | {name: row}  # another process may have added some
            write(record, rows, path)
        tell(rows[name])


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    """The finished rows of a file by name; none if it cannot be read."""
    try:
        return {row["name"]: row for row in json.loads(path.read_text("utf-8"))["rows"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write(record: str, rows: Mapping[str, dict[str, Any]], path: Path) -> None:
    """The rows in the order of :func:`names`."""
    known = [name for name in names(record) if name in rows]
    ordered = [rows[name] for name in dict.fromkeys([*known, *rows])]
    content = {"record": record, "warning": WARNING, "rows": ordered}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(content), indent=1, allow_nan=False)
    replace_file(path, text.encode())
