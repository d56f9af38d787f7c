"""Families of established models: linear, process and Gaussian-process, each with its grid.

Each family fits a stated grid of orders, its *candidates*.  :func:`fit` picks one by a criterion
that uses the estimation records alone.  Every fitted model simulates as
:meth:`occamid.training.model.Model.free_run` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from occamid.data.record import Record, as_records
from occamid.errors import DataError, check_choice
from occamid_benchmarks.baselines.gaussian_process import Kernel, fit_gp, scored
from occamid_benchmarks.baselines.output_error import fit_output_error
from occamid_benchmarks.baselines.polynomial import fit_armax, fit_arx
from occamid_benchmarks.baselines.process import Noise, delay_scan, fit_process
from occamid_benchmarks.baselines.subspace import fit_subspace
from occamid_benchmarks.registry import BENCHMARKS

Array = np.ndarray
Fits = Callable[[tuple[Record, ...]], list[Any]]
LARGEST_DELAY = 200  # samples; the heat exchanger's is about 150
ALL_RECORDS = tuple(BENCHMARKS)


class Fitted(Protocol):
    """What every fitted baseline can do."""

    @property
    def criterion(self) -> float:
        """Estimation-side criterion, smaller is better."""
        ...

    @property
    def parameters(self) -> int:
        """Number of free parameters."""
        ...

    @property
    def max_lag(self) -> int:
        """How many first outputs a simulation must know."""
        ...

    def describe(self) -> str:
        """Name and orders."""
        ...

    def free_run(self, u: Float[Array, "N nu"], y_init: Float[Array, ...]) -> Float[Array, "N ny"]:
        """Free run after the known first outputs."""
        ...


@dataclass(frozen=True)
class Baseline:
    """A family of models and the grid of orders it is tried with.

    Args:
        name: slug, such as ``output-error``.
        title: the name in tables.
        records: benchmarks for which the paper has a row of this family.
        fits: all models of the grid, fitted.
    """

    name: str
    title: str
    records: tuple[str, ...]
    fits: Fits

    def candidates(self, records: Record | Iterable[Record]) -> list[Fitted]:
        """A fitted model for every order of the grid, each with its criterion.

        Polynomial, state-space and process models: BIC of the free run over the estimation
        records, ``N log MSE + p log N``, all over the same samples.  Gaussian processes: free-run
        error on the last third of each record, see :func:`~.gaussian_process.held_back`.
        """
        found = as_records(records)
        models = self.fits(found)
        if not models:
            raise DataError(
                f"{self.title}: the records are too short for every order of the grid; "
                "use longer records."
            )
        return models


def fit(name: str, records: Record | Iterable[Record]) -> Fitted:
    """The candidate of a baseline with the smallest estimation-side criterion."""
    check_choice("baseline", name, BASELINES)
    return min(BASELINES[name].candidates(records), key=lambda model: model.criterion)


def bic(model: Fitted, records: Sequence[Record], start: int) -> float:
    """``N Σ log MSE + p log N`` of free runs from sample ``start`` of each record."""
    errors = [(model.free_run(r.u, r.y[:start]) - r.y)[start:] for r in records]
    stacked = np.concatenate(errors)
    spread = np.var(np.concatenate([r.y for r in records]), axis=0)
    mse = np.maximum(np.mean(stacked**2, axis=0), 1e-24 * spread)
    count = len(stacked)
    return float(count * np.sum(np.log(mse)) + model.parameters * np.log(count))


def delays(records: Sequence[Record]) -> tuple[int, ...]:
    """Input delays to try: 1 to 3, and those around the best first-order process."""
    best = {1 + start[0] + near for start in _starts(records)[:1] for near in (-2, -1, 0, 1)}
    return tuple(sorted({1, 2, 3} | {delay for delay in best if delay > 0}))


def _starts(records: Sequence[Record]) -> list[tuple[int, float]]:
    """Delay and time constant at the three deepest minima of the scan, deepest first."""
    if records[0].u.shape[1] != 1 or records[0].y.shape[1] != 1:
        return []
    largest = min(LARGEST_DELAY, min(map(len, records)) // 5)
    errors, constants = delay_scan(records, largest)
    padded = np.concatenate([[np.inf], errors, [np.inf]])
    lowest = np.flatnonzero((padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:]))
    ordered = lowest[np.argsort(errors[lowest])][:3]
    return [(int(d), float(constants[d])) for d in ordered]


def tried(fits: Iterable[Callable[[], Any]], records: Sequence[Record]) -> list[Any]:
    """Fit all, leave out what the records are too short for, and score on common samples."""
    models = []
    for one in fits:
        try:
            models.append(one())
        except DataError as error:
            if "too few" not in str(error):
                raise
    start = max((model.max_lag for model in models), default=0)
    return [replace(model, criterion=bic(model, records, start)) for model in models]


def _arx(records: tuple[Record, ...]) -> list[Any]:
    grid = product(range(1, 7), range(1, 7), delays(records))
    return tried((partial(fit_arx, records, *o) for o in grid), records)


def _armax(records: tuple[Record, ...]) -> list[Any]:
    grid = product(range(1, 5), range(1, 5), (1, 2), delays(records))
    return tried((partial(fit_armax, records, *o) for o in grid if o[0] >= o[2]), records)


def _output_error(records: tuple[Record, ...]) -> list[Any]:
    grid = product(range(1, 4), range(1, 5), delays(records))
    return tried((partial(fit_output_error, records, *o) for o in grid), records)


def _subspace(records: tuple[Record, ...]) -> list[Any]:
    grid = product(range(1, 7), (0, *delays(records)), (10, 20))
    return tried((partial(fit_subspace, records, *o) for o in grid), records)


def _process(noises: tuple[Noise, ...]) -> Fits:
    def fits(records: tuple[Record, ...]) -> list[Any]:
        if records[0].u.shape[1] != 1:
            delay_scan(records, 1)  # says what is wrong
        grid = product(_starts(records), noises)
        return tried((partial(fit_process, records, *o) for o in grid), records)

    return fits


def _gp(kernel: Kernel) -> Fits:
    """Windows of 2 to 20 lags, and where there is a long delay also behind and across it."""

    def fits(records: tuple[Record, ...]) -> list[Any]:
        delay = _starts(records)[0][0] if _starts(records) else 0
        grid = [(lags, lags, 1) for lags in (2, 3, 5, 10, 20)]
        if delay > 5:
            grid += [(lags, lags, delay) for lags in (2, 5)]
        if delay > 20:
            grid.append((delay, delay, 1))
        models = [
            fit_gp(records, kernel, *orders)
            for orders in grid
            if min(map(len, records)) > 3 * (orders[1] + orders[2])
        ]
        return [scored(model, records) for model in models]

    return fits


BASELINES: dict[str, Baseline] = {
    b.name: b
    for b in (
        Baseline("arx", "ARX", ("hairdryer", "glass-tube"), _arx),
        Baseline("armax", "ARMAX", ("hairdryer",), _armax),
        Baseline(
            "output-error",
            "Transfer function (output error)",
            ("hairdryer", "heat-exchanger"),
            _output_error,
        ),
        Baseline("subspace", "Subspace", ("hairdryer", "glass-tube"), _subspace),
        Baseline("process", "Process model", ("heat-exchanger",), _process(("white",))),
        Baseline(
            "process-disturbance",
            "Process and disturbance model",
            ("heat-exchanger",),
            _process(("ar1", "arma1")),
        ),
        Baseline("gp-se", "GP, squared exponential", ALL_RECORDS, _gp("se")),
        Baseline("gp-rq", "GP, rational quadratic", ALL_RECORDS, _gp("rq")),
    )
}
