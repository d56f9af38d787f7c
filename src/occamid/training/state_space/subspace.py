"""Linear state-space models by projection alone: PO-MOESP (Verhaegen 1994), all orders at once.

Future outputs are projected on past data along future inputs; the leading left singular vectors
are the observability matrix, whose shift invariance gives ``A`` and ``C``.  The outputs of a free
run are then linear in ``B``, ``D``, the offsets and the first states: one least squares.  Nothing
is iterated, so nothing gets stuck, and many states cost little.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.signal import fftconvolve

from occamid.errors import DataError
from occamid.training.state_space.start import Rows, excerpt

Array = np.ndarray
TURNS = 10  # in which rows are held back to compare orders
HOLD = 0.03  # how much first states are drawn to zero, which blanked first rows cannot tell
AS_GOOD = 1.02  # times the smallest error: a smaller order is taken
ROWS = 50_000  # that are looked at, in pieces of every record
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


def subspace(rows: Sequence[Rows], order: int, offset: bool = True) -> Fit:
    """A model of this order; of long records pieces are looked at."""
    pieces = _pieces(rows)
    few = list(chain(*pieces))
    horizon = _horizon(few, order)
    if order >= horizon:
        raise DataError(f"the records allow subspace models of order {horizon - 1} at most")
    fit = _fits(few, (order,), horizon, offset)[0]
    begins = np.cumsum([0, *map(len, pieces[:-1])])  # the first piece of every record
    return fit._replace(first=fit.first[begins])


def best_order(rows: Sequence[Rows], orders: Sequence[int], offset: bool = True) -> int:
    """The smallest order about as good as the best in free runs through rows held back in turn."""
    few = list(chain(*_pieces(rows)))
    horizon = min((_horizon(left, max(orders)) for left, _ in _turns(few)), default=1)
    possible = [n for n in orders if n < horizon] or [min(orders)]
    if len(possible) == 1:
        return possible[0]
    squares = held_back_squares(few, possible, horizon, offset)
    return possible[int(np.argmax(squares <= AS_GOOD**2 * np.min(squares)))]


def held_back_squares(
    rows: Sequence[Rows], orders: Sequence[int], horizon: int, offset: bool = True
) -> Float[Array, " n"]:
    """Mean square, for every order, of free runs through rows that were held back in turn."""
    squares, count = np.zeros(len(orders)), 0
    for left, held in _turns(rows):
        y = np.concatenate([y for _, y, _ in rows])[held]
        with np.errstate(all="ignore"):
            fits = _fits(left, orders, horizon, offset)
            squares += [np.sum((fit.outputs[held] - y) ** 2) for fit in fits]
        count += y.size
    return np.where(np.isfinite(squares), squares, np.inf) / max(count, 1)


def _pieces(rows: Sequence[Rows]) -> list[list[Rows]]:
    """What is looked at of every record."""
    share = min(1.0, ROWS / sum(len(u) for u, _, _ in rows))
    return [excerpt([row], int(share * len(row[0]))) for row in rows]


def _turns(rows: Sequence[Rows]) -> list[tuple[list[Rows], Bool[Array, " T"]]]:
    """The rows without some that are held back, and which those are.

    Without its first rows a run has no beginning, so they are never held back.
    """
    found = []
    for turn in range(1, TURNS):
        held = [_turn(weight, turn) for _, _, weight in rows]
        left = [(u, y, np.where(h, 0.0, w)) for (u, y, w), h in zip(rows, held, strict=True)]
        if np.any(here := np.concatenate(held)):
            found.append((left, here))
    return found


def _turn(weight: Float[Array, " T"], turn: int) -> Bool[Array, " T"]:
    """Rows of a record that are held back in a turn."""
    return (np.arange(len(weight)) * TURNS // len(weight) == turn) & (weight > 0)


def _horizon(rows: Sequence[Rows], order: int) -> int:
    """As many block rows as there are twice as many windows as numbers in one."""
    u, y, _ = rows[0]
    channels, longest = u.shape[1] + y.shape[1], max(HORIZON, order + 1)
    fitting = [h for h in range(2, longest + 1) if _count(rows, 2 * h) >= 4 * h * channels]
    return max(fitting, default=1)


def _count(rows: Sequence[Rows], length: int) -> int:
    return sum(len(_begins(weight, length)) for _, _, weight in rows)


def _begins(weight: Float[Array, " T"], length: int) -> Array:
    """Where windows of rows begin that are all looked at."""
    blank = np.concatenate([[0], np.cumsum(weight <= 0)])
    return np.flatnonzero(blank[length:] == blank[:-length]) if len(weight) >= length else blank[:0]


def _observability(rows: Sequence[Rows], horizon: int) -> Float[Array, "h*ny h*ny"]:
    """Left singular vectors of the future outputs' part that past data explain."""
    whole = []
    for u, y, weight in rows:
        begins = _begins(weight, 2 * horizon)
        place = begins[:, None] + np.arange(2 * horizon)
        before, after = np.split(place, 2, axis=1)
        parts = (u[after], u[before], y[before], y[after])
        constant = np.ones((len(begins), 1))  # an input too: the means need not match the gain
        whole.append(
            np.concatenate([constant, *(p.reshape(len(p), horizon * p.shape[2]) for p in parts)], 1)
        )
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


