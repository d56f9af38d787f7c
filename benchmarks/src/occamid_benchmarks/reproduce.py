"""One experiment under one protocol: trained, measured, and written down with its figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.bands.combine import combine
from occamid.bands.posterior import fit_posterior
from occamid.data.record import Record
from occamid.files.atomic import replace_file
from occamid.files.plain import plain
from occamid.networks import matrices
from occamid.reporting import figures
from occamid.training.batch import Batch, Index
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.train import Progress, train
from occamid_benchmarks import registry
from occamid_benchmarks.experiments import (
    LIMIT,
    SPARSITY_MARGIN,
    WARNING,
    Experiment,
    Protocol,
    Quoted,
)

Array = np.ndarray
# Above this many weights a full covariance is not formed: the paper's diagonal, by sampling.
MOST_WEIGHTS, SAMPLES = 1000, 500


@dataclass(frozen=True)
class Outcome:
    """A finished run: the training, the records, and the model the report is about."""

    experiment: Experiment
    protocol: Protocol
    result: Batch
    data: registry.Data
    errors: Float[Array, "records M C"]
    chosen: Index

    @property
    def n_init(self) -> int:
        """How many outputs of a test record the free run was given."""
        return known_outputs(self.data, self.protocol, self.result.start)


def known_outputs(data: registry.Data, protocol: Protocol, start: int) -> int:
    """The official initial window in the honest protocol, else the largest lag."""
    return max(start, data.n_init or 0) if protocol == "honest" else start


def load(record: str, protocol: Protocol) -> registry.Data:
    """The paper's split for its protocol, the official one for the honest."""
    return registry.load(record, "paper" if protocol == "paper" else "official")


def free_run_errors(
    runs: Float[Array, "... N ny"], record: Record, protocol: Protocol, n_init: int
) -> Float[Array, ...]:
    """RMSE of free runs: over the whole record in the paper's protocol, else after the window."""
    skip = 0 if protocol == "paper" else n_init
    with np.errstate(all="ignore"):
        errors = np.sqrt(np.mean((runs - record.y)[..., skip:, :] ** 2, axis=(-2, -1)))
    return np.where(np.isfinite(errors), errors, np.inf)


