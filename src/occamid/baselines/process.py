"""Transfer functions with noise at the output: output error, first-order process with delay.

Both are fitted to the free run itself, ``y = G u + v``.  For given poles and delay the output is
linear in everything else (gain, offset, initial states), so only those few are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.signal import lfilter

from occamid.baselines.linear import check_orders, fit_arx, lagged, one_output, stabilised
from occamid.baselines.state_space import STABLE, StateSpace, realise, settled
from occamid.data.record import Record, as_records
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError, check_choice

Array = np.ndarray
Noise = Literal["white", "ar1", "arma1"]
NOISE_ORDERS: dict[str, tuple[int, int]] = {"white": (0, 0), "ar1": (1, 0), "arma1": (1, 1)}


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputError:
    """``y(t) = B(q)/F(q) u(t - nk) + constant + e(t)``, all inputs over one denominator.

    Args:
        b: ``b₀ … b_{nb-1}``, a row for each input.
        f: ``f₁ … f_nf``.
        delay: ``nk``.
        system: the same model in state space, which simulates.
        criterion: the estimation-side criterion, smaller is better.
    """

    b: Float[Array, "nu nb"]
    f: Float[Array, " nf"]
    delay: int
    system: StateSpace
    criterion: float = np.inf

    @property
    def max_lag(self) -> int:
        """The delay and one sample for each state."""
        return self.system.max_lag

    @property
    def parameters(self) -> int:
        """Coefficients and the constant."""
        return self.b.size + self.f.size + 1

    def describe(self) -> str:
        """Name and orders."""
        return f"output error nb={self.b.shape[1]} nf={len(self.f)} nk={self.delay}"

    def simulate(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N 1"]:
        """Free run after ``y_init``; the state at its start fits that window best."""
        return self.system.simulate(u, y_init)


def fit_output_error(
    records: Record | Iterable[Record], nb: int, nf: int, nk: int = 1
) -> OutputError:
    """Output error by separable least squares on the free run itself.

    For a given ``F`` the output is linear in ``b``, the constant and one initial state for each
    record, so only ``f`` is searched.  Starts: the ARX denominator and Steiglitz and McBride's
    iteration, both reflected into the unit circle.  A step that leaves it is refused.
    """
    check_orders(nb=nb, nf=nf, nk=nk)
    nu = as_records(records)[0].u.shape[1]
    lag = max(nk + nb - 1, nf)
    found = one_output(records, lag, nf + nu * nb + 1 + nf)
    target = np.concatenate([r.y[nk + nb - 1 :, 0] for r in found])

    def solve(f: Array) -> tuple[Array, Array]:
        rows = _transfer_rows(found, f, nb, nk)
        beta = np.linalg.lstsq(rows, target)[0]
        return beta, target - rows @ beta

    def errors(f: Array) -> Array:
        unstable = np.abs(np.roots(np.concatenate([[1.0], f]))).max(initial=0) > STABLE
        return np.full(len(target), np.inf) if unstable else solve(f)[1]

    def slopes(f: Array) -> Array:
        here, step = solve(f)[1], 1e-7
        return np.stack([(solve(f + step * e)[1] - here) / step for e in np.eye(nf)], axis=1)

    f = np.zeros(0)
    if nf:
        starts = _denominators(found, nb, nf, nk)
        fits = [least_squares(errors, start, slopes, max_nfev=40) for start in starts]
        f = min(fits, key=lambda fit: fit.cost).x
    beta = solve(f)[0]
    b, constant = beta[: nu * nb].reshape(nu, nb), beta[nu * nb]
    A, B, C, D = realise(b, f)
    system = StateSpace(
        A=A, B=B, C=C, D=D, delay=nk, u_offset=np.zeros(nu), y_offset=np.array([constant])
    )
    return OutputError(b=b, f=f, delay=nk, system=settled(system, found))


def _transfer_rows(
    records: Sequence[Record], f: Float[Array, " nf"], nb: int, nk: int
) -> Float[Array, "T p"]:
    """Columns: every delayed input over ``F``, a one, and the free responses of ``1/F``."""
    first, denominator = nk + nb - 1, np.concatenate([[1.0], f])
    blocks = []
    for k, r in enumerate(records):
        length = len(r) - first
        forced = lfilter([1.0], denominator, lagged(r.u, first, range(nk, nk + nb)), axis=0)
        free = np.zeros((length, len(f) * len(records)))
        impulses = np.eye(length, len(f))
        free[:, k * len(f) : (k + 1) * len(f)] = lfilter([1.0], denominator, impulses, axis=0)
        blocks.append(np.concatenate([forced, np.ones((length, 1)), free], axis=1))
    return np.concatenate(blocks)


def _denominators(
    records: Sequence[Record], nb: int, nf: int, nk: int
) -> list[Float[Array, " nf"]]:
    """The ARX denominator, and what Steiglitz and McBride's iteration makes of it."""
    scaling = fit_scaling(records, "detrend")
    centred = [scaling.apply(r) for r in records]
    first = f = stabilised(fit_arx(centred, nf, nb, nk).a)
    signals = ([r.u for r in centred], [r.y for r in centred])
    for _ in range(15):
        u, y = ([lfilter([1], [1, *f], x, axis=0) for x in xs] for xs in signals)
        filtered = [replace(r, u=v, y=w) for r, v, w in zip(records, u, y, strict=True)]
        f = stabilised(fit_arx(filtered, nf, nb, nk).a)
    return [first, f]


