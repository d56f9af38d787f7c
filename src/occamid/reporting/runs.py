"""Run folders: what an identification leaves on disk, and how it is read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from occamid.assessment.run import Run
from occamid.bands.modelfile import NAME as MODEL
from occamid.data.findings import Finding
from occamid.data.record import Record
from occamid.errors import FileError
from occamid.files import manifest
from occamid.files.plain import plain
from occamid.identification.identify import Fit
from occamid.identification.job import Job
from occamid.identification.search.search import Searched
from occamid.reporting import figures, structure, trials
from occamid.reporting.content import Shown, show
from occamid.reporting.page import render
from occamid.reporting.report import fit_content
from occamid.training.batch import Batch
from occamid.training.provenance import provenance

SETTINGS, SUMMARY, WEIGHTS = "settings.toml", "result.json", "weights.safetensors"
CONTENT, PAGE = manifest.CONTENT, "report.html"
MOST_ROWS = 10_000  # of a test record that are judged and drawn


def judge(record: Record, run: Run) -> dict[str, Any]:
    """A free run with its band against the measurement, in numbers, per output."""
    return {
        "name": record.name,
        "n_init": run.n_init,
        "rows": len(record),
        "rmse": tuple(map(float, run.rmse(record))),
        "fit": tuple(map(float, run.fit(record))),
        "coverage95": tuple(map(float, run.coverage(record))),
    }


def write(
    fit: Fit,
    job: Job,
    test: Sequence[Record],
    folder: Path,
    findings: Sequence[Finding] = (),
    *,
    searched: Searched | None = None,
    pictures: bool = True,
) -> dict[str, Any]:
    """Everything of a run into a folder; returns its summary and the report's verdict.

    ``searched`` is the search that the fit is of, if it is of one.  Without ``pictures`` there is
    neither page nor figure nor the weights of every restart: tens of kilobytes instead of
    megabytes.  ``occamid report`` writes the page from what is there.
    """
    seen = show(fit.model, fit.records)
    unseen = show(fit.model, [record[:MOST_ROWS] for record in test])
    title = job.asset or job.example or Path(job.files[0]).stem
    page = fit_content(fit, seen, unseen, title, findings)
    if searched:
        page["tried"] = trials.content(searched)
        trials.write(searched, folder)
    summary = plain(
        (_batch_summary(fit.batch) if fit.batch else {})
        | {
            "provenance": provenance() | {"seed": fit.options.seed},
            "family": fit.family.name,
            "grounds": fit.grounds,
            "shares": fit.shares,
            "data_used": fit.coverage_of_data,
            "findings": [finding.as_dict() for finding in findings],
            "expected_rmse": list(fit.expected_rmse),
            "expected_interval": [list(ends) for ends in fit.expected_interval],
            "trials": [trial._asdict() for trial in fit.trials],
            "test": [judge(shown.record, shown.free) for shown in unseen],
            "members": len(fit.model.weights),
            **structure.size(fit.model),
            "kept_names": list(fit.model.regressors),
        }
    )
    _write_text(folder / SETTINGS, job.to_toml())
    _write_text(folder / SUMMARY, json.dumps(summary, indent=1, allow_nan=False))
    _write_text(folder / CONTENT, json.dumps(page, allow_nan=False))
    about = {"job": job.model_dump(mode="json"), "provenance": provenance(), "shares": fit.shares}
    fit.model.save(folder / MODEL, about)
    if pictures:
        _draw(fit, page, (unseen or seen)[0], folder)
    return summary | {"verdict": page["verdict"]}


def _draw(fit: Fit, page: dict[str, Any], first: Shown, folder: Path) -> None:
    """The page, the figures, and the weights they can be drawn from."""
    _write_text(folder / PAGE, render(page))
    if fit.batch:
        (folder / WEIGHTS).write_bytes(_all_weights(fit.batch))
    if figures.available():
        free = figures.free_run_figure(first.record, first.free, f"{first.record.name}: free run")
        figures.save(free, folder / "free_run.png")
        best = fit.batch.best if fit.batch else fit.model.first
        figures.save(figures.sparsity_figure(best), folder / "sparsity.png")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _all_weights(batch: Batch) -> bytes:
    """The weights and prior widths of every cycle of every restart."""
    arrays = {f"params/{name}": value for name, value in batch.params.items()}
    for name, widths in batch.psi.items():
        arrays |= {f"psi/{name}/{k}": value for k, value in enumerate(widths)}
    return save({name: np.ascontiguousarray(value) for name, value in arrays.items()})


def _batch_summary(batch: Batch) -> dict[str, Any]:
    """The training in numbers, every model of it; they need not be finite."""
    best, scaling = batch.best, batch.scaling
    return {
        "seconds": {k: round(v, 3) for k, v in batch.seconds.items()},
        "samples": batch.count,
        "sampling_time": batch.sampling_time,
        "regressors": list(batch.terms.names),
        "scaling": {k: getattr(scaling, k).tolist() for k in scaling.__dataclass_fields__},
        "best": {
            "index": batch.best_index._asdict(),
            "regressors": list(best.regressors),
            "neurons": list(best.neurons),
        },
        "rows": [row._asdict() for row in batch.rows()],
    }


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a run folder."""
    try:
        found = json.loads(manifest.current(folder, name).read_text("utf-8"))
    except OSError as error:
        raise FileError(
            f"{folder / name} cannot be read ({error.strerror}); is {folder} a run folder?"
        ) from None
    except (ValueError, RecursionError):
        raise FileError(f"{folder / name} is damaged; identify again.") from None
    if not isinstance(found, dict):
        raise FileError(f"{folder / name} is damaged; identify again.")
    return found
