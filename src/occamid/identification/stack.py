"""Families together: shares that make the error of their mean on held-back data small.

Where no family is right, each errs in its own way and the mean of several errs less.  The shares s
are not negative, add up to one and minimise ``sᵀ G s + r |s − s₀|²``: G holds the families' mean
products of held-back errors, s₀ is what their errors alone would give (one over the mean square),
r a share of the best mean square, because a few folds do not tell G well.  What such a stack is
worth is judged on every fold with shares from the other folds, against the family that the other
folds would have chosen: a family that is best on all folds was chosen with the help of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import nnls

from occamid.bands.ensemble import Beside, Ensemble
from occamid.identification.families import Family
from occamid.identification.hearing import Hearing, mean_square, pieces_of
from occamid.identification.referee import PRICE, choose

Array = np.ndarray
FEWEST_FOLDS = 3
BEHIND = 2.0  # times the smallest error: such a family gets no share
PULL = 0.3  # r in units of the smallest mean square
LEAST = 0.15  # a smaller share is not worth a family
FIRM = 1e4  # weight of the sum of the shares against the errors


class Stack(NamedTuple):
    """Families and their shares, the leading one first, and how they did together."""

    shares: dict[str, float]
    hearing: Hearing
    gain: float  # by what factor its error is smaller than that of one family, chosen likewise

    @property
    def grounds(self) -> str:
        """A sentence for people."""
        parts = [f"{share:.0%} {name}" for name, share in self.shares.items()]
        return (
            f"a stack of {', '.join(parts[:-1])} and {parts[-1]} errs {1 - 1 / self.gain:.0%} less "
            "on held-back data than the family that other folds would have chosen"
        )


def stacked(
    tried: Sequence[Family],
    heard: Mapping[str, Hearing],
    leading: str,
    spread: Float[Array, " ny"],
) -> Stack | None:
    """The leading family with others beside it, where that is worth more than simplicity."""
    where = [fold for _, fold in heard[leading].models]
    same = [
        n
        for n, h in heard.items()
        if all(f is g for (_, f), g in zip(h.models, where, strict=True))
    ]
    names = [leading, *(name for name in same if name != leading)]
    folds = len(where)
    if len(names) < 2 or folds < FEWEST_FOLDS:
        return None
    products = np.stack([_products(heard, names, k, spread) for k in range(folds)])
    together, alone = Hearing(), Hearing()
    for k in range(folds):
        shares = shares_of(np.sum(np.delete(products, k, axis=0), axis=0))
        models = [heard[name].models[k][0] for name in names]
        together.models.append((beside(models, shares), where[k]))
        each = [heard[name].misses[k] for name in names]
        together.misses.append(
            [np.tensordot(shares, parts, axes=1) for parts in zip(*each, strict=True)]
        )
        one, _ = choose(tried, {name: _without(heard[name], k) for name in names}, spread)
        alone.misses.append(heard[one].misses[k])
    gain = np.sqrt(mean_square(pieces_of(alone, spread)) / mean_square(pieces_of(together, spread)))
    shares = shares_of(np.sum(products, axis=0))
    shares[0] = max(shares[0], LEAST)
    if gain < PRICE or shares[0] > 1 - LEAST:
        return None
    kept = {n: float(s / shares.sum()) for n, s in zip(names, shares, strict=True) if s > 0}
    return Stack(kept, together, float(gain))


def _without(hearing: Hearing, fold: int) -> Hearing:
    return Hearing(misses=hearing.misses[:fold] + hearing.misses[fold + 1 :])


def beside(models: list[Ensemble], shares: Float[Array, " m"]) -> Ensemble:
    """The first ensemble with the others beside it."""
    others = [
        Beside(m, float(s)) for m, s in zip(models[1:], shares[1:] / shares.sum(), strict=True) if s
    ]
    return replace(models[0], beside=tuple(others))


def shares_of(G: Float[Array, "m m"]) -> Float[Array, " m"]:
    """The shares that minimise ``sᵀ G s + r |s − s₀|²``; the smallest leave, one by one."""
    squares = np.diag(G)
    kept = np.flatnonzero(squares <= BEHIND**2 * squares.min())
    found = _of_all(G[np.ix_(kept, kept)] / squares.min())
    while found.min() < LEAST:
        kept = np.delete(kept, np.argmin(found))
        found = _of_all(G[np.ix_(kept, kept)] / squares.min())
    shares = np.zeros(len(G))
    shares[kept] = found
    return shares


def _of_all(H: Float[Array, "m m"]) -> Float[Array, " m"]:
    """The shares of families that are all kept; one is the smallest mean square."""
    usual = 1 / np.diag(H)
    usual /= usual.sum()
    R = np.linalg.cholesky(H + PULL * np.eye(len(H))).T
    target = np.linalg.solve(R.T, PULL * usual)
    rows, values = np.vstack([R, np.full(len(H), FIRM)]), np.append(target, FIRM)
    found: Array = nnls(rows, values)[0]
    return found / found.sum()


def _products(
    heard: Mapping[str, Hearing], names: list[str], fold: int, spread: Float[Array, " ny"]
) -> Float[Array, "m m"]:
    """Sums over a fold's rows of the products of two families' errors, in standard deviations."""
    errors = np.stack([np.concatenate(heard[name].misses[fold]) / spread for name in names])
    flat = errors.reshape(len(names), -1)
    return flat @ flat.T
