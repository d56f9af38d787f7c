"""Trials of a search without training: a hearing whose error and size follow from the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from occamid import DataError, Options, Record
from occamid.bands.combine import combine
from occamid.identification.families import Family
from occamid.identification.folds import Fold
from occamid.identification.hearing import Hearing
from occamid.identification.identify import Fit
from occamid.identification.search import search as searches
from tests.support.linear_model import linear_model, linear_posterior

Error = Callable[[Options, int], float]


def by_lags(options: Options, fold: int) -> float:
    """An error that falls with the lags and has a share of its own for every fold."""
    if options.network == "state-space":
        return 1.0 + 0.01 * fold + 0.1 / (options.order or 1)
    assert isinstance(options.input_lags, int)
    return 0.5 + 0.01 * fold + 1.0 / options.input_lags


class Stage:
    """What takes the place of the referee's hearing and of the last fit; it counts the folds."""

    def __init__(self, error: Error = by_lags) -> None:
        self.error, self.calls = error, 0
        self.fitted: list[Options] = []

    def hear(
        self, fold: Fold, where: str, options: Options, hearings: dict[str, Hearing], *_: Any,
        widest: int = 0,
    ) -> None:  # fmt: skip
        self.calls += 1
        (hearing,) = hearings.values()
        error = self.error(options, len(hearing.models))
        if not np.isfinite(error):
            hearing.failed = f"{where}: {DataError('no model is usable')}"
            return
        size = 10 * (options.order or 0) + sum(options.hidden or ())
        hearing.models.append((SimpleNamespace(parameters=size), fold))  # type: ignore[arg-type]
        wobble = 1 + 0.1 * np.cos(np.arange(4.0))
        hearing.misses.append([np.repeat(error * np.sqrt(wobble), 20)[:, None]])

    def identify(self, records: tuple[Record, ...], options: Options, **_: Any) -> Fit:
        self.fitted.append(options)
        model = replace(combine([linear_posterior(linear_model())]), candidates=3)
        family = Family(options.network, options.network, "a stand-in")
        return Fit(model, family, (), "", None, records, options, (1.0,), ((0.5, 2.0),))


def on_stage(patch: pytest.MonkeyPatch, error: Error = by_lags) -> Stage:
    """Searches hear this instead of training."""
    stage = Stage(error)
    patch.setattr(searches, "hear", stage.hear)
    patch.setattr(searches, "identify", stage.identify)
    return stage