def _fits(rows: Sequence[Rows], orders: Sequence[int], horizon: int, offset: bool) -> list[Fit]:
    """Models of several orders on the same rows."""
    left, ny = _observability(rows, horizon), rows[0][1].shape[1]
    return [_complete(rows, *_shifted(left[:, :order], ny), offset) for order in orders]


def _complete(rows: Sequence[Rows], A: Array, C: Array, offset: bool) -> Fit:
    """``B``, ``D``, an offset and the first states by least squares.

    What a record's first state explains is left out before all records tell the rest.
    """
    n, nu, ny = len(A), rows[0][0].shape[1], len(C)
    systems = [_system(row, A, C, offset) for row in rows]
    parts, whole = [], []
    for first, rest, seen in systems:
        basis, R = np.linalg.qr(np.concatenate([first[seen].reshape(-1, n), HOLD * np.eye(n)]))
        own = np.pad(rest[seen].reshape(-1, rest.shape[2]), ((0, n), (0, 0)))
        by_first = basis.T @ own
        parts.append(np.linalg.solve(R, by_first))
        whole.append(own - basis @ by_first)
    stacked = np.concatenate(whole)
    found = np.linalg.lstsq(stacked[:, :-1], stacked[:, -1], rcond=None)[0]
    states = [part[:, -1] - part[:, :-1] @ found for part in parts]
    outputs = [
        rest[..., :-1] @ found + first @ state
        for (first, rest, _), state in zip(systems, states, strict=True)
    ]
    B, D, c = np.split(np.pad(found, (0, 0 if offset else ny)), np.cumsum([nu * n, nu * ny]))
    B, D = B.reshape(nu, n).T, D.reshape(nu, ny).T
    return Fit(A, B, C, D, c, np.stack(states), np.concatenate(outputs))


def _system(
    row: Rows, A: Array, C: Array, offset: bool
) -> tuple[Float[Array, "T ny n"], Float[Array, "T ny k"], Bool[Array, " T"]]:
    """What the first state, and ``B``, ``D`` and an offset, do; last the outputs; rows seen."""
    u, y, weight = row
    n, nu, ny = len(A), u.shape[1], len(C)
    response = _powers(A, C, len(u))
    driven = fftconvolve(response[:, :, None, :], u[:, None, :, None], axes=0)[: len(u)]
    driven = np.concatenate([np.zeros((1, ny, nu, n)), driven[:-1]])
    direct = np.einsum("tj,yz->tyjz", u, np.eye(ny))
    one = np.broadcast_to(np.eye(ny), (len(u), ny, ny))
    parts = (driven, direct, one, y) if offset else (driven, direct, y)
    columns = (v.reshape(len(u), ny, -1) for v in parts)
    return response, np.concatenate([*columns], axis=2), weight > 0


def _powers(A: Float[Array, "n n"], C: Float[Array, "ny n"], count: int) -> Float[Array, "T ny n"]:
    """``C``, ``C A``, ``C A²``, …"""
    found, power = C[None], A
    while len(found) < count:
        found, power = np.concatenate([found, found @ power]), power @ power
    return found[:count]
