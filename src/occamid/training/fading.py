"""Linear models with many lags whose coefficients fade: a prior instead of an order.

For each output, with a past of its own alone,

    ``y(t) = Σ_j Σ_i b_ji u_j(t-d_j-i) + Σ_i a_i y(t-i) + c + e(t)``,

where the coefficients of one channel are Gaussian with ``E b_i b_k = s λ^max(i,k)``, the kernel of
"tuned, correlated" responses (Chen, Ohlsson and Ljung 2012): smooth, and smaller the longer ago.
As ``λ^max(i,k) = Σ_{m ≥ max(i,k)} (λ^m − λ^(m+1))``, it is ``b = U β``: U is one on and above its
diagonal, and the β are independent with variances ``s (λ^m − λ^(m+1))``, the last one ``s λ^n``.
So this is a regression on sums of neighbouring regressors with a diagonal prior.  Two numbers for
each channel, s and λ, and the noise σ² maximise the evidence; no order is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import block_diag, cho_solve, cholesky, eigh
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from occamid.data.record import Record, as_records
from occamid.data.scaling import fit_scaling
from occamid.data.windows import Terms, all_terms
from occamid.errors import DataError
from occamid.networks import MLP
from occamid.networks.flat import size, unflatten
from occamid.training.linear import own_orders, regression
from occamid.training.model import Model

Array = np.ndarray
MOST_COLUMNS = 300  # of one output: with many inputs each has fewer lags
CONSTANT = 1.0  # prior variance of c, scaled
LEFT_OUT = 0.01  # of γ, what the data determine: directions in which doubt is left out
START = (np.log(0.1), np.log(4.0))  # log s, and the logit of λ = 0.8
BOUNDS = ((-15.0, 5.0), (-1.5, 6.0))
NOISE = (-23.0, 3.0)  # bounds of log σ²
ITERATIONS = 60
ROUNDED = 1e-13  # of the largest variance of M, what rounding may take from the smallest


@dataclass(frozen=True)
class Fading:
    """How many lags there are at most: of every input after its delay, and of the own output.

    Fewer where there are not ``rows`` for each: a run needs as many known outputs as lags.
    """

    input_lags: int
    output_lags: int
    rows: int


class Faded(NamedTuple):
    """A model of all outputs and a Gaussian over its coefficients, scaled units."""

    model: Model
    positions: Int[Array, " n"]
    factor: Float[Array, "n r"]  # F of the covariance ``F Fᵀ``
    widths: Float[Array, " n"]  # prior variances
    noise_variance: Float[Array, " ny"]
    effective: float
    log_evidence: float


def fit_fading(records: Sequence[Record], lags: Fading, zero: bool = False) -> Faded:
    """The coefficients of every output where the evidence is largest, and their covariance.

    Where the process rests at ``zero`` data are not centred and there is no constant.
    """
    records = as_records(records)
    own = own_orders(records, zero)
    scaling = fit_scaling(records, "rescale" if zero else "standardize")
    rows = sum(len(r) - r.lead for r in records)
    past = min(lags.input_lags, rows // lags.rows, MOST_COLUMNS // records[0].u.shape[1])
    fed = min(lags.output_lags, rows // lags.rows)
    reach = max(past - 1 + max(max(o.delays) for o in own), fed)
    long = [r for r in records if len(r) > max(reach, r.lead + fed)]
    if past < 1 or not long:
        raise DataError("the records are too short for a linear model with many lags")
    terms = all_terms(records[0], reach, fed)
    Z, Y = regression(long, terms, scaling)
    constant = [] if zero else [np.array([len(terms)])]
    channels = [[*_channels(terms, k, o.delays, past), *constant] for k, o in enumerate(own)]
    found = [_fit(Z, y, columns) for y, columns in zip(Y.T, channels, strict=True)]
    keep = np.isin(np.arange(len(terms)), np.concatenate([one.columns for one in found]))
    terms = terms.select(keep)
    network = MLP(len(terms), (0,), Y.shape[1], "identity", bias=not zero, skip=True)
    place = np.append(np.cumsum(keep) - 1, len(terms))  # of a column among those kept
    positions, mean, widths = _as_network(network, found, place)
    model = Model(
        network=network,
        terms=terms,
        scaling=scaling,
        weights=unflatten(network, mean),
        start=max(terms.max_lag, 1),
        sampling_time=records[0].sampling_time,
        prior_widths={n: v for n, v in unflatten(network, widths).items() if n.endswith(".W")},
    )
    return Faded(
        model=model,
        positions=positions,
        factor=block_diag(*(one.factor for one in found)),  # outputs know nothing of each other
        widths=widths[positions],
        noise_variance=np.array([one.variance for one in found]),
        effective=sum(one.effective for one in found),
        log_evidence=sum(one.log_evidence for one in found),
    )


class _Output(NamedTuple):
    """One output's regression: its columns, the last one perhaps constant, and what was found."""

    columns: Int[Array, " p"]
    mean: Float[Array, " p"]
    factor: Float[Array, "p r"]
    widths: Float[Array, " p"]
    variance: float
    effective: float
    log_evidence: float


