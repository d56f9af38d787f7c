"""First-order processes with delay and gain, fitted to the free run, ``y = G u + v``.

For a given pole and delay the output is linear in everything else (gain, offset, initial states),
so only those two and the noise are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.signal import lfilter

from occamid.data.record import Record, as_records
from occamid.errors import DataError, check_choice
from occamid_benchmarks.baselines.polynomial import lagged, one_output
from occamid_benchmarks.baselines.subspace import STABLE, StateSpace, realise, settled

Array = np.ndarray
Noise = Literal["white", "ar1", "arma1"]
NOISE_ORDERS: dict[str, tuple[int, int]] = {"white": (0, 0), "ar1": (1, 0), "arma1": (1, 1)}


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

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N 1"]:
        """Free run after ``y_init``; the state at its start fits that window best."""
        return self.system.free_run(u, y_init)


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
