"""Run folders: what an identification leaves on disk, and how it is read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from occamid import reporting as report
from occamid.assessment.metrics import fit_percent, rmse
from occamid.bands import modelfile
from occamid.bands.calibration import score
from occamid.bands.ensemble import Ensemble
from occamid.bands.monte_carlo import Distribution
from occamid.data.record import Record
from occamid.errors import FileError
from occamid.files import manifest
from occamid.files.plain import plain
from occamid.identification.identify import Automatic
from occamid.identification.job import Job
from occamid.reporting import figures

SETTINGS, SUMMARY, WEIGHTS = "settings.toml", "result.json", "weights.safetensors"
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


def write_result(result: Result, folder: Path, extra: dict[str, Any] | None = None) -> None:
    """Settings, figures of every model, and the weights and prior widths of every cycle."""
    (folder / SETTINGS).write_text(result.settings.to_toml(), encoding="utf-8")
    arrays = {f"params/{name}": value for name, value in result.params.items()}
    for name, widths in result.psi.items():
        arrays.update({f"psi/{name}/{k}": value for k, value in enumerate(widths)})
    (folder / WEIGHTS).write_bytes(save({n: np.ascontiguousarray(v) for n, v in arrays.items()}))
    report = plain(summary(result) | (extra or {}))
    (folder / SUMMARY).write_text(json.dumps(report, indent=1, allow_nan=False), encoding="utf-8")


def summary(result: Result) -> dict[str, Any]:
    """What a report needs; numbers need not be finite."""
    best = result.best
    scaling = result.scaling
    return {
        "provenance": dict(result.provenance) | {"seed": result.settings.seed},
        "seconds": {k: round(v, 3) for k, v in result.seconds.items()},
        "samples": result.count,
        "sampling_time": result.sampling_time,
        "regressors": list(result.regressors.names),
        "scaling": {k: getattr(scaling, k).tolist() for k in scaling.__dataclass_fields__},
        "best": {
            "index": result.best_index._asdict(),
            "regressors": list(best.regressors),
            "neurons": list(best.neurons),
            "parameters": best.compact().parameters,
        },
        "rows": [row._asdict() for row in result.rows()],
    }


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
    write_result(found.result, folder, summary)
    (folder / SETTINGS).write_text(job.to_toml(), encoding="utf-8")
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
    text = json.dumps(plain(page), allow_nan=False)
    (folder / CONTENT).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(report.render(page), encoding="utf-8")
    record = (shown or found.records)[0]
    free = figures.free_run_figure(record, bands[0], start, f"{record.name}: free run")
    figures.save(free, folder / "free_run.png")
    figures.save(figures.sparsity_figure(found.result.best), folder / "sparsity.png")
    return json.loads((folder / SUMMARY).read_text("utf-8")) | {"verdict": page["verdict"]}


def load(path: Path) -> Ensemble:
    """The model of a run folder, or a model file."""
    return modelfile.load_ensemble(model_file(path))


def model_file(path: Path) -> Path:
    """The model file of a run folder, or the path itself."""
    return manifest.current(path, MODEL) if path.is_dir() else path


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
