"""The Laplace posterior over what survived pruning, behind one contract.

``N(W*, A⁻¹)`` with ``A = Σ_k H_k/σ_k² + Ψ⁻¹``: H_k is the curvature of output k's energy, σ_k² its
noise variance by MacKay's rule, Ψ the prior widths the training ended with.  Everything is in the
scaled units of the training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from occamid.data.record import Record, as_records
from occamid.data.scaling import Scaling
from occamid.data.windows import Shape, Windows
from occamid.errors import DataError, SettingsError, check_choice
from occamid.networks import Live, Network, is_matrix, reads_regressors
from occamid.networks.flat import flatten, size, unflatten
from occamid.networks.simulate import one_step
from occamid.training.curvature import recursive
from occamid.training.fading import Faded
from occamid.training.free_run import MOST_WEIGHTS, Refined
from occamid.training.model import Model
from occamid.training.programs import kept
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.observed import observed
from occamid.training.xla import ONCE

Array = np.ndarray
Method = Literal["full", "diagonal", "last-layer"]
METHODS: tuple[Method, ...] = ("full", "diagonal", "last-layer")
BIAS_WIDTH = 100.0  # biases have no prior in training; this variance is wide in scaled units


class WeightRow(NamedTuple):
    """One surviving weight: where it belongs, how large, how sure, and why it stays."""

    name: str
    regressor: str
    value: float
    standard_error: float
    evidence: float  # log Bayes factor of keeping it against setting it to zero


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian over the uncertain parameters of a compact model.

    Attributes:
        model: the compact model; its weights are the mean.
        method: which covariance.
        positions: places of the uncertain parameters in the flat vector of all of them.
        factor: F with covariance ``F Fᵀ``, or the standard deviations if it is diagonal.
        widths: prior variance of each uncertain parameter.
        noise_variance: σ² of each output.
        effective: γ, the effective number of parameters behind σ².
        log_evidence: of the model under this curvature.
    """

    model: Model
    method: Method
    positions: Int[Array, " n"]
    factor: Float[Array, "n r"] | Float[Array, " n"]
    widths: Float[Array, " n"]
    noise_variance: Float[Array, " ny"]
    effective: float
    log_evidence: float

    @property
    def mean(self) -> Float[Array, " n"]:
        """The uncertain parameters' mean."""
        return flatten(self.model.network, self.model.weights)[self.positions]

    @property
    def covariance(self) -> Float[Array, "n n"]:
        """Their covariance as a dense matrix."""
        return np.diag(self.factor**2) if self.factor.ndim == 1 else self.factor @ self.factor.T

    @property
    def standard_errors(self) -> dict[str, Float[Array, ...]]:
        """Standard deviation of every parameter by matrix name; zero where it is certain."""
        variances = self.factor**2 if self.factor.ndim == 1 else np.sum(self.factor**2, axis=1)
        flat = np.zeros(size(self.model.network))
        flat[self.positions] = np.sqrt(variances)
        return unflatten(self.model.network, flat)

    def table(self) -> list[WeightRow]:
        """Which weight belongs to which regressor, its standard error and evidence for staying."""
        labels = _labels(self.model)
        errors = flatten(self.model.network, self.standard_errors)[self.positions]
        # Savage and Dickey: the prior's density at zero over the posterior's
        evidence = 0.5 * (self.mean / errors) ** 2 + np.log(errors) - 0.5 * np.log(self.widths)
        return [
            WeightRow(labels[p][0], labels[p][1], float(m), float(s), float(e))
            for p, m, s, e in zip(self.positions, self.mean, errors, evidence, strict=True)
        ]

    def regressor_evidence(self) -> dict[str, float]:
        """Log Bayes factor of each regressor, all its first-layer weights together."""
        labels = _labels(self.model)
        found = {}
        for regressor in self.model.regressors:
            inside = [k for k, p in enumerate(self.positions) if labels[p][1] == regressor]
            if not inside:  # its weights are certain under this method
                continue
            block = np.atleast_2d(self.covariance[np.ix_(inside, inside)])
            mean = self.mean[inside]
            log_ratio = np.linalg.slogdet(block)[1] - np.sum(np.log(self.widths[inside]))
            found[regressor] = float(0.5 * (mean @ np.linalg.solve(block, mean) + log_ratio))
        return found


