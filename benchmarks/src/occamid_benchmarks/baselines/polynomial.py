"""Polynomial models of one output: ARX and ARMAX.

Signs are MATLAB's: ``A(q) = 1 + a₁ q⁻¹ + …``, ``B(q) = b₀ + b₁ q⁻¹ + …`` behind ``nk`` samples of
delay.  A constant stands for the operating point, so records need not be detrended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.signal import lfilter, lfiltic

from occamid.data.record import Record, as_records
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError, SettingsError
from occamid_benchmarks.baselines.subspace import STABLE, joined, simulation_data

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Polynomial:
    """``A(q) y(t) = B(q) u(t - nk) + constant + C(q) e(t)``: ARX where ``c`` is empty, else ARMAX.

    Args:
        a: ``a₁ … a_na``.
        b: ``b₀ … b_{nb-1}``, a row for each input.
        c: ``c₁ … c_nc``.
        delay: ``nk``, 1 or more where the input acts a sample later at the soonest.
        constant: the operating point.
        criterion: the estimation-side criterion, smaller is better.
    """

    a: Float[Array, " na"]
    b: Float[Array, "nu nb"]
    c: Float[Array, " nc"]
    delay: int
    constant: float
    criterion: float = np.inf

    @property
    def max_lag(self) -> int:
        """The oldest sample in the equation."""
        return max(len(self.a), self.delay + self.b.shape[1] - 1, 1)

    @property
    def parameters(self) -> int:
        """Coefficients and the constant."""
        return self.a.size + self.b.size + self.c.size + 1

    def describe(self) -> str:
        """Name and orders, such as ``ARX na=4 nb=4 nk=3``."""
        nc = f" nc={len(self.c)}" if len(self.c) else ""
        kind = "ARMAX" if len(self.c) else "ARX"
        return f"{kind} na={len(self.a)} nb={self.b.shape[1]}{nc} nk={self.delay}"

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N 1"]:
        """Free run after the known first outputs ``y_init``, which are its first rows.

        The difference equation runs on its own outputs.  The residuals of an ARMAX model over
        the initial window still act through ``C``; later ones are zero, their expectation.
        """
        inputs, known = simulation_data(u, y_init, len(self.b), 1, self.max_lag)
        n_init, lag = len(known), self.max_lag
        drive = driven(inputs, self.b, self.delay) + self.constant
        a, c = np.concatenate([[1.0], self.a]), np.concatenate([[1.0], self.c])
        misfit = np.zeros(len(inputs))
        misfit[lag:n_init] = lfilter(a, [1.0], known[:, 0])[lag:] - drive[lag:n_init]
        residual = lfilter([1.0], c, misfit)
        residual[n_init:] = 0
        drive = (drive + lfilter(c, [1.0], residual))[n_init:]
        start = lfiltic([1.0], a, known[::-1, 0][: len(self.a)])
        return joined(known, lfilter([1.0], a, drive, zi=start)[0][:, None])


def driven(u: Float[Array, "N nu"], b: Float[Array, "nu nb"], delay: int) -> Float[Array, " N"]:
    """``Σⱼ Bⱼ(q) uⱼ(t - delay)``; right from sample ``delay + nb - 1`` on."""
    late = np.zeros(delay)
    return sum(
        (lfilter(np.concatenate([late, bj]), [1.0], uj) for bj, uj in zip(b, u.T, strict=True)),
        np.zeros(len(u)),
    )


def one_output(records: Record | Iterable[Record], lag: int, parameters: int) -> tuple[Record, ...]:
    """The records, if they have one output, moving inputs and more rows than parameters."""
    found = as_records(records)
    if found[0].y.shape[1] != 1:
        raise DataError(
            f'record "{found[0].name}" has {found[0].y.shape[1]} outputs; this model has one. '
            "Identify one output at a time, or use subspace."
        )
    fit_scaling(found, "detrend")  # refuses constant channels
    for record in found:
        if len(record) - lag < 2 + parameters / len(found):
            raise DataError(
                f'record "{record.name}": {len(record)} rows are too few for a lag of {lag} and '
                f"{parameters} parameters; use a longer record or lower orders."
            )
    return found


def check_orders(**orders: int) -> None:
    """Refuse orders below the least that makes sense."""
    for name, value in orders.items():
        least = 0 if name in ("na", "nk", "nf") else 1
        if value < least:
            raise SettingsError(f"{name} is {value}; it must be {least} or more.")


def lagged(values: Float[Array, "N n"], first: int, lags: range) -> Float[Array, "T k"]:
    """Columns ``values(t - k)`` for ``t ≥ first``, channel by channel."""
    columns = [values[first - k : len(values) - k, j] for j in range(values.shape[1]) for k in lags]
    return np.stack(columns, axis=1) if columns else np.empty((len(values) - first, 0))


def fit_arx(records: Record | Iterable[Record], na: int, nb: int, nk: int = 1) -> Polynomial:
    """ARX by least squares on the one-step errors of all records together."""
    check_orders(na=na, nb=nb, nk=nk)
    lag = max(na, nk + nb - 1)
    nu = as_records(records)[0].u.shape[1]
    found = one_output(records, lag, na + nu * nb + 1)
    rows = np.concatenate(
        [
            np.concatenate(
                [-lagged(r.y, lag, range(1, na + 1)), lagged(r.u, lag, range(nk, nk + nb))], axis=1
            )
            for r in found
        ]
    )
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    target = np.concatenate([r.y[lag:, 0] for r in found])
    theta = np.linalg.lstsq(rows, target)[0]
    return _unpacked(theta, na, nb, 0, nk, nu)


def _unpacked(theta: Float[Array, " p"], na: int, nb: int, nc: int, nk: int, nu: int) -> Polynomial:
    a, b, constant, c = np.split(theta, [na, na + nu * nb, na + nu * nb + 1])
    assert len(c) == nc
    return Polynomial(a=a, b=b.reshape(nu, nb), c=c, delay=nk, constant=float(constant[0]))


def fit_armax(
    records: Record | Iterable[Record], na: int, nb: int, nc: int, nk: int = 1
) -> Polynomial:
    """ARMAX by the prediction-error method: least squares of ``ε = (A y - B u - const)/C``.

    Residuals before the first usable sample of a record are zero.  Two starts, the ARX model
    and Hannan and Rissanen's regression on the residuals of a long ARX model; the better wins.
    A step that would make ``C`` unstable is refused.
    """
    check_orders(na=na, nb=nb, nc=nc, nk=nk)
    nu = as_records(records)[0].u.shape[1]
    lag = max(na, nk + nb - 1)
    found = one_output(records, lag, na + nu * nb + nc + 1)

    signals = [_armax_signals(r, na, nb, nk) for r in found]
    target = [r.y[lag:, 0] for r in found]

    def both(theta: Array) -> tuple[Array, Array]:
        pairs = zip(signals, target, strict=True)
        errors, slopes = zip(*(_armax_errors(*p, theta, nc) for p in pairs), strict=True)
        return np.concatenate(errors), np.concatenate(slopes)

    simple = fit_arx(found, na, nb, nk)
    arx = np.concatenate([simple.a, simple.b.ravel(), [simple.constant]])
    starts = [np.concatenate([arx, np.zeros(nc)]), _hannan_rissanen(found, na, nb, nc, nk)]
    fits = [
        least_squares(lambda t: both(t)[0], start, lambda t: both(t)[1], max_nfev=40)
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return _unpacked(best.x, na, nb, nc, nk, nu)


def _armax_signals(record: Record, na: int, nb: int, nk: int) -> Float[Array, "T p"]:
    """What multiplies ``a``, ``b`` and the constant in ``A y - B u - const``."""
    lag = max(na, nk + nb - 1)
    return np.concatenate(
        [
            lagged(record.y, lag, range(1, na + 1)),
            -lagged(record.u, lag, range(nk, nk + nb)),
            np.full((len(record) - lag, 1), -1.0),
        ],
        axis=1,
    )


def _armax_errors(
    signals: Float[Array, "T p"], target: Float[Array, " T"], theta: Array, nc: int
) -> tuple[Float[Array, " T"], Float[Array, "T q"]]:
    """One-step errors and their Jacobian: each column is a signal filtered by ``1/C``."""
    split = len(theta) - nc
    c = np.concatenate([[1.0], theta[split:]])
    if np.abs(np.roots(c)).max(initial=0) > STABLE:
        return np.full(len(target), np.inf), np.zeros((len(target), len(theta)))
    errors = lfilter([1.0], c, target + signals @ theta[:split])
    late = np.concatenate([np.zeros(nc), errors])[:, None]
    columns = np.concatenate([signals, -lagged(late, nc, range(1, nc + 1))], axis=1)
    return errors, lfilter([1.0], c, columns.T).T


def _hannan_rissanen(
    records: Sequence[Record], na: int, nb: int, nc: int, nk: int
) -> Float[Array, " p"]:
    """Regression on lagged data and on the residuals of a long ARX model."""
    shortest = min(map(len, records))
    extra = int(np.clip(shortest // 20, 0, 10))
    long = fit_arx(records, na + extra, nb + extra, nk)
    lag = long.max_lag + nc
    rows, target = [], []
    for r in records:
        gone = lfilter(np.concatenate([[1.0], long.a]), [1.0], r.y[:, 0])
        residual = (gone - driven(r.u, long.b, nk) - long.constant)[:, None]
        rows.append(
            np.concatenate(
                [
                    -lagged(r.y, lag, range(1, na + 1)),
                    lagged(r.u, lag, range(nk, nk + nb)),
                    np.ones((len(r) - lag, 1)),
                    lagged(residual, lag, range(1, nc + 1)),
                ],
                axis=1,
            )
        )
        target.append(r.y[lag:, 0])
    theta = np.linalg.lstsq(np.concatenate(rows), np.concatenate(target))[0]
    c = stabilised(theta[len(theta) - nc :])
    return np.concatenate([theta[: len(theta) - nc], c])


def stabilised(f: Float[Array, " n"]) -> Float[Array, " n"]:
    """The monic polynomial ``1 + f₁ q⁻¹ + …`` with its roots reflected into the unit circle."""
    roots = np.roots(np.concatenate([[1.0], f]))
    size = np.abs(roots)
    inside = np.where(size > 1, 1 / np.maximum(size, 1), size)
    roots = roots * np.minimum(inside, 0.99) / np.maximum(size, 1e-300)
    return np.concatenate([np.real(np.poly(roots))[1:], np.zeros(len(f) - len(roots))])
