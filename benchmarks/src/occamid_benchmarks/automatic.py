"""The automatic mode on benchmark records and twins, over several seeds, never tuned to one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from occamid.assessment.metrics import rmse
from occamid.data import twins
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.files.atomic import replace_file
from occamid.files.plain import plain
from occamid.identification.assemble import nearest_member
from occamid.identification.identify import identify
from occamid.identification.progress import Stage
from occamid.reporting.runs import judge
from occamid.training.provenance import provenance
from occamid_benchmarks import registry


class Case(NamedTuple):
    """Estimation and test records, and what a simulation of the tests may know."""

    estimation: tuple[Record, ...]
    test: tuple[Record, ...]
    n_init: int | None
    true_error: dict[str, float] | None  # of the true model against the noisy test record


def names() -> tuple[str, ...]:
    """Records and twins that can be run."""
    return (*registry.BENCHMARKS, *twins.TWINS)


def load(name: str, seed: int) -> Case:
    """A real record on its official split, or a twin drawn with this seed."""
    if name in twins.TWINS:
        twin = twins.make(name, seed)
        error = rmse(twin.test.y, twin.test_clean)
        true = dict(zip(_channels(twin.test), map(float, error), strict=True))
        return Case((twin.estimation,), (twin.test,), None, true)
    if name not in registry.BENCHMARKS:
        raise DataError(f"no record is called {name!r}; there are {', '.join(names())}.")
    data = registry.load(name, "official")
    return Case(data.estimation, data.test, data.n_init, None)


def _channels(record: Record) -> list[str]:
    """What errors are called: the record, and the output where there are several."""
    several = record.y.shape[1] > 1
    return [f"{record.name} {name}" if several else record.name for name in record.output_names]


def run_seed(
    name: str, seed: int, effort: str = "standard", progress: Callable[[Stage], None] | None = None
) -> dict[str, Any]:
    """One identification and its errors on the test records, for the ensemble and one model."""
    case = load(name, seed)
    began = time.perf_counter()
    fit = identify(case.estimation, seed=seed, effort=effort, progress=progress)
    seconds = time.perf_counter() - began
    single = nearest_member(fit.model, fit.records)
    values: dict[str, Any] = {"rmse": {}, "single": {}, "coverage95": []}
    for record in case.test:
        for key, model in (("rmse", fit.model), ("single", single)):
            judged = judge(record, model.simulate(record, case.n_init))
            values[key] |= dict(zip(_channels(record), judged["rmse"], strict=True))
            if key == "rmse":
                values["coverage95"] += judged["coverage95"]
    return values | {
        "seed": seed,
        "seconds": round(seconds, 1),
        "family": fit.family.name,
        "parameters": fit.model.parameters_in_all,
        "single_parameters": single.parameters,
        "expected_rmse": list(fit.expected_rmse),
        "trials": {t.family: t.score for t in fit.trials},
        "true_model": case.true_error,
    }


def summary(name: str, runs: list[dict[str, Any]], effort: str) -> dict[str, Any]:
    """Figures over the seeds."""

    def over(key: str) -> dict[str, Any]:
        found = {}
        for record in runs[0][key]:
            each = [run[key][record] for run in runs]
            found[record] = {
                "mean": float(np.mean(each)),
                "std": float(np.std(each)),
                "values": each,
            }
        return found

    content = {
        "record": name,
        "effort": effort,
        "rmse": over("rmse"),
        "single": over("single"),
        "coverage95": float(np.mean([run["coverage95"] for run in runs])),
        "parameters": float(np.mean([run["parameters"] for run in runs])),
        "seconds": float(np.mean([run["seconds"] for run in runs])),
        "seeds": [run["seed"] for run in runs],
        "families": [run["family"] for run in runs],
        "runs": runs,
        **provenance(),
    }
    if runs[0]["true_model"]:
        content["true_model"] = {
            k: float(np.mean([run["true_model"][k] for run in runs])) for k in runs[0]["true_model"]
        }
    return content


def write(name: str, runs: list[dict[str, Any]], effort: str, folder: Path) -> dict[str, Any]:
    """``honest-RECORD.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    content = summary(name, runs, effort)
    text = json.dumps(plain(content), indent=1, allow_nan=False)
    replace_file(folder / f"honest-{name}.json", text.encode())
    return content
