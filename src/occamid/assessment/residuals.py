"""Residual analysis: what a model has left unexplained, in the manner of MATLAB's ``resid``.

A good model leaves one-step residuals that are white and do not depend on past inputs.
Correlations are pooled over all records, and no product crosses the border of a record.  Nothing
here knows of networks: any predictions can be analysed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import chi2, norm

from occamid.assessment.metrics import fit_percent, rmse
from occamid.data.record import Record
from occamid.errors import DataError

Array = np.ndarray
Parts = Sequence[Float[Array, "_ _"]]  # of each record, as long as it is
LAGS = 25  # as MATLAB's resid
LEVEL = 0.99  # of the bounds and of the tests, as there
FEWEST = 8  # rows of the longest record below which correlations say nothing
DEPENDENT = 1e-6  # directions of the lagged inputs below this share of the largest are no direction


class Outcome(NamedTuple):
    """Of a test; ``passed`` if nothing speaks against the hypothesis at the level asked for."""

    statistic: float
    freedom: int
    p_value: float
    passed: bool


class Histogram(NamedTuple):
    """Densities of the residuals of one output, and the normal density with their moments."""

    edges: Float[Array, " B+1"]
    density: Float[Array, " B"]
    mean: float
    std: float
    skewness: float
    kurtosis: float  # excess: 0 for a normal distribution
    normality: Outcome  # Jarque and Bera


class Errors(NamedTuple):
    """Size of the errors per output, in the user's units and as fit in percent."""

    rmse: Float[Array, " ny"]
    fit: Float[Array, " ny"]


@dataclass(frozen=True, eq=False)
class ResidualAnalysis:
    """What :func:`analyse` finds; outputs lead, then inputs, then lags.

    Attributes:
        level: of all bounds and tests.
        samples: residuals per output.
        lags: 0 … M of ``auto``; ``cross_lags`` are −M … M.
        auto: autocorrelation of the residuals of each output.
        auto_bound: half width of the bound around zero of ``auto`` beyond lag 0.
        cross: correlation of ``e(t)`` with ``u(t − lag)``; negative lags show feedback.
        cross_bound: half width of its bound.
        whiteness: Ljung and Box, one test for each output.
        independence: of past inputs (lags 0 … M), a test for each output and input.
        histograms: one for each output.
        one_step, free_run: errors of both kinds of prediction.
        aic: MATLAB's normalised ``log det V + 2 d / N``, V the covariance of the residuals.
        fpe: Akaike's final prediction error ``det V (1 + d/N) / (1 − d/N)``; inf if d ≥ N.
        parameters: d, as given.
    """

    level: float
    samples: int
    lags: Int[Array, " L"]
    cross_lags: Int[Array, " C"]
    auto: Float[Array, "ny L"]
    auto_bound: float
    cross: Float[Array, "ny nu C"]
    cross_bound: Float[Array, "ny nu"]
    whiteness: tuple[Outcome, ...]
    independence: tuple[tuple[Outcome, ...], ...]
    histograms: tuple[Histogram, ...]
    one_step: Errors
    free_run: Errors | None
    aic: float
    fpe: float
    parameters: float