def fit_posterior(
    model: Model,
    records: Record | Iterable[Record],
    method: Method = "full",
    center: Literal["weights", "laplace"] = "weights",
    shape: Shape | None = None,
) -> Posterior:
    """The posterior of a trained model, given the records it was trained on.

    ``full`` is the generalised Gauss-Newton covariance of all surviving weights and biases,
    ``diagonal`` the paper's (Eqs. 9–10) from the recursive curvature, ``last-layer`` full over
    the output layer with everything below it fixed.  ``center="laplace"`` moves the mean to
    ``−Σ ĝ``, the maximum of the quadratic expansion (exact where the model is linear in the
    uncertain weights); by default it stays at the trained weights.  ``shape`` pads the
    records, so that others of about this size share what is compiled.
    """
    check_choice("posterior", method, METHODS)
    check_choice("center", center, ("weights", "laplace"))
    if model.prior_widths is None:
        raise SettingsError("the model has no prior widths; take it from an identification result.")
    live = model.network.live({n: v != 0 for n, v in model.weights.items() if is_matrix(n)})
    small = model.compact()
    positions, places, widths = _uncertain(model, live, small, method)
    # All derivatives are taken in the network as trained: one shape, compiled once for all models.
    with jax.enable_x64(True):
        data = model.windows(as_records(records), model.start, shape)
        first, squares = _first_order(model.network, model._params(), data)
        curve = _diagonals if method == "diagonal" else _gram
        curvature = curve(model, data, places)
    rows = int(np.asarray(data.valid).sum())
    solved = _solve(curvature, widths, np.asarray(squares), rows)
    mean = flatten(small.network, small.weights)[positions]
    energy = 0.5 * np.asarray(squares)
    if center == "laplace":
        gradient = np.stack(
            [
                flatten(model.network, {n: v[k] for n, v in first.items()})[places]
                for k in range(len(energy))
            ]
        )
        step = -_apply(solved.factor, (1 / solved.noise_variance) @ gradient + mean / widths)
        curve_along = curvature * step**2 if curvature.ndim == 2 else (curvature @ step) * step
        energy = energy + gradient @ step + 0.5 * np.sum(curve_along, axis=-1)
        mean = mean + step
        flat = flatten(small.network, small.weights)
        flat[positions] = mean
        small = small.with_weights(unflatten(small.network, flat))
    occam = np.sum(mean**2 / widths) + np.sum(np.log(widths)) + solved.log_determinant
    return Posterior(
        model=small,
        method=method,
        positions=positions,
        factor=solved.factor,
        widths=widths,
        noise_variance=solved.noise_variance,
        effective=solved.effective,
        log_evidence=float(_log_likelihood(energy, solved.noise_variance, rows) - 0.5 * occam),
    )


def _log_likelihood(
    energy: Float[Array, " ny"], noise_variance: Float[Array, " ny"], rows: int
) -> float:
    """Gaussian, from ``½ Σ r²`` of each output."""
    terms = 2 * energy / noise_variance + rows * np.log(2 * np.pi * noise_variance)
    return float(-0.5 * np.sum(terms))


def refined_posterior(refined: Refined) -> Posterior:
    """The posterior of a model refined in free run, whose precision the refinement ended with."""
    values, vectors = np.linalg.eigh(refined.precision)
    floor = 1e-12 * values.max(initial=1.0)  # rounding can leave a flat direction at zero
    return Posterior(
        model=refined.model,
        method="full",
        positions=refined.positions,
        factor=vectors / np.sqrt(np.maximum(values, floor)),
        widths=refined.widths,
        noise_variance=refined.noise_variance,
        effective=refined.effective,
        log_evidence=refined.log_evidence,
    )


def faded_posterior(faded: Faded) -> Posterior:
    """The posterior of a linear model with many lags, whose covariance came with it."""
    return Posterior(method="full", **faded._asdict())


def observed_posterior(fitted: Fitted, record: Record, scaling: Scaling) -> Posterior:
    """The posterior of a state-space fit, with a filter tuned on the last rows of a record."""
    found = observed(fitted, record, scaling)
    return Posterior(
        model=found.model,
        method="full",
        positions=found.positions,
        factor=found.factor,
        widths=found.widths,
        noise_variance=fitted.variance,
        effective=fitted.effective,
        log_evidence=fitted.log_evidence,
    )


class _Solved(NamedTuple):
    factor: Array
    noise_variance: Array
    effective: float
    log_determinant: float  # of the precision A


def _solve(
    curvature: Float[Array, "ny n n"] | Float[Array, "ny n"],
    widths: Float[Array, " n"],
    squares: Float[Array, " ny"],
    rows: int,
) -> _Solved:
    """Covariance and noise together: ``σ_k² = Σ r_k² / (T − γ/ny)``, ``γ = n − tr(Σ Ψ⁻¹)``."""
    ny = len(squares)
    gamma = 0.0
    for _ in range(6):
        freedom = max(rows - gamma / ny, 1.0)
        variance = np.maximum(squares / freedom, np.finfo(float).tiny)
        total = np.tensordot(1.0 / variance, curvature, axes=1)
        if total.ndim == 1:
            precision = np.maximum(total, 0.0) + 1.0 / widths
            factor, log_det = 1.0 / np.sqrt(precision), float(np.sum(np.log(precision)))
            spread = factor**2
        else:
            lower = _cholesky(total + np.diag(1.0 / widths))
            factor = solve_triangular(lower, np.eye(len(widths)), lower=True, trans="T")
            log_det = float(2 * np.sum(np.log(np.diag(lower))))
            spread = np.sum(factor**2, axis=1)
        gamma = float(len(widths) - np.sum(spread / widths))
    return _Solved(factor, variance, gamma, log_det)


