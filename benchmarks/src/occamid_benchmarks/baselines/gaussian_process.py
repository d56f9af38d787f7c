"""Gaussian-process NARX models: the mean of the posterior, run free on its own outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, RationalQuadratic
from sklearn.gaussian_process.kernels import WhiteKernel as White

from occamid.data.record import Record, as_records
from occamid.data.scaling import Scaling, fit_scaling
from occamid.errors import DataError, SettingsError, check_choice
from occamid_benchmarks.baselines.subspace import joined, simulation_data

Array = np.ndarray
Kernel = Literal["se", "rq"]
KERNELS = {"se": "squared exponential", "rq": "rational quadratic"}
CONDITION_ROWS = 1000  # training rows the posterior is conditioned on
TUNE_ROWS = 500  # rows on which the marginal likelihood is maximised; its cost is cubic


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """Kernel of standardised data, ``k(r) + noise δ``.

    ``se``: ``k = amplitude exp(-r²/2ℓ²)``; ``rq``: ``k = amplitude (1 + r²/2αℓ²)^-α``.
    """

    kernel: Kernel
    amplitude: float
    length: float
    noise: float
    alpha: float = 1.0

    def covariance(self, squared: Float[Array, ...]) -> Float[Array, ...]:
        """``k`` of squared distances."""
        ratio = squared / (2 * self.length**2)
        if self.kernel == "se":
            return self.amplitude * np.exp(-ratio)
        return self.amplitude * np.exp(-self.alpha * np.log1p(ratio / self.alpha))


@dataclass(frozen=True, eq=False, kw_only=True)
class GaussianProcess:
    """``y(t) = g(u(t-nk) … u(t-nk-nb+1), y(t-1) … y(t-na)) + e`` with ``g`` a Gaussian process.

    Args:
        na: lags of the outputs.
        nb: lags of the inputs.
        delay: ``nk``, the first lag of the inputs.
        points: standardised training regressors, inputs before outputs, newest lag first.
        weights: ``(K + noise I)⁻¹ Y`` of the standardised outputs.
        hyperparameters: of the kernel.
        scaling: offsets and scales of the estimation data.
        criterion: the estimation-side criterion, smaller is better.
    """

    na: int
    nb: int
    delay: int
    points: Float[Array, "M d"]
    weights: Float[Array, "M ny"]
    hyperparameters: Hyperparameters
    scaling: Scaling
    criterion: float = np.inf

    @property
    def max_lag(self) -> int:
        """The oldest sample among the regressors."""
        return max(self.na, self.delay + self.nb - 1, 1)

    @property
    def parameters(self) -> int:
        """Hyperparameters; the model itself keeps all its training points."""
        return 4 if self.hyperparameters.kernel == "rq" else 3

    def describe(self) -> str:
        """Name, lags and number of points."""
        return (
            f"GP {self.hyperparameters.kernel.upper()} na={self.na} nb={self.nb} "
            f"nk={self.delay} points={len(self.points)}"
        )

    def predict(self, record: Record) -> Float[Array, "N ny"]:
        """One-step predictions; the first ``max_lag`` rows are the measured outputs."""
        scaled, lag = self.scaling.apply(record), self.max_lag
        rows = regressors(scaled.u, scaled.y, self.na, self.nb, self.delay, lag)
        mean = self.hyperparameters.covariance(_squared(rows, self.points)) @ self.weights
        return np.concatenate([record.y[:lag], self.scaling.undo_y(mean)])

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N ny"]:
        """Free run of the mean after ``y_init``, which are the first rows.

        ``r² = r²_inputs + r²_outputs``: the first part does not depend on the run and is computed
        for all samples together; each step adds the part of the last ``na`` outputs.
        """
        nu, ny = len(self.scaling.u_offset), len(self.scaling.y_offset)
        inputs, known = simulation_data(u, y_init, nu, ny, self.max_lag)
        n_init, split = len(known), nu * self.nb
        scaled = self.scaling.apply_u(inputs)
        run = np.zeros((len(inputs), ny))
        run[:n_init] = self.scaling.apply_y(known)
        rows = regressors(scaled, run, 0, self.nb, self.delay, n_init)
        fixed = _squared(rows, self.points[:, :split])
        past = self.points[:, split:]
        fixed += np.sum(past**2, axis=1)
        for t in range(n_init, len(inputs)):
            recent = run[t - self.na : t][::-1].T.ravel()
            squared = fixed[t - n_init] - 2 * (past @ recent) + recent @ recent
            run[t] = self.hyperparameters.covariance(np.maximum(squared, 0)) @ self.weights
        return joined(known, self.scaling.undo_y(run[n_init:]))


def regressors(
    u: Float[Array, "N nu"], y: Float[Array, "N ny"], na: int, nb: int, nk: int, first: int
) -> Float[Array, "T d"]:
    """Rows for ``t ≥ first``: each input's lags from ``nk`` on, then each output's from 1 on."""
    columns = [
        x[first - k : len(x) - k]
        for values, lags in ((u, range(nk, nk + nb)), (y, range(1, na + 1)))
        for x in values.T
        for k in lags
    ]
    return np.stack(columns, axis=1)


def _squared(left: Float[Array, "T d"], right: Float[Array, "M d"]) -> Float[Array, "T M"]:
    """Squared distances between rows."""
    found = np.sum(left**2, axis=1)[:, None] + np.sum(right**2, axis=1) - 2 * left @ right.T
    return np.maximum(found, 0)


def fit_gp(
    records: Record | Iterable[Record],
    kernel: Kernel,
    na: int,
    nb: int,
    nk: int = 1,
    hyperparameters: Hyperparameters | None = None,
    scaling: Scaling | None = None,
) -> GaussianProcess:
    """Condition a Gaussian process on at most 1,000 windows, evenly spread over the records.

    Hyperparameters maximise the marginal likelihood of at most 500 windows, by scikit-learn,
    unless they are given.  Inputs and outputs are standardised.
    """
    check_choice("kernel", kernel, KERNELS)
    if na < 0 or nb < 1 or nk < 0:
        raise SettingsError(f"na={na}, nb={nb}, nk={nk}: take nb of 1 or more, none below 0.")
    found = as_records(records)
    lag = max(na, nk + nb - 1, 1)
    for record in found:
        if len(record) <= lag + 1:
            raise DataError(
                f'record "{record.name}": {len(record)} rows are too few for a lag of {lag}; '
                "use a longer record or fewer lags."
            )
    scaling = scaling or fit_scaling(found, "standardize")
    scaled = [scaling.apply(record) for record in found]
    rows = np.concatenate([regressors(r.u, r.y, na, nb, nk, lag) for r in scaled])
    target = np.concatenate([r.y[lag:] for r in scaled])
    if hyperparameters is None:
        some = _spread(len(rows), TUNE_ROWS)
        hyperparameters = tune(rows[some], target[some], kernel)
    some = _spread(len(rows), CONDITION_ROWS)
    points, target = rows[some], target[some]
    covariance = hyperparameters.covariance(_squared(points, points))
    covariance[np.diag_indices(len(points))] += hyperparameters.noise
    weights = cho_solve(cho_factor(covariance, lower=True), target)
    return GaussianProcess(
        na=na,
        nb=nb,
        delay=nk,
        points=points,
        weights=weights,
        hyperparameters=hyperparameters,
        scaling=scaling,
    )


def _spread(count: int, most: int) -> Array:
    """At most ``most`` of ``count`` row numbers, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def tune(
    rows: Float[Array, "M d"], target: Float[Array, "M ny"], kernel: Kernel
) -> Hyperparameters:
    """Maximise the marginal likelihood from a given and one random start."""
    wide, start = (1e-2, 1e3), float(np.sqrt(rows.shape[1]))
    shape: Any = RBF(start, wide)
    if kernel == "rq":
        shape = RationalQuadratic(start, 1.0, length_scale_bounds=wide, alpha_bounds=(1e-2, 1e3))
    prior = ConstantKernel(10.0, (1e-2, 1e5)) * shape + White(0.01, (1e-8, 10.0))
    model = GaussianProcessRegressor(
        prior, alpha=1e-10, optimizer=_optimise, n_restarts_optimizer=1, random_state=0
    )
    with warnings.catch_warnings():
        # An optimum at a bound (no noise, an almost linear process) is a result, not a fault.
        warnings.simplefilter("ignore")
        found = model.fit(rows, target).kernel_
    return Hyperparameters(
        kernel,
        amplitude=float(found.k1.k1.constant_value),
        length=float(found.k1.k2.length_scale),
        noise=float(found.k2.noise_level) + 1e-10,
        alpha=float(getattr(found.k1.k2, "alpha", 1.0)),
    )


