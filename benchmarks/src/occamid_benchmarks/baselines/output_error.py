"""Transfer functions with white noise at the output, fitted to the free run itself.

For given poles the output is linear in everything else (numerator, offset, initial states), so
only those few are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares
from scipy.signal import lfilter

from occamid.data.record import Record, as_records
from occamid.data.scaling import fit_scaling
from occamid_benchmarks.baselines.polynomial import (
    check_orders,
    fit_arx,
    lagged,
    one_output,
    stabilised,
)
from occamid_benchmarks.baselines.subspace import STABLE, StateSpace, realise, settled

Array = np.ndarray


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

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N 1"]:
        """Free run after ``y_init``; the state at its start fits that window best."""
        return self.system.free_run(u, y_init)


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
