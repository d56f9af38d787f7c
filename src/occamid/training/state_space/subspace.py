"""Linear state-space models by projection alone: PO-MOESP (Verhaegen 1994), all orders at once.

Future outputs are projected on past data along future inputs; the leading left singular vectors
are the observability matrix, whose shift invariance gives ``A`` and ``C``.  The outputs of a free
run are then linear in ``B``, ``D``, the offsets and the first states: one least squares.  Nothing
is iterated, so nothing gets stuck, and many states cost little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import fftconvolve

from occamid.errors import DataError
from occamid.training.state_space.start import Rows

Array = np.ndarray
TURNS = 10  # in which rows are held back to compare orders
HOLD = 0.03  # how much first states are drawn to zero, which blanked first rows cannot tell
AS_GOOD = 1.02  # times the smallest error: a smaller order is taken
ROWS = 50_000  # that are looked at, the first of every record
HORIZON = 20  # block rows of the past and of the future, fewer where rows are few


class Fit(NamedTuple):
    """A linear model with its offset, the first states of all records and its free runs."""

    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    C: Float[Array, "ny n"]
    D: Float[Array, "ny nu"]
    c: Float[Array, " ny"]
    first: Float[Array, "R n"]
    outputs: Float[Array, "T ny"]


def subspace(rows: Sequence[Rows], order: int) -> Fit:
    """A model of this order."""
    few = _beginnings(rows)
    if order >= (horizon := _horizon(few)):
        raise DataError(f"the records allow subspace models of order {horizon - 1} at most")
    return _fits(few, (order,))[0]


def best_order(rows: Sequence[Rows], orders: Sequence[int]) -> int:
    """The smallest order about as good as the best in free runs through rows held back in turn."""
    few = _beginnings(rows)
    left = [(u, y, np.where(_turn(weight, 1), 0.0, weight)) for u, y, weight in few]
    possible = [n for n in orders if n < _horizon(left)] or [min(orders)]
    squares = held_back_squares(few, possible) if len(possible) > 1 else np.zeros(1)
    return possible[int(np.argmax(squares <= AS_GOOD**2 * np.min(squares)))]


def held_back_squares(rows: Sequence[Rows], orders: Sequence[int]) -> Float[Array, " n"]:
    """Mean square, for every order, of free runs through rows that were held back in turn."""
    squares, count = np.zeros(len(orders)), 0
    for turn in range(1, TURNS):  # without its first rows a run has no beginning
        held = [_turn(weight, turn) for _, _, weight in rows]
        left = [(u, y, np.where(h, 0.0, w)) for (u, y, w), h in zip(rows, held, strict=True)]
        here = np.concatenate(held)
        y = np.concatenate([y for _, y, _ in rows])[here]
        with np.errstate(all="ignore"):
            squares += [np.sum((f.outputs[here] - y) ** 2) for f in _fits(left, orders)]
        count += y.size
    return np.where(np.isfinite(squares), squares, np.inf) / max(count, 1)


def _beginnings(rows: Sequence[Rows]) -> list[Rows]:
    share = min(1.0, ROWS / sum(len(u) for u, _, _ in rows))
    ends = [max(1, int(share * len(u))) for u, _, _ in rows]
    return [(u[:n], y[:n], w[:n]) for (u, y, w), n in zip(rows, ends, strict=True)]


def _turn(weight: Float[Array, " T"], turn: int) -> Bool[Array, " T"]:
    """Rows of a record that are held back in a turn."""
    return (np.arange(len(weight)) * TURNS // len(weight) == turn) & (weight > 0)


def _horizon(rows: Sequence[Rows]) -> int:
    """Twice as many windows as they have numbers, at least."""
    u, y, _ = rows[0]
    channels = u.shape[1] + y.shape[1]
    fitting = [h for h in range(2, HORIZON + 1) if _count(rows, 2 * h) >= 4 * h * channels]
    return max(fitting, default=1)


def _count(rows: Sequence[Rows], length: int) -> int:
    return sum(len(_begins(weight, length)) for _, _, weight in rows)


def _begins(weight: Float[Array, " T"], length: int) -> Array:
    """Where windows of rows begin that are all looked at."""
    blank = np.concatenate([[0], np.cumsum(weight <= 0)])
    return np.flatnonzero(blank[length:] == blank[:-length]) if len(weight) >= length else blank[:0]


def _observability(rows: Sequence[Rows]) -> Float[Array, "h*ny h*ny"]:
    """Left singular vectors of the future outputs' part that past data explain."""
    horizon, whole = _horizon(rows), []
    for u, y, weight in rows:
        begins = _begins(weight, 2 * horizon)
        place = begins[:, None] + np.arange(2 * horizon)
        before, after = np.split(place, 2, axis=1)
        parts = (u[after], u[before], y[before], y[after])
        constant = np.ones((len(begins), 1))  # an input too: the means need not match the gain
        whole.append(np.concatenate([constant, *(p.reshape(len(begins), -1) for p in parts)], 1))
    lower = np.asarray(np.linalg.qr(np.concatenate(whole), mode="r")).T
    nu, ny = rows[0][0].shape[1], rows[0][1].shape[1]
    inputs, past = 1 + horizon * nu, horizon * (nu + ny)
    left: Array = np.linalg.svd(lower[inputs + past :, inputs : inputs + past])[0]
    return left


