"""One experiment under one protocol: trained, measured, and written down with its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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
    """A finished run: the training, the records, and the model the report is about.

    ``result`` and ``errors`` are those of one λ; ``tried`` says what each λ of the row gave.
    """

    experiment: Experiment
    protocol: Protocol
    settings: Settings
    result: Batch
    data: registry.Data
    errors: Float[Array, "records M C"]
    chosen: Index
    tried: tuple[dict[str, Any], ...]

    @property
    def several(self) -> bool:
        """Whether the row has more than one λ."""
        return len(self.settings.lam) > 1

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
    return next(runs(experiment, (protocol,), settings, progress))


def runs(
    experiment: Experiment,
    protocols: Sequence[Protocol],
    settings: Settings,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Outcome]:
    """A run under each protocol; what two of them estimate on the same records is trained once."""
    trained: list[tuple[registry.Data, Batch]] = []
    for protocol in protocols:
        data = load(experiment.record, protocol)
        result = next((r for d, r in trained if registry.same_estimation(d, data)), None)
        if result is None:
            result = train(data.estimation, settings, progress=progress)
            trained.append((data, result))
        yield judge(experiment, protocol, data, result)


def judge(
    experiment: Experiment, protocol: Protocol, data: registry.Data, result: Batch
) -> Outcome:
    """Measure every model on the test records and choose as the protocol does, the λ too.

    The paper tuned λ by the simulation error, so its protocol takes the λ with the best model on
    the validation records; the honest one takes that of the model it would take of all.
    """
    n_init = known_outputs(data, protocol, result.start)
    errors = np.stack(
        [
            free_run_errors(result.free_runs(record, n_init), record, protocol, n_init)
            for record in data.test
        ]
    )
    if protocol == "paper":
        best = np.array([q.min for q in experiment.paper_rmse])
        lam = int(np.argmin(np.sum(errors.min(axis=(-2, -1)) / best[:, None], axis=0)))
        own = result.only(result.settings.lam[lam : lam + 1])
        chosen = _within_limits(experiment, own, errors[:, lam])
    else:
        found = result.best_index
        lam = found.lam
        own, chosen = result.only(result.settings.lam[lam : lam + 1]), found._replace(lam=0)
    tried = tuple(
        {"lam": value, "rmse": _spreads(data, protocol, result.score[k], errors[:, k])}
        for k, value in enumerate(result.settings.lam)
    )
    return Outcome(experiment, protocol, result.settings, own, data, errors[:, lam], chosen, tried)


def _spreads(
    data: registry.Data,
    protocol: Protocol,
    score: Float[Array, "M C"],
    errors: Float[Array, "records M C"],
) -> dict[str, dict[str, float]]:
    """Over the restarts: of each the cycle that is best on the test record, or by its score."""
    return {
        record.name: spread(own)
        for record, own in zip(data.test, _each(protocol, score, errors), strict=True)
    }


def _each(
    protocol: Protocol, score: Float[Array, "M C"], errors: Float[Array, "records M C"]
) -> Float[Array, "records M"]:
    """The error of each restart at its own best cycle."""
    if protocol == "paper":
        return np.asarray(errors.min(axis=-1))
    return np.asarray(errors[:, np.arange(errors.shape[1]), np.argmin(score, axis=-1)])


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
    each = _each(outcome.protocol, result.score[0], errors)
    return {
        "experiment": e.name,
        "protocol": outcome.protocol,
        **({"warning": WARNING} if outcome.protocol == "paper" else {}),
        "record": e.record,
        "rmse": {n: spread(v) for n, v in zip(names, each, strict=True)},
        **({"lam": result.settings.lam[0], "tried": outcome.tried} if outcome.several else {}),
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
        "settings": outcome.settings.model_dump(mode="json"),
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
    """``NAME.json`` and the figures; the numbers first, which no figure that fails may cost."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(plain(report(outcome)), indent=1, allow_nan=False)
    replace_file(folder / f"{outcome.experiment.name}.json", content.encode())
    draw(outcome, folder)


def draw(outcome: Outcome, folder: Path) -> None:
    """The figures of the paper: sparsity, free run, posterior mean ± 2σ."""
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
