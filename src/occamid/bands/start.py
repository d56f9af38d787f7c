"""What a free run starts from where the record itself does not say it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.bands.mixture import Feedback, Mixture
from occamid.bands.steady import steady_state
from occamid.data.record import Record
from occamid.errors import DataError, check_choice
from occamid.networks import MLP
from occamid.training.model import Model

Array = np.ndarray
Initial = Literal["last", "steady"] | Record
Tail = tuple[Float[Array, "n nu"], Float[Array, "n ny"]]
WARM_UP = 200  # rows at rest on which hidden states come to rest, too
SHORTEST_TAIL = 100  # rows that are kept of the estimation data's end: a state warms up on them


class Before(NamedTuple):
    """Known outputs before a run, with their inputs where those are not the record's own.

    ``doubt`` is a factor of the outputs' covariance in scaled units where they are a guess.
    """

    y: Float[Array, "n ny"]
    u: Float[Array, "n nu"] | None = None
    doubt: Float[Array, "ny d"] | None = None


def before(
    like: Model,
    mixture: Mixture,
    tail: Tail | None,
    u: Float[Array, "N nu"],
    initial: Initial,
    feedback: Feedback,
) -> Before:
    """What came before the first of the inputs ``u``."""
    if isinstance(initial, Record):
        like.check([initial])
        return Before(initial.y, initial.u)
    check_choice("initial", initial, ("last", "steady"))
    if initial == "last" and tail is None:
        raise DataError(
            "the model does not hold the end of its estimation data (it was made by an earlier "
            "version, or by hand); start from measured rows, or identify again."
        )
    if initial == "last":
        assert tail is not None
        return Before(tail[1], tail[0])
    scaling = like.scaling
    rows = max(1, like.start) + (0 if isinstance(like.network, MLP) else WARM_UP)
    at = scaling.apply_u(u[:1])[0]
    rest = steady_state(like.network, like.terms, mixture, at, feedback)
    y = np.tile(scaling.undo_y(rest.y), (rows, 1))
    return Before(y, np.repeat(u[:1], rows, axis=0), rest.doubt)


def tail_of(records: tuple[Record, ...], start: int) -> Tail:
    """The last inputs and outputs of the last record: the initial window and some more."""
    rows = max(2 * start, SHORTEST_TAIL)
    return records[-1].u[-rows:], records[-1].y[-rows:]
