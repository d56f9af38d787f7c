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
OF_A_KIND = 1.02  # what a stack must gain where no family in it is more flexible than another
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

    def only(
        self, names: list[str], heard: Mapping[str, Hearing], spread: Float[Array, " ny"]
    ) -> Stack | None:
        """The stack of some of its families, if there is one left that gains anything."""
        shares, together = _of(heard, names, spread)
        gain = self.gain * _error(self.hearing, spread) / _error(together, spread)
        return Stack(shares, together, gain) if gain > 1 and len(shares) > 1 else None


def stacked(
    tried: Sequence[Family],
    heard: Mapping[str, Hearing],
    leading: str,
    spread: Float[Array, " ny"],
) -> Stack | None:
    """The leading family with others beside it, where that is worth more than simplicity.

    Of the kinds that are more flexible than the leading one it takes no more than it needs to err
    within :data:`PRICE` of what all of them would.  Families of one kind are no less simple
    together than one of them, and need to gain less.
    """
    where = [fold for _, fold in heard[leading].models]
    same = {
        n: h
        for n, h in heard.items()
        if all(f is g for (_, f), g in zip(h.models, where, strict=True))
    }
    if len(same) < 2 or len(where) < FEWEST_FOLDS:
        return None
    alone = Hearing()
    for k in range(len(where)):
        one, _ = choose(tried, {name: _without(h, k) for name, h in same.items()}, spread)
        alone.misses.append(same[one].misses[k])
    kinds = {f.name: f.kind for f in tried}
    every = list(dict.fromkeys(kinds.values()))
    found = []
    for flexible in range(every.index(kinds[leading]), len(every)):
        others = [n for n in same if n != leading and kinds[n] in every[: flexible + 1]]
        found.append(_of(same, [leading, *others], spread))
    errors = [_error(hearing, spread) for _, hearing in found]
    best = int(np.argmin(errors))
    simplest = next((k for k, e in enumerate(errors) if e <= PRICE * errors[best]), best)
    shares, together = found[simplest]
    gain = _error(alone, spread) / _error(together, spread)
    enough = OF_A_KIND if len({kinds[name] for name in shares}) == 1 else PRICE
    if gain < enough or len(shares) < 2 or shares[leading] > 1 - LEAST:
        return None
    return Stack(shares, together, gain)


def _of(
    heard: Mapping[str, Hearing], names: list[str], spread: Float[Array, " ny"]
) -> tuple[dict[str, float], Hearing]:
    """The shares of these families, and how they did with shares from the other folds."""
    folds = heard[names[0]].models
    products = np.stack([_products(heard, names, k, spread) for k in range(len(folds))])
    together = Hearing()
    for k, (_, fold) in enumerate(folds):
        shares = shares_of(np.sum(np.delete(products, k, axis=0), axis=0))
        together.models.append((beside([heard[n].models[k][0] for n in names], shares), fold))
        each = [heard[name].misses[k] for name in names]
        together.misses.append(
            [np.tensordot(shares, parts, axes=1) for parts in zip(*each, strict=True)]
        )
    shares = shares_of(np.sum(products, axis=0))
    shares[0] = max(shares[0], LEAST)
    kept = {n: float(s / shares.sum()) for n, s in zip(names, shares, strict=True) if s > 0}
    return kept, together


def _error(hearing: Hearing, spread: Float[Array, " ny"]) -> float:
    return float(np.sqrt(mean_square(pieces_of(hearing, spread))))


def _without(hearing: Hearing, fold: int) -> Hearing:
    models, misses = hearing.models, hearing.misses
    return Hearing(models[:fold] + models[fold + 1 :], misses[:fold] + misses[fold + 1 :])


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