def analyse(
    records: Sequence[Record],
    one_step: Parts,
    free_run: Parts | None = None,
    *,
    skip: int,
    parameters: float,
    lags: int = LAGS,
    level: float = LEVEL,
) -> ResidualAnalysis:
    """Everything about the residuals of one-step predictions of these records.

    Args:
        records: measurements, experiments of one system.
        one_step: predictions of each record, row by row like its outputs.
        free_run: simulations of each record, for comparison.
        skip: rows at the start of each record that were not predicted.
        parameters: d, the (effective) number of parameters fitted, for AIC and FPE; these two
            mean something on estimation data only.
        lags: M; fewer if the longest record has less than four times as many rows.
        level: of bounds and tests.
    """
    raw = _residuals(records, one_step, skip)
    e, u = _centred(raw), _centred([r.u[skip:] for r in records])
    M = min(lags, max(len(part) for part in e) // 4)
    count = sum(len(part) for part in e)
    z = float(norm.ppf(0.5 + level / 2))
    aic, fpe = criteria(np.concatenate(raw), parameters)
    return ResidualAnalysis(
        level=level,
        samples=count,
        lags=np.arange(M + 1),
        cross_lags=np.arange(-M, M + 1),
        auto=autocorrelation(e, M),
        auto_bound=z / np.sqrt(count),
        cross=cross_correlation(e, u, M),
        cross_bound=z * _cross_spread(e, u, M),
        whiteness=tuple(ljung_box(part, M, level) for part in _columns(e)),
        independence=tuple(
            tuple(independence(part, other, M, level) for other in _columns(u))
            for part in _columns(e)
        ),
        histograms=tuple(histogram(column, level) for column in np.concatenate(raw).T),
        one_step=_errors(records, one_step, skip),
        free_run=None if free_run is None else _errors(records, free_run, skip),
        aic=aic,
        fpe=fpe,
        parameters=float(parameters),
    )


def autocorrelation(e: Parts, lags: int) -> Float[Array, "ny {lags}+1"]:
    """``Σ e(t) e(t−k) / Σ e(t)²`` for k = 0 … M, of residuals around zero."""
    sums = np.stack([_products(e, e, k) for k in range(lags + 1)], axis=1)
    power = np.where(sums[:, :1] > 0, sums[:, :1], 1.0)
    return sums / power


def cross_correlation(e: Parts, u: Parts, lags: int) -> Float[Array, "ny nu 2*{lags}+1"]:
    """``Σ e(t) u(t−k) / sqrt(Σ e² Σ u²)`` for k = −M … M, of signals around zero."""
    nu = u[0].shape[1]
    found = []
    for k in range(-lags, lags + 1):
        columns = [
            _products(e, [part[:, [j]] for part in u], k)
            if k >= 0
            else _products([part[:, [j]] for part in u], e, -k)
            for j in range(nu)
        ]
        found.append(np.stack(columns, axis=1))
    power = _products(e, e, 0)[:, None] * _products(u, u, 0)[None]
    return np.stack(found, axis=2) / np.sqrt(np.where(power > 0, power, 1.0))[..., None]


def ljung_box(e: Sequence[Float[Array, " _"]], lags: int, level: float = LEVEL) -> Outcome:
    """Whiteness of one output: ``Q = N (N+2) Σ_k r_k² / N_k ~ χ²(M)``, N_k the pairs at lag k.

    On estimation data Q is smaller than χ² says, because the model was fitted there: the test
    is then on the safe side.
    """
    count = sum(len(part) for part in e)
    pairs = [sum(max(0, len(part) - k) for part in e) for k in range(1, lags + 1)]
    r = autocorrelation([part[:, None] for part in e], lags)[0, 1:]
    Q = count * (count + 2) * float(np.sum(r**2 / np.array(pairs)))
    return _test(Q, lags, level)


def independence(
    e: Sequence[Float[Array, " _"]],
    u: Sequence[Float[Array, " _"]],
    lags: int,
    level: float = LEVEL,
) -> Outcome:
    """Whether the residuals of one output depend on one input's past.

    ``s = Qᵀ e`` are the residuals along an orthonormal basis Q of ``u(t) … u(t−M)``, and
    ``sᵀ V⁻¹ s ~ χ²(rank)`` with ``V = Σ_k w_k R_e(k) Σ_t q(t) q(t−k)ᵀ`` (triangular w): residuals
    that are not white do not make the test fail by themselves.
    """
    long = [(a, b) for a, b in zip(e, u, strict=True) if len(a) > lags]
    width = lags + 1
    Phi = np.concatenate(
        [np.stack([b[lags - k : len(b) - k] for k in range(width)], 1) for _, b in long]
    )
    Q, singular, _ = np.linalg.svd(Phi, full_matrices=False)
    if singular[0] == 0:  # the input never moved
        return _test(0.0, 1, level)
    Q = Q[:, singular > DEPENDENT * singular[0]]
    rows = [a[lags:] for a, _ in long]
    target = np.concatenate(rows)
    basis = np.split(Q, np.cumsum([len(part) for part in rows])[:-1])
    V = np.zeros((Q.shape[1], Q.shape[1]))
    covariance = autocorrelation([a[:, None] for a in e], lags)[0] * np.mean(np.concatenate(e) ** 2)
    for k, R in enumerate(covariance):
        S = sum(q[k:].T @ q[: len(q) - k] for q in basis if len(q) > k)
        V += (1 - k / width) * R * (S if k == 0 else S + np.transpose(S))
    if covariance[0] == 0:
        return _test(0.0, Q.shape[1], level)
    s = Q.T @ target
    return _test(float(s @ np.linalg.lstsq(V, s, rcond=None)[0]), Q.shape[1], level)


def histogram(e: Float[Array, " T"], level: float = LEVEL) -> Histogram:
    """The distribution of residuals against the normal one."""
    mean, std = float(np.mean(e)), float(np.std(e))
    z = (e - mean) / (std or 1.0)
    skewness = float(np.mean(z**3))
    kurtosis = float(np.mean(z**4)) - 3.0 if std else 0.0
    statistic = len(e) / 6 * (skewness**2 + kurtosis**2 / 4)
    bins = int(np.clip(np.sqrt(len(e)), 8, 40))
    reach = max(4.0 * std, float(np.max(np.abs(e - mean)))) or 1.0
    density, edges = np.histogram(e, bins, (mean - reach, mean + reach), density=True)
    return Histogram(edges, density, mean, std, skewness, kurtosis, _test(statistic, 2, level))


def criteria(e: Float[Array, "N ny"], parameters: float) -> tuple[float, float]:
    """AIC (normalised) and FPE of residuals and a number of parameters."""
    count = len(e)
    log_det = float(np.linalg.slogdet(np.atleast_2d(e.T @ e / count))[1])
    share = parameters / count
    fpe = np.exp(log_det) * (1 + share) / (1 - share) if share < 1 else np.inf
    return log_det + 2 * share, float(fpe)


def _residuals(records: Sequence[Record], one_step: Parts, skip: int) -> list[Array]:
    """Measured less predicted after the first rows, if that can be analysed."""
    e = [r.y[skip:] - p[skip:] for r, p in zip(records, one_step, strict=True)]
    longest = max(len(part) for part in e)
    if longest < FEWEST:
        raise DataError(
            f"the longest record has {longest} rows after the first {skip}; "
            f"residual analysis needs at least {FEWEST}."
        )
    if not all(np.isfinite(part).all() for part in e):
        raise DataError("a one-step prediction is not finite; its residuals cannot be analysed.")
    return e


def _columns(parts: Parts) -> list[list[Float[Array, " _"]]]:
    """Each channel of all records."""
    return [[part[:, k] for part in parts] for k in range(parts[0].shape[1])]


def _centred(parts: Parts) -> list[Float[Array, "_ _"]]:
    """Around the mean of all records; what never moves becomes exactly zero."""
    everything = np.concatenate(parts)
    still = np.ptp(everything, axis=0) == 0
    return [np.where(still, 0.0, part - everything.mean(axis=0)) for part in parts]


def _products(a: Parts, b: Parts, k: int) -> Float[Array, " n"]:
    """``Σ a(t) b(t − k)`` for k ≥ 0, over all records, column by column."""
    pairs = zip(a, b, strict=True)
    return np.sum([np.sum(x[k:] * y[: max(0, len(y) - k)], axis=0) for x, y in pairs], axis=0)


def _cross_spread(e: Parts, u: Parts, lags: int) -> Float[Array, "ny nu"]:
    """Standard deviation of the cross-correlation of independent signals (Bartlett).

    ``sqrt(Σ_k ρ_e(k) ρ_u(k) / N)`` over k = −M … M (Ljung 1999, section 16.6), no less than that
    of white residuals.
    """
    rho_e, rho_u = autocorrelation(e, lags), autocorrelation(u, lags)
    total = 1.0 + 2.0 * rho_e[:, 1:] @ rho_u[:, 1:].T
    return np.sqrt(np.maximum(total, 1.0) / sum(len(part) for part in e))


def _errors(records: Sequence[Record], found: Parts, skip: int) -> Errors:
    measured = np.concatenate([r.y[skip:] for r in records])
    modelled = np.concatenate([part[skip:] for part in found])
    with np.errstate(all="ignore"):
        return Errors(rmse(measured, modelled), fit_percent(measured, modelled))


def _test(statistic: float, freedom: int, level: float) -> Outcome:
    p = float(chi2.sf(statistic, freedom))
    return Outcome(float(statistic), freedom, p, p >= 1 - level)
