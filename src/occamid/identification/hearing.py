"""What a family says in the folds: free runs through held-back parts, their errors in pieces."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble
from occamid.identification.folds import Fold, Part

Array = np.ndarray
PIECES = 6  # in which the errors of a held-back part are averaged
SHORTEST_PIECE = 20  # rows
WORST_ERROR = 100.0  # standard deviations: an error beyond counts as this, so that means exist


@dataclass
class Hearing:
    """What a family said in the folds: its models, its errors in all parts of each.

    The errors are those over rows that every family is judged on.
    """

    models: list[tuple[Ensemble, Fold]] = field(default_factory=list)
    misses: list[list[Float[Array, "T ny"]]] = field(default_factory=list)
    seconds: float = 0.0
    failed: str = ""
    hopeless: bool = False

    @property
    def parameters(self) -> float:
        """How many its models have, the mean over the folds."""
        return float(np.mean([m.parameters_in_all for m, _ in self.models])) if self.models else 0.0


def as_used(model: Ensemble, part: Part) -> Part:
    """A held-back part as a user's run begins: after the first outputs that the model asks for.

    More of them would tell a hidden state better than it will be known.  All rows are known
    where fewer than two would be left: such a part says nothing about the model.
    """
    more = max(0, part.known - model.window)
    record = part.record[more:] if more else part.record
    return Part(record, model.window if model.window + 2 <= len(record) else len(record))


def miss_of(model: Ensemble, part: Part) -> Float[Array, "T ny"]:
    """Errors of the free run through a held-back part after what it may know, perhaps none."""
    record, known = as_used(model, part)
    if known == len(record):
        return np.zeros((0, record.y.shape[1]))
    with np.errstate(all="ignore"):
        miss = (model.free_run(record.u, record.y[:known]) - record.y)[known:]
    worst = WORST_ERROR * model.first.scaling.y_std
    return np.clip(np.nan_to_num(miss, nan=np.inf), -worst, worst)


def pieces_of(hearing: Hearing, spread: Float[Array, " ny"]) -> Float[Array, "2 pieces"]:
    """Mean square of every piece over all outputs in squared standard deviations, and its rows."""
    squares, rows = squares_of(hearing)
    return np.stack([np.mean(squares / spread**2, axis=1), rows])


def squares_of(
    hearing: Hearing,
) -> tuple[Float[Array, "pieces ny"], Float[Array, " pieces"]]:
    """Mean square of every piece, per output, and its rows."""
    pieces = [
        piece
        for part in itertools.chain.from_iterable(hearing.misses)
        for piece in np.array_split(part, max(1, min(PIECES, len(part) // SHORTEST_PIECE)))
    ]
    squares = np.stack([np.mean(piece**2, axis=0) for piece in pieces])
    return squares, np.array([len(piece) for piece in pieces], dtype=float)


def rmse_of(hearing: Hearing) -> Float[Array, " ny"]:
    """The error over all pieces, per output, in the user's units."""
    squares, rows = squares_of(hearing)
    found: Array = np.sqrt(rows @ squares / rows.sum())
    return found


def mean_square(piece: Float[Array, "2 pieces"]) -> float:
    """Over all pieces of one family."""
    squares, rows = piece
    return float(rows @ squares / rows.sum())


def difference(
    one: Float[Array, "2 pieces"], other: Float[Array, "2 pieces"]
) -> tuple[float, float]:
    """Mean difference of two families' squared errors and its standard error.

    Pieces are paired; neighbours may be correlated, which widens the error by
    ``sqrt((1 + ρ)/(1 − ρ))`` for the correlation ρ of one with the next.
    """
    apart, rows = one[0] - other[0], one[1]
    mean = float(rows @ apart / rows.sum())
    n = len(apart)
    if n < 2:
        return mean, abs(mean)
    centred = apart - mean
    variance = float(rows @ centred**2 / rows.sum())
    if variance <= 0:
        return mean, 0.0
    rho = float(np.clip(np.mean(centred[1:] * centred[:-1]) / variance, 0.0, 0.8))
    return mean, float(np.sqrt(variance / (n - 1) * (1 + rho) / (1 - rho)))