def _optimise(
    objective: Callable[..., Any], start: Array, bounds: Sequence[tuple[float, float]]
) -> tuple[Array, float]:
    """Bounded quasi-Newton steps, at most 60 of them."""
    found = minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 60}
    )
    return found.x, float(found.fun)


def held_back(model: GaussianProcess, records: Record | Iterable[Record]) -> float:
    """Free-run error on the last third of each record of a model that has not seen it.

    The hyperparameters stay; the posterior is conditioned on the first two thirds only.

    Returns:
        Root mean square over all outputs, each over its standard deviation.
    """
    found = as_records(records)
    lag, errors = model.max_lag, []
    cuts = [max(2 * len(record) // 3, lag + 2) for record in found]
    if any(cut >= len(record) for cut, record in zip(cuts, found, strict=True)):
        return np.inf
    seen = fit_gp(
        [record[:cut] for record, cut in zip(found, cuts, strict=True)],
        model.hyperparameters.kernel,
        model.na,
        model.nb,
        model.delay,
        model.hyperparameters,
        model.scaling,
    )
    for record, cut in zip(found, cuts, strict=True):
        late = record[cut - lag :]
        run = seen.free_run(late.u, late.y[:lag])
        errors.append((run - late.y)[lag:] / model.scaling.y_scale)
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def scored(model: GaussianProcess, records: Record | Iterable[Record]) -> GaussianProcess:
    """The model with :func:`held_back` as its criterion."""
    return replace(model, criterion=held_back(model, records))