def _as_network(
    network: MLP, found: Sequence[_Output], place: Int[Array, " nz"]
) -> tuple[Int[Array, " n"], Float[Array, " P"], Float[Array, " P"]]:
    """Where all coefficients lie in the flat vector, and that vector: mean and prior variance."""
    at = unflatten(network, np.arange(size(network)))
    constant = [at["layer1.b"][:, None]] if network.bias else []
    table = np.concatenate([at["skip.W"], *constant], axis=1)
    positions = [row[place[one.columns]] for row, one in zip(table, found, strict=True)]
    mean, widths = np.zeros(size(network)), np.ones(size(network))
    for where, one in zip(positions, found, strict=True):
        mean[where], widths[where] = one.mean, one.widths
    return np.concatenate(positions), mean, widths


def _channels(
    terms: Terms, output: int, delays: tuple[int, ...], past: int
) -> list[Int[Array, " n"]]:
    """The columns of each channel of an output, the newest lag first."""
    inputs, lags = np.array(terms.inputs).T
    found = [
        np.flatnonzero((inputs == c) & (delay <= lags) & (lags < delay + past))[::-1]
        for c, delay in enumerate(delays)
    ]
    own = [len(terms.inputs) + k for k, (c, _) in enumerate(terms.outputs) if c == output]
    return [*found, *([np.array(own[::-1])] if own else [])]


def _fit(
    Z: Float[Array, "N nz"], y: Float[Array, " N"], channels: list[Int[Array, " n"]]
) -> _Output:
    """The evidence's maximum over s and λ of every channel and over σ²."""
    sums = np.concatenate([np.cumsum(Z[:, c], axis=1) for c in channels], axis=1)  # Z U
    lengths = tuple(len(c) for c in channels)
    problem = _Sums(sums.T @ sums, sums.T @ y, float(y @ y), len(y), lengths)
    count = sum(c[0] < Z.shape[1] - 1 for c in channels)  # without the constant
    begin = np.array([*START * count, np.log(max(0.1 * problem.squares / len(y), 1e-9))])
    best = minimize(
        problem.energy,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=[*BOUNDS * count, NOISE],
        options={"maxiter": ITERATIONS},
    ).x
    variances, sigma = problem.variances(best), float(np.exp(best[-1]))
    root = np.sqrt(variances)
    values, vectors = eigh(root[:, None] * problem.gram * root / sigma)
    values = np.maximum(values, 0.0)  # how much more the data say along a direction than the prior
    mean = root * (vectors @ ((vectors.T @ (root * problem.target)) / (1 + values))) / sigma
    gamma = values / (1 + values)  # from the smallest to the largest
    told = np.cumsum(gamma) > LEFT_OUT * gamma.sum()
    return _Output(
        columns=np.concatenate(channels),
        mean=problem.coefficients(mean),
        factor=problem.coefficients(root[:, None] * vectors[:, told] / np.sqrt(1 + values[told])),
        widths=problem.coefficients(variances),
        variance=sigma,
        effective=float(gamma.sum()),
        log_evidence=-problem.energy(best)[0],
    )


