"""What a fleet has in common, and who is unlike the others.  Numbers only; the page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from occamid.fleets.units import Row

Array = np.ndarray
FEWEST = 5  # assets of which one can be odd
ODD = 3.5  # robust standard deviations: Iglewicz and Hoaglin, How to Detect Outliers (1993)
NORMAL = 1.4826  # standard deviation over median absolute deviation, of a normal distribution
COARSEST = 0.02  # of the median: what differs by less is not worth a look
USUAL = 0.5  # share of the assets that keep a regressor for it to be a usual one
MOST_REGRESSORS = 40  # in the list
BINS = 24


class Measure(NamedTuple):
    """One number for each asset, and in which direction it is odd."""

    name: str
    values: list[float | None]
    low: bool = True
    high: bool = True
    spec: str = ".3g"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Medians and ranges, shared regressors, and the odd ones with their reasons."""
    found = measures(rows)
    odd = odd_ones(found)
    return {
        "measures": [_spread(m) for m in found if any(v is not None for v in m.values)],
        "families": dict(Counter(row["family"] for row in rows).most_common()),
        "regressors": [
            {"name": name, "assets": count, "share": count / len(rows)}
            for name, count in shared(rows)[:MOST_REGRESSORS]
        ],
        "odd": [
            {"asset": rows[k]["asset"], "folder": rows[k]["folder"], "reasons": reasons}
            for k, reasons in odd.items()
        ],
    }


def measures(rows: Sequence[Row]) -> list[Measure]:
    """Errors, coverage, gains, speed and structure, each over all assets."""
    outputs = dict.fromkeys(out["name"] for row in rows for out in row["outputs"])
    pairs = dict.fromkeys((g["input"], g["output"]) for row in rows for g in row["gains"])
    found = []
    for name in outputs:
        mine = [_output(row, name) for row in rows]
        error = [None if o.get("fit") is None else 100 - o["fit"] for o in mine]
        found.append(Measure(f"{name}: free-run error, % of its spread", error, low=False))
        inside = [None if o.get("coverage") is None else 100 * o["coverage"] for o in mine]
        found.append(Measure(f"{name}: inside the 95 % band, %", inside, high=False))
    for pair in pairs:
        gains = [
            next((g["gain"] for g in row["gains"] if (g["input"], g["output"]) == pair), None)
            for row in rows
        ]
        found.append(Measure(f"gain from {pair[0]} to {pair[1]}", gains))
    found.append(Measure("slowest time constant, s", [row["slowest"] for row in rows]))
    alike = Measure("regressors shared with most, %", _alike(rows), high=False, spec=".0f")
    return [*found, alike]


def _output(row: Row, name: str) -> Row:
    """What was found about one output; nothing where an asset has none of this name."""
    return next((out for out in row["outputs"] if out["name"] == name), {})


def shared(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Every regressor with the number of assets that keep it, the most common first."""
    return Counter(name for row in rows for name in dict.fromkeys(row["regressors"])).most_common()


def _alike(rows: Sequence[Row]) -> list[float | None]:
    """How many of its own and the usual regressors an asset has in common with them."""
    usual = {name for name, count in shared(rows) if count > USUAL * len(rows)}
    if not usual:
        return [None] * len(rows)
    own = [set(row["regressors"]) for row in rows]
    return [100 * len(mine & usual) / len(mine | usual) for mine in own]


def odd_ones(found: Sequence[Measure]) -> dict[int, list[str]]:
    """Which assets are far from the median of a measure, and why; the farthest first."""
    reasons: dict[int, list[str]] = {}
    farthest: dict[int, float] = {}
    for measure in found:
        distance, middle = _distance(measure)
        for k in np.flatnonzero(np.abs(distance) > ODD).tolist():
            value, spec = measure.values[k], measure.spec
            said = f"{measure.name}: {value:{spec}}, the median is {middle:{spec}}"
            reasons.setdefault(k, []).append(said)
            farthest[k] = max(farthest.get(k, 0.0), abs(float(distance[k])))
    return {k: reasons[k] for k in sorted(reasons, key=lambda k: -farthest[k])}


def _distance(measure: Measure) -> tuple[Array, float]:
    """Robust standard deviations from the median, zero where that is no fault, and the median."""
    values = np.array([np.nan if v is None else v for v in measure.values], dtype=np.float64)
    known = values[np.isfinite(values)]
    if len(known) < FEWEST:
        return np.zeros(len(values)), np.nan
    middle = float(np.median(known))
    spread = NORMAL * float(np.median(np.abs(known - middle)))
    distance = np.nan_to_num((values - middle) / max(spread, COARSEST * abs(middle), 1e-12))
    fault = np.where(distance < 0, measure.low, measure.high)
    return np.where(fault, distance, 0.0), middle


def _spread(measure: Measure) -> dict[str, Any]:
    """A measure in five numbers and a histogram."""
    values = np.array([v for v in measure.values if v is not None], dtype=np.float64)
    low, q1, middle, q3, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    counts, _ = np.histogram(values, bins=BINS, range=(low, high if high > low else low + 1))
    quantiles = {"low": low, "q1": q1, "median": middle, "q3": q3, "high": high}
    return {"name": measure.name, "assets": len(values), **quantiles, "bins": counts.tolist()}
