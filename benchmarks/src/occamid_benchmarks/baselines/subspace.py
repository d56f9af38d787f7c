"""Linear state-space models, their free run, and subspace identification (PO-MOESP)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.signal import lfilter

from occamid.data.record import Record, as_records
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError, SettingsError

Array = np.ndarray
DIVERGED = 1e100  # an output beyond this, or no number at all, counts as diverged
STABLE = 0.999  # the largest modulus of a pole that an estimator may return


@dataclass(frozen=True, eq=False, kw_only=True)
class StateSpace:
    """A linear model of measured outputs with an input delay and a noise filter.

    ::

        x(t+1) = A x(t) + B (u(t-d) - ū)
        y(t)   = C x(t) + D (u(t-d) - ū) + ȳ + v(t),    v = M(q)/N(q) e

    Args:
        A: state matrix.
        B: input matrix.
        C: output matrix.
        D: feed-through matrix.
        delay: ``d`` in samples.
        u_offset: ``ū``, one per input.
        y_offset: ``ȳ``, one per output.
        noise_ar: ``N`` without its leading one; empty for white measurement noise.
        noise_ma: ``M`` without its leading one.
        noise_std: standard deviation of ``e``, one per output.
        state_moment: ``E x xᵀ`` over the estimation data, the prior of an unknown initial state.
        title: what :meth:`describe` says.
        criterion: the estimation-side criterion, smaller is better.
    """

    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    C: Float[Array, "ny n"]
    D: Float[Array, "ny nu"]
    delay: int
    u_offset: Float[Array, " nu"]
    y_offset: Float[Array, " ny"]
    noise_ar: tuple[float, ...] = ()
    noise_ma: tuple[float, ...] = ()
    noise_std: Float[Array, " ny"] | None = None
    state_moment: Float[Array, "n n"] | None = None
    title: str = "state space"
    criterion: float = np.inf

    @property
    def order(self) -> int:
        """Number of states."""
        return len(self.A)

    @property
    def max_lag(self) -> int:
        """How many first outputs a simulation must know: the delay and one for each state."""
        return self.delay + self.order

    @property
    def parameters(self) -> int:
        """Free parameters whatever the basis of the state, offsets of the outputs included."""
        ny, nu = self.D.shape
        return self.order * (nu + ny) + ny * nu + ny + len(self.noise_ar) + len(self.noise_ma)

    def describe(self) -> str:
        """Name and orders."""
        return self.title

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N ny"]:
        """Free run after the known first outputs ``y_init``, which are its first rows.

        The state at the first sample whose input is known minimises the whitened misfit over
        the initial window plus ``xᵀ P⁻¹ x`` (``P`` the state moment), so a short noisy window
        cannot start a huge transient.  Coloured noise decays as its filter says.
        """
        ny, nu = self.D.shape
        inputs, known = simulation_data(u, y_init, nu, ny, self.max_lag)
        n_init, window = len(known), len(known) - self.delay
        pushed = inputs[: len(inputs) - self.delay] - self.u_offset
        with np.errstate(all="ignore"):
            forced = self._outputs(pushed, np.zeros(self.order))
            state = self._initial_state(known[self.delay :] - forced[:window])
            run = forced + self._outputs(np.zeros_like(pushed), state) - self.y_offset
            noise = np.zeros_like(run)
            noise[:window] = self._whiten(known[self.delay :] - run[:window])
            run = run + lfilter([1, *self.noise_ma], [1, *self.noise_ar], noise, axis=0)
        return joined(known, run[n_init - self.delay :])

    def _outputs(self, pushed: Float[Array, "T nu"], state: Float[Array, " n"]) -> Array:
        states = trajectory(self.A, pushed @ self.B.T, state)
        return states @ self.C.T + pushed @ self.D.T + self.y_offset

    def _whiten(self, values: Float[Array, "T ..."]) -> Array:
        return lfilter([1, *self.noise_ar], [1, *self.noise_ma], values, axis=0)

    def _initial_state(self, misfit: Float[Array, "T ny"]) -> Float[Array, " n"]:
        """``argmin ‖(misfit - C Aᵗ x) / σ‖² + xᵀ P⁻¹ x``, both sides whitened."""
        free = trajectory(self.A, np.zeros((len(misfit), self.order, 1)), np.eye(self.order))
        scale = np.ones(len(self.C)) if self.noise_std is None else self.noise_std
        rows = self._whiten(np.einsum("yn,tnm->tym", self.C, free)) / scale[:, None]
        wanted = self._whiten(misfit) / scale
        rows, wanted = rows.reshape(-1, self.order), wanted.ravel()
        if not (np.isfinite(rows).all() and np.isfinite(wanted).all()):
            return np.full(self.order, np.inf)
        if self.state_moment is not None and self.noise_std is not None:
            ridge = 1e-12 * np.trace(self.state_moment) + 1e-300
            root = np.linalg.cholesky(self.state_moment + ridge * np.eye(self.order))
            rows = np.concatenate([rows, solve_triangular(root, np.eye(self.order), lower=True)])
            wanted = np.concatenate([wanted, np.zeros(self.order)])
        return np.linalg.lstsq(rows, wanted)[0]


def trajectory(A: Float[Array, "n n"], pushes: Array, start: Array) -> Array:
    """``x(0), …, x(T-1)`` of ``x(t+1) = A x(t) + push(t)``; ``x`` a vector or a matrix."""
    found = np.empty((len(pushes), *start.shape))
    state = start
    for t, push in enumerate(pushes):
        found[t] = state
        state = A @ state + push
    return found


def simulation_data(
    u: Array, y_init: Array, n_inputs: int, n_outputs: int, max_lag: int
) -> tuple[Float[Array, "N nu"], Float[Array, "n_init ny"]]:
    """Inputs and known outputs as columns, or an error that says what does not fit."""
    inputs = np.asarray(u, dtype=np.float64)
    known = np.atleast_1d(np.asarray(y_init, dtype=np.float64))
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    known = known[:, None] if known.ndim == 1 else known
    for what, values, wanted, kind in (
        ("u", inputs, n_inputs, "inputs"),
        ("y_init", known, n_outputs, "outputs"),
    ):
        if values.ndim != 2 or values.shape[1] != wanted:
            raise DataError(
                f"{what} has shape {values.shape}; the model has {wanted} {kind}, "
                "one column for each."
            )
        if not np.isfinite(values).all():
            raise DataError(f"{what} holds values that are not finite; remove or fill them first.")
    if len(known) < max_lag:
        raise DataError(
            f"y_init has {len(known)} samples; the model needs the first {max_lag} outputs."
        )
    if len(known) >= len(inputs):
        raise DataError(
            f"y_init has {len(known)} samples and u has {len(inputs)}; nothing is left to simulate."
        )
    return inputs, known


def joined(known: Float[Array, "n_init ny"], run: Float[Array, "T ny"]) -> Float[Array, "N ny"]:
    """Known outputs, then the run; from the first diverged sample on the run is infinite."""
    diverged = ~(np.abs(run) < DIVERGED)
    run = np.where(np.logical_or.accumulate(diverged.any(axis=1))[:, None], np.inf, run)
    return np.concatenate([known, run])


def realise(
    b: Float[Array, "nu nb"], f: Float[Array, " nf"]
) -> tuple[Float[Array, "n n"], Float[Array, "n nu"], Float[Array, "1 n"], Float[Array, "1 nu"]]:
    """Observer form of ``Σⱼ Bⱼ(q)/F(q)``, ``F = 1 + f₁ q⁻¹ + …``, ``Bⱼ = b₀ + b₁ q⁻¹ + …``."""
    n = max(len(f), b.shape[1] - 1, 1)
    denominator = np.zeros(n)
    denominator[: len(f)] = f
    numerator = np.zeros((n + 1, len(b)))
    numerator[: b.shape[1]] = b.T
    A = np.eye(n, k=1)
    A[:, 0] = -denominator
    B = numerator[1:] - denominator[:, None] * numerator[0]
    return A, B, np.eye(1, n), numerator[:1]


def settled(model: StateSpace, records: Sequence[Record]) -> StateSpace:
    """The model with its noise level and state moment, measured on the estimation records."""
    moment, errors, samples = np.zeros_like(model.A), [], 0
    for record in records:
        pushed = record.u[: len(record) - model.delay] - model.u_offset
        measured = record.y[model.delay :]
        forced = model._outputs(pushed, np.zeros(model.order))
        state = model._initial_state(measured - forced)
        states = trajectory(model.A, pushed @ model.B.T, state)
        moment += states.T @ states
        samples += len(states)
        errors.append(model._whiten(measured - model._outputs(pushed, state)))
    spread = np.std(np.concatenate([r.y for r in records]), axis=0)
    std = np.sqrt(np.mean(np.concatenate(errors) ** 2, axis=0))
    return replace(model, state_moment=moment / samples, noise_std=np.maximum(std, 1e-10 * spread))


def fit_subspace(
    records: Record | Iterable[Record], order: int, delay: int = 0, horizon: int = 10
) -> StateSpace:
    """PO-MOESP: the column space of the observability matrix by projection, then least squares.

    ``A`` and ``C`` come from the shift invariance of the ``order`` leading left singular vectors
    of future outputs projected on past data along future inputs; ``B``, ``D``, the offset and
    the initial states are then linear in the outputs.  Several records add columns to the
    block-Hankel matrices.

    ``horizon`` is the number of block rows of the past and of the future.
    """
    found = as_records(records)
    if not 0 < order < horizon or delay < 0:
        raise SettingsError(
            f"order {order}, delay {delay} and horizon {horizon} do not fit; "
            "take 0 < order < horizon and a delay of 0 or more."
        )
    channels = found[0].u.shape[1] + found[0].y.shape[1]
    columns = sum(max(len(r) - delay - 2 * horizon + 1, 0) for r in found)
    if columns < 2 * horizon * channels:
        raise DataError(
            f"{columns} windows of {2 * horizon} samples are too few for a horizon of {horizon}; "
            f"it needs {2 * horizon * channels}. Give longer records or a smaller horizon."
        )
    scaling = fit_scaling(found, "standardize")
    scaled = [(scaling.apply_u(r.u[: len(r) - delay]), scaling.apply_y(r.y[delay:])) for r in found]
    A, C = _observable(scaled, order, horizon)
    B, D, offset = _input_matrices(scaled, A, C)
    gain = scaling.y_scale[:, None]
    model = StateSpace(
        A=A,
        B=B / scaling.u_scale,
        C=C * gain,
        D=D * gain / scaling.u_scale,
        delay=delay,
        u_offset=scaling.u_offset,
        y_offset=scaling.undo_y(offset),
        title=f"subspace order={order} delay={delay} horizon={horizon}",
    )
    return settled(model, found)


def _hankel(values: Float[Array, "T n"], rows: int) -> Float[Array, "{rows}*n columns"]:
    """Block Hankel matrix: block row ``i`` holds ``values[i], values[i+1], …``."""
    view = np.lib.stride_tricks.sliding_window_view(values, rows, axis=0)
    return view.transpose(2, 1, 0).reshape(rows * values.shape[1], -1)


def _observable(
    pairs: Sequence[tuple[Array, Array]], order: int, horizon: int
) -> tuple[Float[Array, "n n"], Float[Array, "ny n"]]:
    """``A`` and ``C`` from the LQ factors of [future inputs; past data; future outputs]."""
    usable = [(u, y) for u, y in pairs if len(u) >= 2 * horizon]
    inputs = np.concatenate([_hankel(u, 2 * horizon) for u, _ in usable], axis=1)
    outputs = np.concatenate([_hankel(y, 2 * horizon) for _, y in usable], axis=1)
    nu, ny = len(inputs) // (2 * horizon), len(outputs) // (2 * horizon)
    past_u, future_u = np.split(inputs, 2)
    past_y, future_y = np.split(outputs, 2)
    constant = np.ones((1, inputs.shape[1]))  # an input too: the means need not match the gain
    stacked = np.concatenate([constant, future_u, past_u, past_y, future_y])
    lower = np.asarray(np.linalg.qr(stacked.T, mode="r")).T
    before, past = 1 + horizon * nu, horizon * (nu + ny)
    left = np.linalg.svd(lower[before + past :, before : before + past])[0][:, :order]
    C = left[:ny]
    A = np.linalg.lstsq(left[:-ny], left[ny:])[0]
    if np.abs(np.linalg.eigvals(A)).max() > STABLE:
        # Maciejowski (1995): a block row of zeros below the shifted matrix makes A stable.
        A = STABLE * left.T @ np.concatenate([left[ny:], np.zeros((ny, order))])
    return A, C


def _input_matrices(
    pairs: Sequence[tuple[Array, Array]], A: Float[Array, "n n"], C: Float[Array, "ny n"]
) -> tuple[Float[Array, "n nu"], Float[Array, "ny nu"], Float[Array, " ny"]]:
    """``B``, ``D``, ``ȳ``: ``y = C (qI - A)⁻¹ B u + D u + C Aᵗ x₀ + ȳ`` is linear in them."""
    n, ny, nu = len(A), len(C), pairs[0][0].shape[1]
    blocks, targets = [], []
    for k, (u, y) in enumerate(pairs):
        pushes = np.einsum("tu,nm->tnum", u, np.eye(n)).reshape(len(u), n, nu * n)
        by_state = np.einsum("yn,tnc->tyc", C, trajectory(A, pushes, np.zeros((n, nu * n))))
        direct = np.einsum("tu,yz->tyuz", u, np.eye(ny)).reshape(len(u), ny, nu * ny)
        free = np.zeros((len(u), ny, n * len(pairs)))
        transient = trajectory(A, np.zeros((len(u), n, 1)), np.eye(n))
        free[:, :, k * n : (k + 1) * n] = np.einsum("yn,tnm->tym", C, transient)
        constant = np.broadcast_to(np.eye(ny), (len(u), ny, ny))
        blocks.append(np.concatenate([by_state, direct, constant, free], axis=2))
        targets.append(y)
    rows = np.concatenate(blocks)
    rows = rows.reshape(-1, rows.shape[2])
    found = np.linalg.lstsq(rows, np.concatenate(targets).ravel())[0]
    B, D, offset = np.split(found[: nu * n + nu * ny + ny], [nu * n, nu * n + nu * ny])
    return B.reshape(nu, n).T, D.reshape(nu, ny).T, offset