@dataclass(frozen=True, eq=False, kw_only=True)
class Process:
    """``y = K e^{-Td s} / (1 + T s) u + constant + v``, the input held between samples.

    The noise ``v`` is white, or first-order autoregressive, or ARMA(1, 1).

    Args:
        gain: ``K``.
        time_constant: ``T`` in seconds.
        delay_time: ``Td`` in seconds, any fraction of a sample.
        system: the same model in discrete state space, which simulates.
        noise: the name of the disturbance model.
        criterion: the estimation-side criterion, smaller is better.
    """

    gain: float
    time_constant: float
    delay_time: float
    system: StateSpace
    noise: Noise = "white"
    criterion: float = np.inf

    @property
    def max_lag(self) -> int:
        """The delay and one sample for the state."""
        return self.system.max_lag

    @property
    def parameters(self) -> int:
        """``K, T, Td``, the constant and the coefficients of the noise."""
        return 4 + sum(NOISE_ORDERS[self.noise])

    def describe(self) -> str:
        """Name and values."""
        noise = "" if self.noise == "white" else f" {self.noise} noise"
        return (
            f"process K={self.gain:.3g} T={self.time_constant:.3g} s "
            f"Td={self.delay_time:.3g} s{noise}"
        )

    def simulate(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N 1"]:
        """Free run after ``y_init``; the state at its start fits that window best."""
        return self.system.simulate(u, y_init)


def delay_scan(
    records: Record | Iterable[Record], largest: int
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """Free-run error of the best first-order process for every delay ``0 … largest``.

    For each of 30 time constants the filtered input is regressed on, at all delays together and
    over the same samples, after the constant and each record's free response are projected out.

    Returns:
        The sum of squared errors and the best time constant in samples, one for each delay.
    """
    found = one_output(records, largest + 1, 4 + len(as_records(records)))
    if found[0].u.shape[1] != 1:
        raise DataError(
            f'record "{found[0].name}" has {found[0].u.shape[1]} inputs; a process model has one. '
            "Leave the others out."
        )
    constants = np.geomspace(0.3, min(map(len, found)), 30)
    target = np.concatenate([r.y[largest + 1 :, 0] for r in found])
    starts = np.cumsum([0] + [len(r) - largest - 1 for r in found])
    errors = np.empty((len(constants), largest + 1))
    for row, constant in enumerate(constants):
        pole = np.exp(-1 / constant)
        nuisance = np.ones((len(target), 1 + len(found)))
        shifted = []
        for k, r in enumerate(found):
            nuisance[:, k + 1] = 0
            nuisance[starts[k] : starts[k + 1], k + 1] = pole ** np.arange(len(r) - largest - 1)
            filtered = lfilter([0, 1 - pole], [1, -pole], r.u[:, 0])
            shifted.append(lagged(filtered[:, None], largest + 1, range(largest + 1)))
        basis = np.linalg.qr(nuisance)[0]
        columns, wanted = np.concatenate(shifted), target - basis @ (basis.T @ target)
        columns = columns - basis @ (basis.T @ columns)
        power = np.maximum(np.sum(columns**2, axis=0), 1e-300)
        errors[row] = wanted @ wanted - (wanted @ columns) ** 2 / power
    best = np.argmin(errors, axis=0)
    return errors[best, np.arange(largest + 1)], constants[best]


def fit_process(
    records: Record | Iterable[Record], start: tuple[float, float], noise: Noise = "white"
) -> Process:
    """First-order process by separable least squares of the whitened free-run errors.

    Args:
        records: one experiment or several, one input and one output.
        start: delay and time constant in samples, as :func:`delay_scan` finds them.
        noise: disturbance model.
    """
    check_choice("noise", noise, NOISE_ORDERS)
    n_ar, n_ma = NOISE_ORDERS[noise]
    largest = int(start[0]) + 10
    found = one_output(records, largest + 2, 4 + n_ar + n_ma)
    lower = [np.log(0.1), max(start[0] - 10, 0)] + [-STABLE] * (n_ar + n_ma)
    upper = [np.log(10 * max(map(len, found))), largest] + [STABLE] * (n_ar + n_ma)
    guess = [np.log(start[1]), start[0] + 0.01] + [-0.5] * n_ar + [0.0] * n_ma
    theta = least_squares(
        lambda theta: _solved(found, theta, n_ar, largest + 2)[1],
        guess,
        bounds=(lower, upper),
        x_scale="jac",
        max_nfev=60,
    ).x
    gain, constant = _solved(found, theta, n_ar, largest + 2)[0][:2]
    pole, b = _held(np.exp(theta[0]), theta[1])
    A, B, C, D = realise(gain * b[None], np.array([-pole]))
    system = StateSpace(
        A=A,
        B=B,
        C=C,
        D=D,
        delay=int(theta[1]) + 1,
        u_offset=np.zeros(1),
        y_offset=np.array([constant]),
        noise_ar=tuple(theta[2 : 2 + n_ar]),
        noise_ma=tuple(theta[2 + n_ar :]),
    )
    seconds = found[0].sampling_time
    return Process(
        gain=float(gain),
        time_constant=float(np.exp(theta[0]) * seconds),
        delay_time=float(theta[1] * seconds),
        system=settled(system, found),
        noise=noise,
    )


def _solved(
    records: Sequence[Record], theta: Float[Array, " p"], n_ar: int, first: int
) -> tuple[Float[Array, " q"], Float[Array, " T"]]:
    """Gain, constant and initial states, and the whitened errors, for ``(log T, Td, noise)``."""
    pole, b = _held(np.exp(theta[0]), theta[1])
    lags = range(int(theta[1]) + 1, int(theta[1]) + 3)
    blocks = []
    for k, r in enumerate(records):
        forced = lfilter([1], [1, -pole], lagged(r.u, first, lags) @ b)
        free = np.zeros((len(forced), len(records)))
        free[:, k] = pole ** np.arange(len(forced))
        block = np.column_stack([forced, np.ones(len(forced)), free, r.y[first:]])
        blocks.append(lfilter([1, *theta[2 : 2 + n_ar]], [1, *theta[2 + n_ar :]], block, axis=0))
    rows = np.concatenate(blocks)
    beta = np.linalg.lstsq(rows[:, :-1], rows[:, -1])[0]
    return beta, rows[:, -1] - rows[:, :-1] @ beta


def _held(constant: float, delay: float) -> tuple[float, Float[Array, " 2"]]:
    """Pole and numerator of ``e^{-Td s}/(1 + T s)`` behind a hold, times in samples.

    With ``Td = d + γ``: ``w(t) = p w(t-1) + b₀ u(t-d-1) + b₁ u(t-d-2)``, ``p = e^{-1/T}``,
    ``b₀ = 1 - e^{-(1-γ)/T}``, ``b₁ = e^{-(1-γ)/T} - p``.
    """
    pole, late = np.exp(-1 / constant), np.exp(-(1 - delay % 1) / constant)
    return pole, np.array([1 - late, late - pole])