def _shifted(
    left: Float[Array, "rows n"], ny: int
) -> tuple[Float[Array, "n n"], Float[Array, "ny n"]]:
    """``A`` and ``C`` of an observability matrix; where a pole runs away, of a stable one.

    A block row of zeros below the shifted matrix makes ``A`` stable (Maciejowski 1995).
    """
    A = np.linalg.lstsq(left[:-ny], left[ny:], rcond=None)[0]
    if np.abs(np.linalg.eigvals(A)).max() > 1.0:
        A = left.T @ np.concatenate([left[ny:], np.zeros((ny, left.shape[1]))])
    return A, left[:ny]


def _fits(rows: Sequence[Rows], orders: Sequence[int]) -> list[Fit]:
    """Models of several orders on the same rows."""
    left, ny = _observability(rows), rows[0][1].shape[1]
    return [_complete(rows, *_shifted(left[:, :order], ny)) for order in orders]


def _complete(rows: Sequence[Rows], A: Array, C: Array) -> Fit:
    """``B``, ``D``, the offset and the first states by least squares."""
    n, nu, ny, records = len(A), rows[0][0].shape[1], len(C), len(rows)
    blocks = []
    for k, (u, _, _) in enumerate(rows):
        response = _powers(A, C, len(u))
        driven = fftconvolve(response[:, :, None, :], u[:, None, :, None], axes=0)[: len(u)]
        driven = np.concatenate([np.zeros((1, ny, nu, n)), driven[:-1]])
        direct = np.einsum("tj,yz->tyjz", u, np.eye(ny))
        first = np.zeros((len(u), ny, records, n))
        first[:, :, k] = response
        offset = np.broadcast_to(np.eye(ny), (len(u), ny, ny))
        columns = (v.reshape(len(u), ny, -1) for v in (driven, direct, offset, first))
        blocks.append(np.concatenate([*columns], axis=2))
    regressors = np.concatenate(blocks)
    seen = np.concatenate([weight > 0 for _, _, weight in rows])
    wanted = np.concatenate([y for _, y, _ in rows])[seen].ravel()
    few = regressors[seen].reshape(len(wanted), -1)
    hold = np.eye(few.shape[1])[-records * n :] * HOLD
    both = np.concatenate([few, hold]), np.concatenate([wanted, np.zeros(len(hold))])
    found = np.linalg.lstsq(*both, rcond=None)[0]
    B, D, c, first = np.split(found, np.cumsum([nu * n, nu * ny, ny]))
    return Fit(
        A,
        B.reshape(nu, n).T,
        C,
        D.reshape(nu, ny).T,
        c,
        first.reshape(records, n),
        regressors @ found,
    )


def _powers(A: Float[Array, "n n"], C: Float[Array, "ny n"], count: int) -> Float[Array, "T ny n"]:
    """``C``, ``C A``, ``C A²``, …"""
    found, power = C[None], A
    while len(found) < count:
        found, power = np.concatenate([found, found @ power]), power @ power
    return found[:count]
