"""Coverage of the bands on twins and real records: ``python -m occamid_benchmarks.studies.bands``.

Every free run starts after the initial window of the largest lag and looks at nothing of the test
record but its input.  Writes ``benchmarks/results/bands.json`` and prints the tables of
docs/bands.md.  With ``--real`` only the real records, with ``--twins`` only the twins.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from occamid import Batch, Ensemble, Record, Settings, combine, ensemble_of, fit_posterior, train
from occamid.assessment.run import Run
from occamid.data import twins
from occamid.identification.folds import without
from occamid.training.provenance import provenance
from occamid_benchmarks import RESULTS, registry

RECORDED = RESULTS / "bands.json"
SEEDS = 3
FOLDS = 2  # of the conformal column


def of_twin(name: str, seed: int) -> dict[str, Any]:
    """Coverage of the measured and of the noise-free output by the default method."""
    twin = twins.make(name, seed)
    began = time.perf_counter()
    result = train(twin.estimation, Settings(seed=seed))
    ensemble = ensemble_of(result, twin.estimation)
    found = ensemble.simulate(twin.test)
    start = result.start
    assert found.epistemic_std is not None
    inside = np.abs(twin.test_clean - found.mean) <= 1.96 * found.epistemic_std
    return figures(twin.test, found) | {
        "clean_coverage95": round(float(np.mean(inside[start:])), 3),
        "seconds": round(time.perf_counter() - began, 1),
    }


def figures(record: Record, found: Run) -> dict[str, Any]:
    """Coverage, density, CRPS and width, averaged over the outputs."""
    marks = found.scores(record)
    average = lambda x: round(float(np.mean(x)), 4)  # noqa: E731
    return {
        **{f"coverage{round(100 * s)}": average(c) for s, c in marks.coverage.items()},
        "log_density": average(marks.log_density),
        "crps": average(marks.crps),
        "width": average(marks.width),
        "rmse": average(found.rmse(record)),
        "diverged": round(found.diverged, 4),
    }


def of_real(name: str) -> dict[str, Any]:
    """Every kind of band on the test records of one real process, averaged over them."""
    estimation, tests, _ = registry.load(name, "official")
    result = train(estimation, Settings())
    ensemble = ensemble_of(result, estimation)
    inflation = conformal_inflation(held_back_scores(result, estimation))
    kinds: dict[str, tuple[Ensemble, dict[str, Any]]] = {
        "diagonal, Monte Carlo": (
            combine([fit_posterior(result.best, estimation, "diagonal")]),
            {"samples": 10_000, "feedback": "none"},
        ),
        "full": (combine([fit_posterior(result.best, estimation)]), {}),
        "ensemble": (ensemble, {}),
        "conformal": (replace(ensemble, inflation=ensemble.inflation * inflation), {}),
    }
    found: dict[str, Any] = {}
    for kind, (model, options) in kinds.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = [figures(r, model.simulate(r, **options)) for r in tests]
        found[kind] = {key: round(float(np.mean([r[key] for r in runs])), 4) for key in runs[0]}
    return found


def conformal_inflation(scores: np.ndarray, share: float = 0.95) -> np.ndarray:
    """The factor on the bands that makes the central ``share`` band hold that share of the scores.

    Plain split conformal, as if all (scores, outputs) were independent: the
    ``ceil((S + 1) share)``-th smallest score over the Gaussian one.
    """
    rank = min(int(np.ceil((len(scores) + 1) * share)), len(scores)) - 1
    return np.sort(scores, axis=0)[rank] / norm.ppf(0.5 + share / 2)


def held_back_scores(result: Batch, records: tuple[Record, ...]) -> np.ndarray:
    """``|y − mean|/std`` of free runs on blocks that the models have not learned from."""
    start, scores = result.start, []
    edges = [np.linspace(start, len(r), FOLDS + 1).astype(int) for r in records]
    for fold in range(FOLDS):
        held = [slice(int(e[fold]), int(e[fold + 1])) for e in edges]
        rest = [
            piece[piece.lead :]
            for record, block in zip(records, held, strict=True)
            for piece in without(record, block)
            if len(piece) - piece.lead > 2 * start
        ]
        ensemble = ensemble_of(train(rest, result.settings), rest)
        for record, block in zip(records, held, strict=True):
            part = record[block.start - start : block.stop]
            run = ensemble.simulate(part, start)
            scores.append((np.abs(part.y - run.mean) / run.spread)[start:])
    return np.concatenate(scores)


def tables(found: dict[str, Any]) -> list[str]:
    """The tables of docs/bands.md, of recorded results."""
    lines = ["| twin | seed | 50 % | 80 % | 95 % | noise-free by epistemic 95 % | RMSE | width |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, rows in found["twins"].items():
        for seed, r in enumerate(rows):
            shares = " | ".join(f"{100 * r[f'coverage{s}']:.1f}" for s in (50, 80, 95))
            clean = f"{100 * r['clean_coverage95']:.1f}"
            lines.append(
                f"| {name} | {seed} | {shares} | {clean} | {r['rmse']:.4f} | {r['width']:.3f} |"
            )
    real = ["| record | bands | 50 % | 80 % | 95 % | −log density | CRPS | width | diverged |"]
    real.append("|---|---|---|---|---|---|---|---|---|")
    for name, kinds in found["real"].items():
        for kind, r in kinds.items():
            shares = " | ".join(f"{100 * r[f'coverage{s}']:.1f}" for s in (50, 80, 95))
            real.append(
                f"| {name} | {kind} | {shares} | {r['log_density']:.3f} | {r['crps']:.4f} | "
                f"{r['width']:.3f} | {r['diverged']:.1%} |"
            )
    return ["\n".join(lines), "\n".join(real)]


def keep(found: dict[str, Any]) -> None:
    """Write what there is so far."""
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found["provenance"] = provenance() | {"seeds": SEEDS}
    if "--real" not in sys.argv:
        found["twins"] = {}
        for name in twins.TWINS:
            found["twins"][name] = [of_twin(name, seed) for seed in range(SEEDS)]
            for seed, row in enumerate(found["twins"][name]):
                print(name, seed, json.dumps(row), flush=True)
            keep(found)
    if "--twins" not in sys.argv:
        found.setdefault("real", {})
        for name in registry.BENCHMARKS:
            found["real"][name] = of_real(name)
            print(name, json.dumps(found["real"][name]), flush=True)
            keep(found)
    print(*tables(found), sep="\n\n")


if __name__ == "__main__":
    main()
