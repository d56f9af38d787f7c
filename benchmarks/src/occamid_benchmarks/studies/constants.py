"""What constants of the families are worth: ``python -m occamid_benchmarks.studies.constants``.

Every constant of ``CASES`` is halved and doubled (or changed, where it is no number), and the
families that it concerns are heard once more in the folds of the suite's *estimation* data; no test
record is read.  ``RECORD …`` measures these records and writes ``constants/RECORD.json`` among the
results; without one the table of docs/accuracy.md is printed from what is there: held-back error
over that of the constant as it is, the geometric mean over the records and the extremes.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from occamid.errors import DataError
from occamid.identification import assemble, dead_time, families
from occamid.identification.assemble import Workshop
from occamid.identification.families import Family
from occamid.identification.folds import Fold, folds
from occamid.identification.hearing import miss_of
from occamid.identification.options import Options
from occamid.training.cores import side_by_side, small_algebra
from occamid.training.provenance import provenance
from occamid_benchmarks import RESULTS
from occamid_benchmarks.suite import records as suite
from occamid_benchmarks.suite.measure import put

FOLDER = RESULTS / "constants"
LAGGED = ("curved", "curved-refined")
MOVED = ("arx", "subspace", "linear", "curved", "state-space-linear")


class Change(NamedTuple):
    """Another value of a constant: a name in a module, or settings of the families."""

    value: str
    module: Any = None
    name: str = ""
    to: Any = None
    settings: Callable[[Family], dict[str, Any]] | None = None


class Case(NamedTuple):
    """A constant, the families it concerns, and what it is changed to."""

    constant: str
    concerns: tuple[str, ...]
    changes: tuple[Change, ...]


def _scaled(factor: float) -> Callable[[Family], dict[str, Any]]:
    def changed(family: Family) -> dict[str, Any]:
        assert family.settings is not None
        return {"lam": tuple(factor * v for v in family.settings.lam)}

    return changed


CASES = (
    Case("lags of `response`, 50 at most", ("response",), (
        Change("25", families, "LONGEST_RESPONSE", 25),
        Change("100", families, "LONGEST_RESPONSE", 100),
    )),
    Case("output lags of `curved`, 10", LAGGED, (
        Change("5", families, "OUTPUT_LAGS", 5),
        Change("20", families, "OUTPUT_LAGS", 20),
    )),
    Case("units of `curved`, 10", LAGGED, (
        Change("5", families, "UNITS", 5),
        Change("20", families, "UNITS", 20),
    )),
    Case("activation of `curved`, tanh", LAGGED, (
        Change("relu", settings=lambda _: {"activation": "relu"}),
    )),
    Case("activation of `response`, relu", ("response",), (
        Change("tanh", settings=lambda _: {"activation": "tanh"}),
    )),
    Case("λ of every trained family", ("linear", "response", *LAGGED), (
        Change("half", settings=_scaled(0.5)),
        Change("double", settings=_scaled(2.0)),
    )),
    Case("tolerance of the score, 10 %", ("linear", "response", *LAGGED), (
        Change("5 %", settings=lambda _: {"tolerance": 0.05}),
        Change("20 %", settings=lambda _: {"tolerance": 0.2}),
    )),
    Case("an input is moved where the probability of its effect is 0.1", MOVED, (
        Change("0.05", dead_time, "FAINT", 0.05),
        Change("0.2", dead_time, "FAINT", 0.2),
        Change("0.9", dead_time, "FAINT", 0.9),
    )),
    Case("delays that are moved, 5 samples and more", MOVED, (
        Change("2", dead_time, "LONG", 2),
        Change("10", dead_time, "LONG", 10),
        Change("never", dead_time, "LONG", 10**9),
    )),
    Case("rows left where inputs are moved, 0.75", MOVED, (
        Change("0.5", dead_time, "WORTH", 0.5),
        Change("0.9", dead_time, "WORTH", 0.9),
    )),
    Case("members kept, within 1.5 × the median error", ("response", *LAGGED, "state-space"), (
        Change("1.25", assemble, "WORST", 1.25),
        Change("3", assemble, "WORST", 3.0),
    )),
)  # fmt: skip


@contextmanager
def _as(change: Change) -> Iterator[None]:
    if change.module is None:
        yield
    else:
        dead_time.forget()
        with patch.object(change.module, change.name, change.to):
            yield
        dead_time.forget()


def error(fold: Fold, name: str, change: Change, given: int) -> float:
    """Mean square of a family's held-back errors in one fold, in standard deviations."""
    options = Options()
    budget = options.budget.for_folds()
    shop = Workshop.of(fold.lesson, options, budget, room=fold.shape)
    own = {f.name: f for f in families.every_family(options, shop.records, given)}
    if name not in own:
        return np.nan
    family = own[name]
    if change.settings is not None and family.settings is not None:
        family = replace(family, settings=family.settings.replace(**change.settings(family)))
    try:
        model = shop.model(family)
    except DataError:
        return np.nan
    misses = [miss_of(model, part) / model.first.scaling.y_std for part in fold.runs]
    return float(np.mean(np.concatenate(misses) ** 2))


@small_algebra()
def measure(record: str) -> None:
    """Held-back errors of every case, written down one by one; a family as it is is heard once."""
    data = suite.load(record).estimation
    options, given = Options(), sum(map(len, data))
    held = folds(data, options.budget.folds)

    def heard(name: str, change: Change) -> float:
        with _as(change):
            jobs = [partial(error, fold, name, change, given) for fold in held]
            return float(np.sqrt(np.mean(side_by_side(jobs))))

    usual: dict[str, float] = {}
    changed: dict[str, dict[str, dict[str, float]]] = {}
    found = {"record": record, "usual": usual, "changed": changed, "seed": 0, **provenance()}
    for case in CASES:
        for name in case.concerns:
            if name not in usual:
                usual[name] = heard(name, Change("as it is"))
        for change in case.changes:
            errors = {name: heard(name, change) for name in case.concerns}
            changed.setdefault(case.constant, {})[change.value] = errors
            print(record, case.constant, change.value, errors, flush=True)
        put(found, FOLDER / f"{record}.json")


def table() -> str:
    """Markdown, of what is there."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    lines = ["| constant | instead | family | error over that as it is | smallest | largest |"]
    lines.append("|---|---|---|---|---|---|")
    for case in CASES:
        for change in case.changes:
            for name in case.concerns:
                ratios = {}
                for r in results:
                    usual = r["usual"].get(name)
                    other = r["changed"].get(case.constant, {}).get(change.value, {}).get(name)
                    if usual and other:  # a family may be too long for a record
                        ratios[r["record"]] = other / usual
                if not ratios:
                    continue
                low, high = (f(ratios, key=lambda k: ratios[k]) for f in (min, max))
                mean = np.exp(np.mean(np.log(list(ratios.values()))))
                lines.append(
                    f"| {case.constant} | {change.value} | {name} | {mean:.2f} | "
                    f"{ratios[low]:.2f} {low} | {ratios[high]:.2f} {high} |"
                )
    return "\n".join(lines)


def main(records: list[str]) -> None:
    for record in records:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measure(record)
    if not records:
        print(table())


if __name__ == "__main__":
    main(sys.argv[1:])