def _cholesky(precision: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower factor of a precision.

    Where the noise is almost nothing, rounding may leave the matrix indefinite: its diagonal is
    then raised by the smallest share that helps.
    """
    for share in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        try:
            return np.linalg.cholesky(precision + np.diag(share * np.diagonal(precision)))
        except np.linalg.LinAlgError:
            continue
    raise DataError(
        "the posterior of the weights cannot be computed: the data leave no noise, or some "
        "channels are multiples of others; leave those out."
    )


def _apply(factor: Array, vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """Covariance times vector."""
    return factor**2 * vector if factor.ndim == 1 else factor @ (factor.T @ vector)


def _uncertain(
    model: Model, live: Live, small: Model, method: Method
) -> tuple[Int[Array, " n"], Int[Array, " n"], Float[Array, " n"]]:
    """The parameters that are not fixed: places in the compact and in the trained network's flat
    vector, and prior variances."""
    assert small.prior_widths is not None
    numbers = np.arange(size(model.network))
    trained = model.network.select(unflatten(model.network, numbers), live)
    tail = [n for n in small.weights if n != "skip.W"][-1].split(".")[0]
    last = (tail, "skip")
    positions, places, widths = [], [], []
    offset = 0
    for name, value in small.weights.items():
        flat = np.ravel(value)
        if name in trained and (method != "last-layer" or name.split(".")[0] in last):
            keep = np.flatnonzero(flat) if is_matrix(name) else np.arange(flat.size)
            positions.append(offset + keep)
            places.append(trained[name].ravel()[keep])
            wide = small.prior_widths[name].ravel()[keep] if is_matrix(name) else BIAS_WIDTH
            widths.append(np.broadcast_to(wide, keep.shape))
        offset += flat.size
    found = np.concatenate(positions).astype(int)
    if method != "diagonal" and len(found) > MOST_WEIGHTS:
        raise SettingsError(
            f"{len(found)} parameters survive, too many for a full covariance "
            f"({MOST_WEIGHTS} at most); take a later cycle, a larger lam, or the diagonal "
            "posterior."
        )
    return found, np.concatenate(places).astype(int), np.concatenate(widths)


def _gram(model: Model, data: Windows, places: Int[Array, " n"]) -> Float[Array, "ny n n"]:
    """``J_kᵀ J_k`` of every output; columns are padded so that few shapes are compiled."""
    padded = np.resize(places, -(-len(places) // 64) * 64)
    columns = np.asarray(_jacobian(model.network, model._params(), data, padded))[: len(places)]
    seen = np.flatnonzero(np.asarray(data.valid))
    each = (columns[:, seen, k] for k in range(columns.shape[2]))
    return np.stack([J @ J.T for J in each])  # half of an einsum's work, in BLAS


@kept((0,), compiler_options=ONCE)
def _jacobian(
    network: Network, params: Any, data: Windows, places: jax.Array
) -> Float[jax.Array, "n RT ny"]:
    """Derivatives of all one-step predictions along each parameter, 64 together."""
    size = sum(value.size for value in params.values())

    def outputs(p: Any) -> jax.Array:
        y = jax.vmap(lambda z: one_step(network, p, z))(data.z) * data.valid
        return y.reshape(-1, y.shape[-1])

    def along(place: jax.Array) -> jax.Array:
        unit = (jnp.arange(size) == place).astype(data.z.dtype)
        return jax.jvp(outputs, (params,), (unflatten(network, unit),))[1]

    return jax.lax.map(along, places, batch_size=64)


_sweep = kept((0,))(recursive)


def _diagonals(model: Model, data: Windows, places: Int[Array, " n"]) -> Float[Array, "ny n"]:
    """The recursive curvature of each output's energy."""
    ny = data.y.shape[-1]
    found = [_sweep(model.network, model._params(), data, jnp.eye(ny)[k]) for k in range(ny)]
    return np.stack([flatten(model.network, tree)[places] for tree in found])


@kept((0,), compiler_options=ONCE)
def _first_order(
    network: Network, params: Any, data: Windows
) -> tuple[dict[str, jax.Array], Float[jax.Array, " ny"]]:
    """Gradient of each output's energy, and ``Σ r²`` per output."""

    def energies(p: Any) -> tuple[jax.Array, jax.Array]:
        y = network.apply(p, data.z)
        found = 0.5 * jnp.sum(data.valid * (y - data.y) ** 2, axis=(0, 1))
        return found, found

    gradient, energy = jax.jacrev(energies, has_aux=True)(params)
    return gradient, 2 * energy


def _labels(model: Model) -> list[tuple[str, str]]:
    """For every flat position, ``layer0.W[2,5]`` and the regressor it reads, if any."""
    names = model.terms.names
    found = []
    for name, spec in model.network.specs().items():
        first = reads_regressors(name)
        for at in np.ndindex(*spec.shape):
            place = f"{name}[{','.join(str(i) for i in at)}]"
            found.append((place, names[at[-1]] if first else ""))
    return found