def run(
    experiment: Experiment,
    protocol: Protocol,
    settings: Settings,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Train every restart together and measure every cycle of each on the test records."""
    data = load(experiment.record, protocol)
    result = train(data.estimation, settings, progress=progress)
    n_init = known_outputs(data, protocol, result.start)
    errors = np.stack(
        [
            free_run_errors(result.free_runs(record, n_init)[0], record, protocol, n_init)
            for record in data.test
        ]
    )
    chosen = (
        _within_limits(experiment, result, errors) if protocol == "paper" else result.best_index
    )
    return Outcome(experiment, protocol, result, data, errors, chosen)


def _within_limits(
    experiment: Experiment, result: Batch, errors: Float[Array, "records M C"]
) -> Index:
    """The sparsest model that reproduces the row; where none does, the most accurate.

    First among models within 10 % of the paper's best error; if none of those is about as sparse
    as the paper's, among models within the limit on the paper's mean error.
    """
    sparsity = result.table["sparsity"][0]
    for limits in (
        [min(experiment.limit * q.mean, LIMIT * q.min) for q in experiment.paper_rmse],
        [experiment.limit * q.mean for q in experiment.paper_rmse],
    ):
        meets = np.all(errors <= np.array(limits)[:, None, None], axis=0)
        found = np.where(meets, sparsity, -1.0)
        if found.max() >= experiment.paper_sparsity - SPARSITY_MARGIN:
            return Index(0, *(int(k) for k in np.unravel_index(np.argmax(found), found.shape)))
    return _most_accurate(experiment, errors)


def _most_accurate(experiment: Experiment, errors: Float[Array, "records M C"]) -> Index:
    """Smallest error, relative to the paper's best on each record."""
    best = np.array([q.min for q in experiment.paper_rmse])
    total = np.sum(errors / best[:, None, None], axis=0)
    return Index(0, *(int(k) for k in np.unravel_index(np.argmin(total), total.shape)))


def spread(values: Float[Array, " M"]) -> dict[str, float]:
    """Mean, standard deviation and minimum over the restarts that did not diverge."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Quoted(np.inf, np.inf, np.inf)._asdict()
    return Quoted(float(finite.mean()), float(finite.std()), float(finite.min()))._asdict()


def report(outcome: Outcome) -> dict[str, Any]:
    """What is written to NAME.json."""
    e, result, errors = outcome.experiment, outcome.result, outcome.errors
    names = [record.name for record in outcome.data.test]
    model = result.model(outcome.chosen)
    if outcome.protocol == "paper":
        each = errors.min(axis=-1)  # the best cycle of each restart, on the validation record
    else:
        cycles = np.argmin(result.score[0], axis=-1)
        each = errors[:, np.arange(errors.shape[1]), cycles]
    return {
        "experiment": e.name,
        "protocol": outcome.protocol,
        **({"warning": WARNING} if outcome.protocol == "paper" else {}),
        "record": e.record,
        "rmse": {n: spread(v) for n, v in zip(names, each, strict=True)},
        "diverged": int(np.sum(~np.isfinite(each))),
        "first_cycle": {n: spread(v[:, 0]) for n, v in zip(names, errors, strict=True)},
        "sparsity": model.sparsity,
        "cycle": outcome.chosen.cycle + 1,
        "chosen": describe(outcome, outcome.chosen),
        "most_accurate": describe(outcome, _most_accurate(e, errors))
        if outcome.protocol == "paper"
        else None,
        "path": _path(outcome),
        "regressors_total": len(result.terms),
        "regressors_kept": len(model.regressors),
        "kept_names": list(model.regressors),
        "neurons_total": sum(result.settings.hidden),
        "neurons_kept": sum(model.neurons),
        "sparsity_by_matrix": {
            n: float(np.mean(W == 0)) for n, W in matrices(model.weights).items()
        },
        "settings": result.settings.model_dump(mode="json"),
        "seconds": {k: round(v, 2) for k, v in result.seconds.items()},
        "seed": result.settings.seed,
        **{k: result.provenance[k] for k in ("version", "machine", "device", "jax", "date")},
    }


def describe(outcome: Outcome, at: Index) -> dict[str, Any]:
    """Errors and size of one model."""
    table = outcome.result.table
    return {
        "restart": at.restart,
        "cycle": at.cycle + 1,
        "rmse": [float(e[at.restart, at.cycle]) for e in outcome.errors],
        "sparsity": float(table["sparsity"][at]),
        "regressors": int(table["n_regressors"][at]),
        "neurons": int(table["n_neurons"][at]),
    }


def _path(outcome: Outcome) -> list[dict[str, Any]]:
    """The trade-off along the cycles: medians over the restarts."""
    table = outcome.result.table
    return [
        {
            "cycle": c + 1,
            "rmse": [float(np.median(e[:, c])) for e in outcome.errors],
            "sparsity": float(np.mean(table["sparsity"][0, :, c])),
            "regressors": float(np.mean(table["n_regressors"][0, :, c])),
        }
        for c in range(outcome.result.shape[2])
    ]


def band(model: Model, outcome: Outcome, record: Record) -> Run:
    """Posterior mean and spread of one model in free run."""
    small = model.compact()
    large = small.parameters > MOST_WEIGHTS
    posterior = fit_posterior(model, outcome.data.estimation, "diagonal" if large else "full")
    return combine([posterior]).simulate(record, outcome.n_init, samples=SAMPLES if large else None)


def write(outcome: Outcome, folder: Path) -> None:
    """``NAME.json`` and the figures of the paper: sparsity, free run, posterior mean ± 2σ."""
    folder.mkdir(parents=True, exist_ok=True)
    name = outcome.experiment.name
    model = outcome.result.model(outcome.chosen)
    figures.save(figures.sparsity_figure(model), folder / f"{name}-sparsity.png")
    note = " (chosen on the validation data)" if outcome.protocol == "paper" else ""
    for k, record in enumerate(outcome.data.test):
        n = outcome.n_init
        own = f"-{k + 1}" if len(outcome.data.test) > 1 else ""
        title = f"{name}{note}: {record.name}"
        figures.save(
            figures.free_run_figure(record, model.simulate(record, n), title),
            folder / f"{name}-free-run{own}.png",
        )
        figures.save(
            figures.free_run_figure(record, band(model, outcome, record), title, sigmas=2),
            folder / f"{name}-posterior{own}.png",
        )
    content = json.dumps(plain(report(outcome)), indent=1, allow_nan=False)
    replace_file(folder / f"{name}.json", content.encode())


def finished(experiment: Experiment, protocol: Protocol, settings: Settings, folder: Path) -> bool:
    """Whether the folder already holds this run: same protocol, same settings, same seed."""
    try:
        found = json.loads((folder / f"{experiment.name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    mine = settings.model_dump(mode="json")
    return isinstance(found, dict) and (found.get("protocol"), found.get("settings")) == (
        protocol,
        json.loads(json.dumps(mine)),
    )
