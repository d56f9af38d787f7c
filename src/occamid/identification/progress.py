"""How far an identification is, for a bar that people look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from occamid.training.train import Progress


class Stage(NamedTuple):
    """Where the automatic mode stands."""

    what: str
    share: float  # of the whole work, 0 to 1
    seconds: float


class Clock:
    """Turns the progress of many trainings into one: equal shares for folds and the last run."""

    def __init__(self, progress: Callable[[Stage], None] | None, trainings: int) -> None:
        self._progress = progress
        self._began = time.perf_counter()
        self._share = 1.0 / (trainings + 2)  # the last training counts twice
        self._before, self._done = -self._share, 0.0

    def sub(self, what: str) -> Callable[[Progress], None]:
        """Progress of one more training."""
        self._before += self._share
        self._done = self._before
        self.tell(what)

        def step(p: Progress) -> None:
            self._done = self._before + self._share * p.done / p.total
            self.tell(what)

        return step

    def tell(self, what: str) -> None:
        """Say what goes on."""
        if self._progress:
            seconds = time.perf_counter() - self._began
            self._progress(Stage(what, min(1.0, self._done), seconds))

    def finish(self) -> None:
        """All is done."""
        self._done = 1.0
        self.tell("done")
