"""Where the seconds of an identification go: by family, and how much of them is compiling."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import NamedTuple

import jax.monitoring

from occamid.identification.identify import identify
from occamid.identification.progress import Stage
from occamid.training.cores import limited
from occamid_benchmarks.suite import records

COMPILED = "/jax/core/compile/backend_compile_duration"


class Share(NamedTuple):
    """One line of a profile: processor seconds, how many went into compiling, and programs."""

    what: str
    seconds: float
    compiling: float
    programs: int


class _Meter:
    """Adds up processor time and compilations between two calls of the progress."""

    def __init__(self) -> None:
        self.now = "reading"
        self.began = time.process_time()
        self.found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    def compiled(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            self.found[self.now][1] += duration_secs
            self.found[self.now][2] += 1

    def stage(self, stage: Stage) -> None:
        here = re.sub(r"^fold \d+( of \d+)?", "folds", stage.what)
        if here != self.now:
            ended = time.process_time()
            self.found[self.now][0] += ended - self.began
            self.now, self.began = here, ended


def profile(name: str, effort: str, seed: int = 0) -> list[Share]:
    """An identification of a record of the suite on one core; the longest stages first."""
    case = records.load(name)
    meter = _Meter()
    jax.monitoring.register_event_duration_secs_listener(meter.compiled)
    try:
        with limited(1):  # one stage after the other
            identify(case.estimation, effort=effort, seed=seed, progress=meter.stage)
        meter.stage(Stage("end", 1.0, 0.0))
    finally:
        jax.monitoring.unregister_event_duration_listener(meter.compiled)
    shares = [Share(what, s, c, int(n)) for what, (s, c, n) in meter.found.items()]
    return sorted(shares, key=lambda share: -share.seconds)
