"""The trials of a search: error against size, which of them are the front, which is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from occamid.errors import DataError, SettingsError
from occamid.identification.hearing import difference
from occamid.identification.referee import PRICE

Pick = int | str
SIMPLEST, BEST = "simplest", "best"


class Tried(NamedTuple):
    """One trial on held-back data."""

    number: int
    state: str  # finished, pruned or failed
    knobs: dict[str, Any]  # what it tried, as Options name it
    score: float  # over all outputs, in standard deviations; of the folds heard
    rmse: tuple[float, ...]  # per output, in the user's units
    size: int  # live parameters, median over the folds
    folds: int  # that it was heard in
    seconds: float
    why: str = ""  # it failed
    pieces: tuple[tuple[float, ...], ...] = ()  # mean squares and rows, as the referee has them

    @property
    def finished(self) -> bool:
        """Whether it was heard in every fold."""
        return self.state == "finished"


def front(trials: Sequence[Tried]) -> tuple[Tried, ...]:
    """The finished trials to which no other is both smaller and better, the smallest first."""
    found: list[Tried] = []
    for trial in sorted(_finished(trials), key=lambda t: (t.size, t.score, t.number)):
        if not found or trial.score < found[-1].score:
            found.append(trial)
    return tuple(found)


def best(trials: Sequence[Tried]) -> Tried:
    """The smallest error."""
    found = _finished(trials)
    if not found:
        why = next((t.why for t in reversed(trials) if t.why), "none was begun")
        raise DataError(f"no trial was finished ({why}); give more `trials`, or more data.")
    return min(found, key=lambda t: (t.score, t.size, t.number))


def simplest(trials: Sequence[Tried]) -> Tried:
    """The smallest model within one standard error of the best, and of :data:`PRICE`.

    As the referee prefers the simpler kind: squared errors are compared piece by piece.
    """
    top = best(trials)
    near = [t for t in _finished(trials) if _as_good(t, top)]
    return min(near, key=lambda t: (t.size, t.score, t.number))


def _as_good(trial: Tried, top: Tried) -> bool:
    if trial.number == top.number:
        return True
    mean, error = difference(np.array(trial.pieces), np.array(top.pieces))
    return mean <= error and trial.score <= PRICE * top.score


def picked(trials: Sequence[Tried], pick: Pick) -> Tried:
    """The trial to take: the simplest that is as good as the best, the best, or one by number."""
    if pick == SIMPLEST:
        return simplest(trials)
    if pick == BEST:
        return best(trials)
    found = [t for t in _finished(trials) if t.number == pick]
    if not found:
        known = ", ".join(str(t.number) for t in front(trials)) or "empty"
        raise SettingsError(
            f"`pick`: trial {pick} is none that was finished; the front is {known}."
        )
    return found[0]


def checked(pick: Any) -> Pick:
    """What can be picked, or how to say it."""
    text = str(pick)
    if isinstance(pick, bool) or not (text in (SIMPLEST, BEST) or text.isdecimal()):
        raise SettingsError(
            f"`pick` is {SIMPLEST}, {BEST} or the number of a trial (got {pick!r})."
        )
    return int(text) if text.isdecimal() else text


def grounds(trial: Tried, trials: Sequence[Tried]) -> str:
    """Why it was taken, for people."""
    top, count = best(trials), len(trials)  # numbers begin with 0
    said = f"of {count} trials number {trial.number} has {trial.size} parameters, an error of "
    said += f"{trial.score:.4g} standard deviations on held-back data"
    if trial.number == top.number:
        return f"{said}, the smallest of all"
    if trial.number == simplest(trials).number:
        return (
            f"{said}; within one standard error it is as good as the best, trial {top.number} "
            f"({top.score:.4g} with {top.size} parameters)"
        )
    return f"{said}; it was asked for"


def _finished(trials: Sequence[Tried]) -> list[Tried]:
    return [t for t in trials if t.finished and np.isfinite(t.score)]
