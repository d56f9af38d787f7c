"""What a step of an input does, how fast, and where it ends: numbers for the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from occamid.bands.ensemble import Ensemble
from occamid.bands.linear import Band, linearise
from occamid.bands.responses import Responses, responses, static_curve
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.reporting.series import number, rounded

Array = np.ndarray
MOST_PAIRS = 4  # of an input and an output that are drawn
POINTS = 21  # of a static curve
LONGEST = 400  # samples of a step response
NORMAL95 = 1.96


def dynamics(model: Ensemble, records: Sequence[Record]) -> dict[str, Any]:
    """Step response, magnitude and static curve around the mean of the inputs.

    Where no member is stable at rest there, or none rests at all, only the reason is told.
    """
    u = np.concatenate([record.u for record in records])
    try:
        line = linearise(model, u.mean(axis=0))
        samples = _dead_time(model) + _samples(line.time_constants, line.sampling_time)
        found = responses(model, u.mean(axis=0), samples)
    except DataError as error:
        return {"reason": str(error), "pairs": []}
    names = model.terms
    curves = {
        j: static_curve(model, j, _grid(u[:, j]), u.mean(axis=0))
        for j in range(min(len(names.input_names), MOST_PAIRS))
    }
    pairs = [*product(range(len(names.output_names)), range(len(names.input_names)))]
    return {
        "reason": "",
        "stable": line.stable,
        "left_out": found.left_out,
        "u0": [number(v) for v in line.u0],
        "y0": [number(v) for v in line.y0],
        "inputs": list(names.input_names),
        "outputs": list(names.output_names),
        "poles": [
            {"real": number(p.real), "imaginary": number(p.imag), "seconds": number(tau)}
            for p, tau in zip(line.poles[:8], line.time_constants[:8], strict=True)
        ],
        "gains": [
            {"output": names.output_names[k], "input": names.input_names[j]}
            | {"gain": number(found.gain.mean[k, j]), "std": number(found.gain.std[k, j])}
            for k, j in pairs
        ],
        "pairs": [
            _pair(model, found, curves[j], _grid(u[:, j]), k, j)
            for k, j in pairs[:MOST_PAIRS]
            if j in curves
        ],
    }


def _dead_time(model: Ensemble) -> int:
    """How long the last input waits before it acts."""
    first: dict[int, int] = {}
    for channel, lag in model.terms.inputs:
        first[channel] = min(lag, first.get(channel, lag))
    return max(first.values(), default=0)


def _samples(seconds: Array, step: float) -> int:
    """Long enough to see the slowest pole settle."""
    slowest = max((tau for tau in seconds if np.isfinite(tau) and tau > 0), default=step)
    return int(np.clip(5 * slowest / step, 20, LONGEST))


def _grid(values: Array) -> Array:
    return np.linspace(values.min(), values.max(), POINTS)


def _pair(
    model: Ensemble, found: Responses, curve: Band, values: Array, k: int, j: int
) -> dict[str, Any]:
    """The curves of one output and one input."""
    terms = model.terms
    return {
        "output": terms.output_names[k],
        "input": terms.input_names[j],
        "time": rounded(found.time),
        "step": _band(found.step.mean[:, k, j], found.step.std[:, k, j]),
        "frequencies": found.frequencies.tolist(),
        "magnitude": _band(found.magnitude.mean[:, k, j], found.magnitude.std[:, k, j]),
        "values": values.tolist(),
        "static": _band(curve.mean[:, k], curve.std[:, k]),
    }


def _band(mean: Array, std: Array) -> dict[str, Any]:
    """A curve with its 95 % band."""
    lines = (("mean", mean), ("low", mean - NORMAL95 * std), ("high", mean + NORMAL95 * std))
    return {key: rounded(values) for key, values in lines}
