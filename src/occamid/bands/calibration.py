"""Are the bands right?  Scores of predictive distributions, and conformal inflation.

Conformal inflation assumes that the scores ``|y − mean|/std`` on held-back blocks of the estimation
data and on future data come from the same distribution: the process and its excitation stay the
same, and blocks are long against the memory of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls
from scipy.stats import norm

from occamid.bands.ensemble import Ensemble, ensemble_of
from occamid.bands.monte_carlo import Distribution
from occamid.data.record import Record, as_records
from occamid.errors import DataError, SettingsError
from occamid.training.batch import Index, Result
from occamid.training.settings import Settings
from occamid.training.train import identify

Array = np.ndarray
SHARES = (0.5, 0.8, 0.95)


class Calibration(NamedTuple):
    """How a predictive distribution fared against measurements; user's units, per output."""

    coverage: dict[float, Float[Array, " ny"]]  # share of measurements inside each central band
    log_density: Float[Array, " ny"]  # mean negative log predictive density (Gaussian)
    crps: Float[Array, " ny"]  # mean continuous ranked probability score (Gaussian)
    width: Float[Array, " ny"]  # mean width of the widest band


def score(measured: Float[Array, "N ny"], found: Distribution, skip: int) -> Calibration:
    """Coverage, density, CRPS and width after the first ``skip`` samples."""
    y, mean, std = measured[skip:], found.mean[skip:], found.std[skip:]
    z = (y - mean) / std
    coverage = {}
    for share in SHARES:
        low, high = (edge[skip:] for edge in found.interval(share))
        coverage[share] = np.mean((y >= low) & (y <= high), axis=0)
    low, high = (edge[skip:] for edge in found.interval(SHARES[-1]))
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return Calibration(
        coverage=coverage,
        log_density=np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi), axis=0),
        crps=np.mean(crps, axis=0),
        width=np.mean(high - low, axis=0),
    )


def reliability(
    measured: Float[Array, "N ny"], found: Distribution, skip: int
) -> tuple[Float[Array, " Q"], Float[Array, "Q ny"]]:
    """Nominal levels of the quantiles, and the share of measurements below each."""
    below = np.mean(measured[None, skip:] <= found.quantiles[:, skip:], axis=1)
    return np.asarray(found.levels), below


def blocks_of(record: Record, folds: int, start: int) -> list[slice]:
    """Contiguous blocks of rows that together cover the record after its initial window."""
    edges = np.linspace(start, len(record), folds + 1).astype(int)
    if np.min(np.diff(edges)) < 2:
        raise DataError(
            f'record "{record.name}" has {len(record)} rows, too few for {folds} held-back blocks '
            f"after an initial window of {start}; use fewer folds."
        )
    return [slice(a, b) for a, b in pairwise(edges.tolist())]


class Fold(NamedTuple):
    """Models that have not seen some blocks, and those blocks with their initial windows."""

    result: Result
    held_back: list[slice]
    parts: list[Record]
    start: int


def cross_validate(
    records: Record | Iterable[Record], settings: Settings, folds: int
) -> Iterator[Fold]:
    """Identify ``folds`` times, each time with another block of every record held back.

    ``settings`` have their lags resolved (those of a result do), so all folds share one program.
    """
    data = as_records(records)
    lags = (settings.input_lags, settings.output_lags)
    if "auto" in lags:
        raise SettingsError("cross-validation needs fixed lags; take the settings of a result.")
    start = max(int(lag) for lag in lags)
    blocks = [blocks_of(record, folds, start) for record in data]
    for fold in range(folds):
        held = [b[fold] for b in blocks]
        result = identify(data, settings, held_back=held)
        parts = [r[b.start - start : b.stop] for r, b in zip(data, held, strict=True)]
        yield Fold(result, held, parts, start)


def held_back_scores(
    folds: Iterable[Fold],
    records: Record | Iterable[Record],
    build: Callable[..., Ensemble] = ensemble_of,
) -> Float[Array, "S ny"]:
    """``|y − mean|/std`` of free runs on the blocks that the models have not learned from.

    ``build(result, records, held_back=…)`` makes the ensemble of a fold.
    """
    data, scores = as_records(records), []
    for fold in folds:
        ensemble = build(fold.result, data, held_back=fold.held_back)
        for part in fold.parts:
            found = ensemble.simulate_distribution(part, fold.start)
            y, mean, std = (x[fold.start :] for x in (part.y, found.mean, found.std))
            scores.append(np.abs(y - mean) / std)
    return np.concatenate(scores)


def stacking_weights(folds: Iterable[Fold], chosen: Sequence[Index]) -> Float[Array, " K"]:
    """Weights of the models at ``chosen`` that best combine their free runs on held-back blocks.

    Non-negative least squares over all blocks, normalised to one (Breiman's stacking).
    """
    runs, targets = [], []
    for fold in folds:
        scale = fold.result.scaling.y_scale
        for part in fold.parts:
            found = [
                fold.result.model(index).simulate(part.u, part.y[: fold.start])[fold.start :]
                for index in chosen
            ]
            runs.append(np.stack([np.ravel(run / scale) for run in found], axis=1))
            targets.append(np.ravel(part.y[fold.start :] / scale))
    X, y = np.concatenate(runs), np.concatenate(targets)
    usable = np.isfinite(X).all(axis=0)
    weights = np.zeros(len(chosen))
    weights[usable] = nnls(X[:, usable], y)[0]
    return weights / weights.sum() if weights.sum() else np.full(len(chosen), 1 / len(chosen))


def conformal_inflation(scores: Float[Array, "S ny"], share: float = 0.95) -> Float[Array, " ny"]:
    """The factor on the bands that makes the central ``share`` band hold that share of the scores.

    Split conformal: the ``ceil((S + 1) share)``-th smallest score over the Gaussian one.
    """
    rank = min(int(np.ceil((len(scores) + 1) * share)), len(scores)) - 1
    return np.sort(scores, axis=0)[rank] / norm.ppf(0.5 + share / 2)


def identify_with_bands(
    records: Record | Iterable[Record],
    settings: Settings | None = None,
    *,
    members: int = 10,
    folds: int = 0,
) -> Ensemble:
    """The default way to a model with bands.

    An ensemble of the best models of one identification: full posteriors, linearised through the
    free run, equal weights.  With ``folds`` its bands are also inflated (or deflated) by what
    held-back blocks of the estimation data ask for, at the price of as many identifications.
    """
    data = as_records(records)
    result = identify(data, settings)
    build = partial(ensemble_of, count=members)
    ensemble = build(result, data)
    if not folds:
        return ensemble
    scores = held_back_scores(cross_validate(data, result.settings, folds), data, build)
    return replace(ensemble, inflation=ensemble.inflation * conformal_inflation(scores))