class _Sums(NamedTuple):
    """Normal equations of the regression on sums, ``G = (ZU)ᵀ ZU`` and ``(ZU)ᵀ y``."""

    gram: Float[Array, "p p"]
    target: Float[Array, " p"]
    squares: float
    rows: int
    lengths: tuple[int, ...]  # lags of every channel; one more where there is a constant

    def coefficients(self, beta: Float[Array, "p ..."]) -> Float[Array, "p ..."]:
        """``U β``: each coefficient is the sum of its own β and those of all older lags.

        So are their variances, for the β are independent.
        """
        parts = np.split(beta, np.cumsum(self.lengths)[:-1])
        return np.concatenate([np.cumsum(part[::-1], axis=0)[::-1] for part in parts])

    def variances(self, x: Float[Array, " h"]) -> Float[Array, " p"]:
        """V, of the β, at ``x``: log s and logit λ of every channel, then log σ²."""
        faded = [own for own, _ in self._priors(x)]
        return np.concatenate([*faded, [CONSTANT] * (len(self.lengths) - len(faded))])

    def _priors(self, x: Float[Array, " h"]) -> list[tuple[Array, Array]]:
        """Variances of every channel, and the slopes of their logarithms along logit λ."""
        found = []
        for n, (log_s, logit) in zip(self.lengths, x[:-1].reshape(-1, 2), strict=False):
            m, lam = np.arange(1, n + 1), 1 / (1 + np.exp(-logit))
            variance = np.exp(log_s + m * np.log(lam)) * np.where(m < n, 1 - lam, 1.0)
            found.append((variance, m * (1 - lam) - np.where(m < n, lam, 0.0)))
        return found

    def energy(self, x: Float[Array, " h"]) -> tuple[float, Float[Array, " h"]]:
        """Minus the log evidence, ``½ [yᵀ C⁻¹ y + log det 2πC]``, ``C = σ² I + ZU V (ZU)ᵀ``.

        With ``M = I + V^½ G V^½ / σ²`` and ``m = V^½ q`` the mean of the β, its slope along
        ``log v_i`` is ``½ (γ_i − q_i²)``, ``γ_i = 1 − (M⁻¹)_ii``, and along ``log σ²``
        ``½ (N − Σ γ − ‖y − ZU m‖² / σ²)`` (MacKay 1992).
        """
        sigma, root = np.exp(x[-1]), np.sqrt(self.variances(x))
        M = root[:, None] * self.gram * root / sigma
        M[np.diag_indices(len(M))] += 1.0 + ROUNDED * M.diagonal().max()
        lower = cholesky(M, lower=True)
        right = root * self.target / sigma
        q = cho_solve((lower, True), right)
        gamma = 1.0 - np.diag(dpotri(lower, lower=1)[0])
        mean = root * q
        miss = self.squares - 2 * mean @ self.target + mean @ self.gram @ mean
        fit = self.squares / sigma - right @ q + 2 * np.sum(np.log(np.diag(lower)))
        slopes = 0.5 * (gamma - q**2)
        gradient = []
        parts = np.split(slopes, np.cumsum(self.lengths)[:-1])
        for own, (_, along) in zip(parts, self._priors(x), strict=False):
            gradient += [own.sum(), own @ along]
        gradient.append(0.5 * (self.rows - gamma.sum() - miss / sigma))
        return 0.5 * (fit + self.rows * (x[-1] + np.log(2 * np.pi))), np.array(gradient)
