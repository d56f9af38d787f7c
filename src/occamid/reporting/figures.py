"""Plots of what was identified, as PNG or SVG; matplotlib, which draws them, is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.data.findings import Finding
from occamid.data.record import Record
from occamid.errors import SettingsError
from occamid.files.atomic import replace_file
from occamid.networks import matrices
from occamid.reporting.series import decimate
from occamid.training.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

BLUE, GREY = "#1f5fa8", "#8a8a8a"
MARKS = {"note": "#8a8a8a", "advice": "#d9822b", "fault": "#c23030"}
MOST_PANELS = 12
MISSING = 'figures need matplotlib; install it with pip install "occamid[plots]".'


def available() -> bool:
    """Whether figures can be drawn."""
    return find_spec("matplotlib") is not None


def require() -> None:
    """Refuse where figures cannot be drawn, and say what to install."""
    if not available():
        raise SettingsError(MISSING)


def _figure(width: float, height: float) -> Figure:
    require()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def free_run_figure(
    record: Record,
    run: Run,
    title: str,
    sigmas: float | None = None,
) -> Figure:
    """Measured output and free run over time, one panel for each output, with fit and band.

    The band of a distribution holds 95 % of it, or ``sigmas`` standard deviations either side.
    """
    ny, skip = record.y.shape[1], run.n_init
    figure = _figure(9, 1.2 + 2.2 * ny)
    time = np.arange(len(record)) * record.sampling_time
    fits = run.fit(record)
    axes = figure.subplots(ny, 1, squeeze=False, sharex=True)[:, 0]
    for k, axis in enumerate(axes):
        axis.plot(time, record.y[:, k], color=GREY, lw=1.8, label="measured")
        axis.plot(time, run.mean[:, k], color=BLUE, lw=1.1, label=f"free run, fit {fits[k]:.1f} %")
        if run.std is not None:
            low, high = (edge[:, k] for edge in _band(run, sigmas))
            inside = np.mean(
                (record.y[skip:, k] >= low[skip:]) & (record.y[skip:, k] <= high[skip:])
            )
            said = f"± {sigmas:g} σ" if sigmas else "95 % band"
            label = f"{said}, covers {inside:.0%}"
            axis.fill_between(time, low, high, color=BLUE, alpha=0.22, lw=0, label=label)
        axis.axvspan(time[0], time[skip], color="#eeeeee", lw=0, label="initial window")
        axis.set_ylabel(record.output_names[k])
        axis.legend(loc="upper right", fontsize=8, ncols=4)
        axis.margins(x=0.01, y=0.18)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("time [s]")
    axes[0].set_title(title, loc="left")
    return figure


def compare_figure(
    record: Record, runs: list[tuple[str, Float[np.ndarray, "N ny"]]], title: str
) -> Figure:
    """Measured output and the free runs of several models, one panel for each output."""
    ny = record.y.shape[1]
    figure = _figure(9, 1.2 + 2.2 * ny)
    time = np.arange(len(record)) * record.sampling_time
    for k, axis in enumerate(figure.subplots(ny, 1, squeeze=False, sharex=True)[:, 0]):
        axis.plot(time, record.y[:, k], color=GREY, lw=1.8, label="measured")
        for name, run in runs:
            axis.plot(time, run[:, k], lw=1.1, label=name)
        axis.set_ylabel(record.output_names[k])
        axis.legend(loc="upper right", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("time [s]")
    figure.suptitle(title, fontsize=10)
    return figure


def findings_figure(records: Sequence[Record], findings: Sequence[Finding]) -> Figure:
    """Every channel over time, with the places of the findings about it marked."""
    first = records[0]
    names = (*first.input_names, *first.output_names)[:MOST_PANELS]
    units = dict(zip(first.input_names, first.input_units, strict=False))
    units |= dict(zip(first.output_names, first.output_units, strict=False))
    figure = _figure(10, 1.0 + 1.5 * len(names))
    axes = figure.subplots(len(names), 1, squeeze=False, sharex=True)[:, 0]
    for axis, name in zip(axes, names, strict=True):
        k = names.index(name)
        for record in records:
            x = np.concatenate([record.u, record.y], axis=1)[:, k]
            at = decimate(x[:, None])
            time = record.start + at * record.sampling_time
            axis.plot(time, x[at], color=BLUE, lw=0.8)
        told = [f for f in findings if f.times and f.channel in (name, "")]
        for finding in told:
            for a, b in finding.times:
                axis.axvspan(a, b, color=MARKS[finding.severity], alpha=0.3, lw=2)
        said = ", ".join(dict.fromkeys(f.kind for f in told))
        unit = units.get(name, "")
        axis.set_ylabel(f"{name} [{unit}]" if unit else name, fontsize=8)
        axis.set_title(said, loc="right", fontsize=8, color=MARKS["advice"])
        axis.margins(x=0.01)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("time [s]")
    return figure


def _band(found: Run, sigmas: float | None) -> tuple[np.ndarray, np.ndarray]:
    if sigmas is None:
        return found.interval(0.95)
    return found.mean - sigmas * found.spread, found.mean + sigmas * found.spread


def sparsity_figure(model: Model) -> Figure:
    """Every weight matrix: blue where a weight is kept, white where it is pruned."""
    weights = {name: W for name, W in matrices(model.weights).items() if W.size}
    columns = min(4, len(weights))
    lines = -(-len(weights) // columns)
    figure = _figure(2.6 * columns, 2.4 * lines)
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for axis in axes[len(weights) :]:
        axis.set_axis_off()
    for axis, (name, W) in zip(axes, weights.items(), strict=False):
        axis.imshow(
            np.atleast_2d(W) != 0,
            cmap=_two_colours(),
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="none",
        )
        axis.set_title(f"{name}  {np.mean(W == 0):.0%} pruned", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.suptitle("weights kept by the best model of the training", fontsize=9)
    return figure


def save(figure: Figure, path: Path, *, overwrite: bool = True) -> None:
    """Write a PNG or SVG, by its ending."""
    content = BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=130)
    replace_file(path, content.getvalue(), overwrite=overwrite)


def _two_colours() -> object:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["white", BLUE])
