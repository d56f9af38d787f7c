"""Run folders: what an identification leaves on disk, and how it is read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from occamid import figures, modelfile, report, store
from occamid.auto import Automatic
from occamid.calibration import score
from occamid.data.record import Record
from occamid.ensemble import Ensemble
from occamid.errors import FileError
from occamid.job import Job
from occamid.metrics import fit_percent, rmse
from occamid.predictive import Distribution

MODEL, CONTENT, PAGE = "model.safetensors", "report.json", "report.html"
MOST_ROWS = 10_000  # of a test record that are judged and drawn


class Judged(NamedTuple):
    """A free run on one record in numbers, per output."""

    name: str
    n_init: int
    rows: int
    rmse: tuple[float, ...]
    fit: tuple[float, ...]
    coverage95: tuple[float, ...]


def judge(record: Record, found: Distribution, n_init: int) -> Judged:
    """A free run with its band against the measurement."""
    return Judged(
        record.name,
        n_init,
        len(record),
        tuple(map(float, rmse(record.y, found.mean, n_init))),
        tuple(map(float, fit_percent(record.y, found.mean, n_init))),
        tuple(map(float, score(record.y, found, n_init).coverage[0.95])),
    )


def write(found: Automatic, job: Job, test: Sequence[Record], folder: Path) -> dict[str, Any]:
    """Everything of a run into a folder; returns its summary."""
    shown, start = tuple(record[:MOST_ROWS] for record in test), found.ensemble.start
    bands = [found.ensemble.free_run(record) for record in shown or found.records[:1]]
    judged = [judge(r, b, start)._asdict() for r, b in zip(shown, bands, strict=False)]
    summary = {
        "family": found.family.name,
        "expected_rmse": list(found.expected_rmse),
        "trials": [trial._asdict() for trial in found.trials],
        "test": judged,
        "members": len(found.ensemble.weights),
        "parameters": found.ensemble.parameters,
        "kept_names": list(found.ensemble.regressors),
    }
    store.write_result(found.result, folder, summary)
    (folder / store.SETTINGS).write_text(job.to_toml(), encoding="utf-8")
    about = {"job": job.model_dump(mode="json"), "provenance": dict(found.result.provenance)}
    modelfile.save_ensemble(found.ensemble, folder / MODEL, about)
    page = report.content(
        found.ensemble,
        found.result,
        found.records,
        shown,
        extra={
            "title": job.example or Path(job.files[0]).stem,
            "family": f"{found.family.name}: {found.family.about}",
            "effort": found.plan.effort,
            "expected free-run RMSE (cross-validation)": ", ".join(
                f"{v:.4g}" for v in found.expected_rmse
            ),
        },
    )
    text = json.dumps(store.plain(page), allow_nan=False)
    (folder / CONTENT).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(report.render(page), encoding="utf-8")
    record = (shown or found.records)[0]
    free = figures.free_run_figure(record, bands[0], start, f"{record.name}: free run")
    figures.save(free, folder / "free_run.png")
    figures.save(figures.sparsity_figure(found.result.best), folder / "sparsity.png")
    return json.loads((folder / store.SUMMARY).read_text("utf-8")) | {"verdict": page["verdict"]}


def load(path: Path) -> Ensemble:
    """The model of a run folder, or a model file."""
    return modelfile.load_ensemble(model_file(path))


def model_file(path: Path) -> Path:
    """The model file of a run folder, or the path itself."""
    return path / MODEL if path.is_dir() else path


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a run folder."""
    try:
        found = json.loads((folder / name).read_text("utf-8"))
    except OSError as error:
        raise FileError(
            f"{folder / name} cannot be read ({error.strerror}); is {folder} a run folder?"
        ) from None
    except (ValueError, RecursionError):
        raise FileError(f"{folder / name} is damaged; identify again.") from None
    if not isinstance(found, dict):
        raise FileError(f"{folder / name} is damaged; identify again.")
    return found
