"""What survived pruning and how the search got there, as plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble
from occamid.data.windows import Terms
from occamid.networks import matrices, reads_regressors
from occamid.reporting.series import number
from occamid.training.batch import Batch
from occamid.training.model import Model

Array = np.ndarray
FINEST_GRID = 160  # rows and columns of a drawn matrix; larger ones are drawn coarser
MOST_WEIGHTS = 250  # rows of the table of weights


def structure(model: Ensemble, batch: Batch | None) -> dict[str, Any]:
    """All parts of the content that are about the models and not about data."""
    best = batch.best if batch else model.first
    return {
        "importance": importance(model, batch.terms if batch else model.terms),
        "members": members(model),
        "weights": weights(model),
        "size": size(model),
        "sparsity": {"matrices": sparsity(best)},
        "trade_off": trade_off(batch) if batch else None,
        "restarts": restarts(batch) if batch else [],
    }


def size(model: Ensemble) -> dict[str, Any]:
    """The numbers of parameters, the same wherever a run is described."""
    return {
        "parameters": model.parameters,
        "parameters_in_all": model.parameters_in_all,
        "candidates": model.candidates,
        "sparsity": model.sparsity,
    }


def importance(ensemble: Ensemble, r: Terms) -> list[dict[str, Any]]:
    """For every channel and candidate lag: weight, evidence, and how many members keep it.

    ``strength`` is the norm of the first-layer weights in scaled units and ``evidence`` the log
    Bayes factor of the regressor, both averaged over the members, zero where it is pruned.
    """
    strength, evidence, kept = _by_regressor(ensemble)
    found = []
    sides = (("input", r.input_names, r.inputs), ("output", r.output_names, r.outputs))
    names = iter(r.names)
    for kind, channels, terms in sides:
        labels = [next(names) for _ in terms]
        for channel, name in enumerate(channels):
            mine = sorted(
                (lag, n) for (c, lag), n in zip(terms, labels, strict=True) if c == channel
            )
            if not mine:
                continue
            found.append(
                {
                    "name": name,
                    "kind": kind,
                    "lags": [lag for lag, _ in mine],
                    "regressors": [n for _, n in mine],
                    "strength": [number(strength.get(n, 0.0)) for _, n in mine],
                    "evidence": [number(evidence[n]) if n in evidence else None for _, n in mine],
                    "kept": [kept.get(n, 0) for _, n in mine],
                }
            )
    return found


def _by_regressor(
    ensemble: Ensemble,
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    strength: dict[str, float] = {}
    evidence: dict[str, float] = {}
    kept: dict[str, int] = {}
    for share, posterior in zip(ensemble.weights, ensemble.posteriors, strict=True):
        norms = column_norms(posterior.model)
        for name in posterior.model.regressors:
            kept[name] = kept.get(name, 0) + 1
            strength[name] = strength.get(name, 0.0) + float(share) * norms[name]
        for name, value in posterior.regressor_evidence().items():
            evidence[name] = evidence.get(name, 0.0) + float(share) * value
    return strength, evidence, kept


def column_norms(model: Model) -> dict[str, float]:
    """Norm of all weights that read a regressor directly."""
    readers = [W for name, W in matrices(model.weights).items() if reads_regressors(name)]
    squares = np.zeros(len(model.terms))  # last outputs that only correct a state have none
    for W in readers:
        squares[: W.shape[1]] += np.sum(np.square(W), axis=0)
    norms = np.sqrt(squares)
    return dict(zip(model.terms.names, norms.tolist(), strict=True))


def sparsity(model: Model) -> list[dict[str, Any]]:
    """Every matrix as rows of ``#`` (kept) and ``.`` (pruned), coarser where it is large."""
    found = []
    for name, W in matrices(model.weights).items():
        mask = np.atleast_2d(W) != 0
        drawn = _coarser(mask)
        found.append(
            {
                "name": name,
                "shape": list(mask.shape),
                "kept": int(mask.sum()),
                "size": int(mask.size),
                "cells": ["".join("#" if cell else "." for cell in row) for row in drawn],
                "coarser": drawn.shape != mask.shape,
            }
        )
    return found


def _coarser(mask: Array) -> Array:
    """A cell of the smaller grid is kept if anything inside it is."""
    for axis in (0, 1):
        step = -(-mask.shape[axis] // FINEST_GRID)
        if step > 1:
            at = np.arange(0, mask.shape[axis], step)
            mask = np.logical_or.reduceat(mask, at, axis=axis)
    return mask


def trade_off(batch: Batch) -> dict[str, Any]:
    """Free-run error against kept weights along the cycles of every restart, and the choice."""
    paths, error = [], _error(batch)
    for lam, restart in np.ndindex(*batch.shape[:2]):
        ok = batch.table["status"][lam, restart] == 0
        at = np.flatnonzero(ok & np.isfinite(error[lam, restart]))
        if len(at):
            column = {n: batch.table[n][lam, restart][at] for n in ("weights", "n_regressors")}
            paths.append(
                {
                    "lam": float(batch.settings.lam[lam]),
                    "restart": restart + 1,
                    "cycles": (at + 1).tolist(),
                    "weights": column["weights"].astype(int).tolist(),
                    "regressors": column["n_regressors"].astype(int).tolist(),
                    "error": [float(f"{v:.6g}") for v in error[lam, restart][at]],
                }
            )
    index = batch.best_index
    best = {
        "lam": float(batch.settings.lam[index.lam]),
        "restart": index.restart + 1,
        "cycle": index.cycle + 1,
        "weights": int(batch.table["weights"][index]),
        "regressors": int(batch.table["n_regressors"][index]),
        "error": number(error[index]),
    }
    return {"paths": paths, "best": best}


def _error(batch: Batch) -> Float[Array, "L M C"]:
    """Free-run error on the estimation data over all outputs, in units of their scales."""
    scaled = batch.table["free_run_rmse"] / batch.scaling.y_scale
    with np.errstate(all="ignore"):
        return np.sqrt(np.mean(np.square(scaled, dtype=np.float64), axis=-1))


def restarts(batch: Batch) -> list[dict[str, Any]]:
    """The best expected free-run error of each restart, best first, for every λ."""
    found = []
    for lam, scores in zip(batch.settings.lam, np.min(batch.score, axis=-1), strict=True):
        usable = np.sort(scores[np.isfinite(scores)])
        found.append(
            {
                "lam": float(lam),
                "scores": [float(f"{v:.6g}") for v in usable],
                "failed": int(np.sum(~np.isfinite(scores))),
            }
        )
    return found


def members(ensemble: Ensemble) -> list[dict[str, Any]]:
    """One row for each model in the ensemble."""
    return [
        {
            "share": float(share),
            "regressors": len(p.model.regressors),
            "neurons": list(p.model.neurons),
            "parameters": p.model.parameters,
            "effective": number(p.effective),
            "log_evidence": number(p.log_evidence),
        }
        for share, p in zip(ensemble.weights, ensemble.posteriors, strict=True)
    ]


def weights(ensemble: Ensemble) -> dict[str, Any]:
    """The parameters of the first member with standard errors and evidence; a table can be cut."""
    rows = ensemble.posteriors[0].table()
    kept = [
        {k: number(v) if isinstance(v, float) else v for k, v in row._asdict().items()}
        for row in rows[:MOST_WEIGHTS]
    ]
    return {"rows": kept, "left_out": len(rows) - len(kept)}
