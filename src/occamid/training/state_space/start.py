"""Where a state-space fit starts: a linear model from least squares and a realisation by SVD.

An ARX model of high order is fitted, ``y(t) = Σ A_i y(t−i) + Σ B_i u(t−i) + c``; its impulse
response fills a block Hankel matrix whose leading singular vectors are the observability matrix of
a balanced model (Ho and Kalman 1966, Kung 1978).  Nothing needs the response to decay, so poles at
one, integrators, are kept; poles beyond one are drawn back to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Array = np.ndarray
LAGS = 30  # of the ARX model (METHOD section 9)
DIVERGED = 1e8  # an impulse response beyond this is no start
ROWS = 20_000  # rows of a piece in which the least squares are accumulated
RIDGES = (1e-10, 1e-5, 1e-3, 1e-2)  # relative to the largest column; smooth inputs need more
SHORTEST = 30  # rows of a piece of a record
HORIZONS = (30, 100)  # block rows and columns of the Hankel matrix; METHOD's 200 samples at most


class Linear(NamedTuple):
    """``x⁺ = A x + B u``, ``y = C x + D u``."""

    A: Float[Array, "nx nx"]
    B: Float[Array, "nx nu"]
    C: Float[Array, "ny nx"]
    D: Float[Array, "ny nu"]


Rows = tuple[Array, Array, Array]  # inputs, outputs and weights of one record's rows


def arx(
    records: Sequence[Rows], lags: int, ridges: Sequence[float] = RIDGES
) -> list[tuple[Float[Array, "l ny ny"], Float[Array, "l+1 ny nu"]]]:
    """Least squares by QR in pieces of time: ``A_1 … A_l`` and ``B_0 … B_l`` for every ridge."""
    nu, ny = records[0][0].shape[1], records[0][1].shape[1]
    factor = np.zeros((0, lags * ny + (lags + 1) * nu + 1 + ny))
    for piece in _pieces(records, lags):
        factor = np.asarray(np.linalg.qr(np.concatenate([factor, piece]), mode="r"))
    columns = factor.shape[1] - ny
    R, target = factor[:, :columns], factor[:, columns:]
    size = np.sqrt(np.sum(R**2, axis=0)).max(initial=1e-300)
    target = np.concatenate([target, np.zeros((columns, ny))])
    models = []
    for ridge in ridges:
        rows = np.concatenate([R, ridge * size * np.eye(columns)])
        found = np.linalg.lstsq(rows, target, rcond=None)[0]
        A = found[: lags * ny].reshape(lags, ny, ny).transpose(0, 2, 1)
        B = found[lags * ny : columns - 1].reshape(lags + 1, nu, ny).transpose(0, 2, 1)
        models.append((A, B))
    return models


def _pieces(records: Sequence[Rows], lags: int) -> Iterator[Float[Array, "n columns"]]:
    """Rows ``[y(t−1) … y(t−l), u(t) … u(t−l), 1, y(t)]``, none that touches a held-back output."""
    for u, y, weight in records:
        blank = np.concatenate([[0], np.cumsum(weight <= 0)])
        for begin in range(lags, len(y), ROWS):
            rows = np.arange(begin, min(begin + ROWS, len(y)))
            rows = rows[blank[rows + 1] == blank[rows - lags]][:, None]
            if not len(rows):
                continue
            past = y[rows - np.arange(1, lags + 1)].reshape(len(rows), -1)
            inputs = u[rows - np.arange(lags + 1)].reshape(len(rows), -1)
            yield np.concatenate([past, inputs, np.ones((len(rows), 1)), y[rows[:, 0]]], axis=1)


def impulse_response(A: Array, B: Array, samples: int) -> Float[Array, "n ny nu"]:
    """Response of the ARX model to a unit pulse of every input."""
    lags, ny, nu = len(A), B.shape[1], B.shape[2]
    response = np.zeros((samples, ny, nu))
    for t in range(samples):
        value = B[t] if t < len(B) else np.zeros((ny, nu))
        past = min(t, lags)
        if past:
            value = value + np.einsum("iab,ibc->ac", A[:past], response[t - past : t][::-1])
        response[t] = value
    return response


def realise(response: Float[Array, "n ny nu"], order: int) -> Linear:
    """Ho and Kalman: a balanced model of this order from an impulse response."""
    half = (len(response) - 1) // 2
    ny, nu = response.shape[1:]
    place = np.arange(half)[:, None] + np.arange(half) + 1
    hankel = response[place].transpose(0, 2, 1, 3).reshape(half * ny, half * nu)
    left, values, right = np.linalg.svd(hankel, full_matrices=False)
    root = np.sqrt(np.maximum(values[:order], 1e-12 * values[0]))
    observable, reachable = left[:, :order] * root, root[:, None] * right[:order]
    A = np.linalg.lstsq(observable[:-ny], observable[ny:], rcond=None)[0]
    return Linear(within(A), reachable[:, :nu], observable[:ny], response[0])


def within(A: Float[Array, "nx nx"], limit: float = 1.0) -> Float[Array, "nx nx"]:
    """Poles beyond the limit drawn back to it, along their direction."""
    values, vectors = np.linalg.eig(A)
    size = np.abs(values)
    if not np.any(size > limit):
        return A
    values = np.where(size > limit, values * limit / np.maximum(size, 1e-300), values)
    return np.real(np.linalg.solve(vectors.T, (vectors * values).T).T)


def excerpt(rows: Sequence[Rows], most: int) -> list[Rows]:
    """Evenly spaced pieces of long records, about ``most`` rows in all.

    Those of a few rows are left out where there are longer ones.
    """
    total = sum(len(u) for u, _, _ in rows)
    if total <= most:
        return list(rows)
    found: list[Rows] = []
    for u, y, weight in rows:
        length = max(2, round(most * len(u) / total))
        pieces = min(3, max(1, length // 500))
        size = length // pieces
        for first in np.linspace(0, len(u) - size, pieces).round().astype(int):
            part = slice(int(first), int(first) + size)
            found.append((u[part], y[part], weight[part]))
    return [piece for piece in found if len(piece[0]) >= SHORTEST] or found


def usable_lags(records: Sequence[Rows], lags: int = LAGS) -> int:
    """Fewer lags for short records: five equations for every unknown."""
    nu, ny = records[0][0].shape[1], records[0][1].shape[1]
    rows = int(sum(np.sum(weight > 0) for _, _, weight in records))
    lengths = [len(u) for u, _, _ in records]
    shortest = min((n for n in lengths if n >= SHORTEST), default=max(lengths))
    return int(np.clip(rows // (5 * (nu + ny)), 1, max(1, min(lags, shortest // 3))))


def responses(records: Sequence[Rows]) -> list[Float[Array, "n ny nu"]]:
    """Impulse responses of ARX models of records in scaled units, for each ridge and horizon."""
    found = []
    for A, B in arx(records, usable_lags(records)):
        for horizon in HORIZONS:
            with np.errstate(all="ignore"):
                response = impulse_response(A, B, 2 * horizon + 1)
            if np.all(np.abs(response) < DIVERGED):
                found.append(response)
    return found
