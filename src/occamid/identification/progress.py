"""How far an identification is, for a bar that people look at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Counted(Protocol):
    """Anything that says how many of how many steps are done."""

    @property
    def done(self) -> int:
        """Steps behind."""

    @property
    def total(self) -> int:
        """Steps in all."""


class Stage(NamedTuple):
    """Where the automatic mode stands."""

    what: str
    share: float  # of the whole work, 0 to 1
    seconds: float


class Part:
    """Progress of one training, a share of the whole."""

    def __init__(self, clock: Clock, what: str) -> None:
        self._clock, self._what, self.done = clock, what, 0.0

    def __call__(self, step: Counted) -> None:
        """Some steps are done."""
        self.done = step.done / step.total
        self._clock.tell(self._what)

    def close(self) -> None:
        """All steps are."""
        self.done = 1.0


class Clock:
    """Turns the progress of many trainings, some of them at the same time, into one."""

    def __init__(self, progress: Callable[[Stage], None] | None, trainings: int = 0) -> None:
        self._progress = progress
        self._began = time.perf_counter()
        self._total = trainings + 2  # the last training counts twice
        self._parts: list[Part] = []
        self._lock = threading.Lock()

    def sub(self, what: str) -> Part:
        """Progress of one more training."""
        part = Part(self, what)
        with self._lock:
            self._parts.append(part)
        self.tell(what)
        return part

    def more(self, trainings: int) -> None:
        """Further trainings are to come."""
        self._total += trainings

    def fewer(self, trainings: int) -> None:
        """Some trainings will not be."""
        self._total -= trainings

    def tell(self, what: str) -> None:
        """Say what goes on."""
        if self._progress:
            with self._lock:
                done = sum(part.done for part in self._parts)
                share = min(1.0, done / self._total) if self._total else 1.0
                self._progress(Stage(what, share, time.perf_counter() - self._began))

    def __reduce__(self) -> tuple[type[Clock], tuple[None, int]]:
        """In another process there is nobody to tell."""
        return Clock, (None, 0)

    def finish(self) -> None:
        """All is done."""
        self._total = 0
        self.tell("done")
