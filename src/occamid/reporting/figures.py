"""Plots of what was identified; they read models and records and change neither."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from occamid.assessment.metrics import fit_percent
from occamid.bands.monte_carlo import Distribution
from occamid.data.record import Record
from occamid.files.atomic import replace_file
from occamid.networks import matrices
from occamid.training.model import Model

BLUE, GREY = "#1f5fa8", "#8a8a8a"


def free_run_figure(
    record: Record,
    simulated: Float[np.ndarray, "N ny"] | Distribution,
    skip: int,
    title: str,
    sigmas: float | None = None,
) -> Figure:
    """Measured output and free run over time, one panel for each output, with fit and band.

    The band of a distribution holds 95 % of it, or ``sigmas`` standard deviations either side.
    """
    run = simulated.mean if isinstance(simulated, Distribution) else simulated
    ny = record.y.shape[1]
    figure = Figure(figsize=(9, 1.2 + 2.2 * ny), layout="constrained")
    time = np.arange(len(record)) * record.sampling_time
    fits = fit_percent(record.y, run, skip)
    axes = figure.subplots(ny, 1, squeeze=False, sharex=True)[:, 0]
    for k, axis in enumerate(axes):
        axis.plot(time, record.y[:, k], color=GREY, lw=1.8, label="measured")
        axis.plot(time, run[:, k], color=BLUE, lw=1.1, label=f"free run, fit {fits[k]:.1f} %")
        if isinstance(simulated, Distribution):
            low, high = (edge[:, k] for edge in _band(simulated, sigmas))
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
    figure = Figure(figsize=(9, 1.2 + 2.2 * ny), layout="constrained")
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


def _band(found: Distribution, sigmas: float | None) -> tuple[np.ndarray, np.ndarray]:
    if sigmas is None:
        return found.interval(0.95)
    return found.mean - sigmas * found.std, found.mean + sigmas * found.std


def reliability_figure(
    nominal: Float[np.ndarray, " Q"], found: Float[np.ndarray, "Q ny"], names: tuple[str, ...]
) -> Figure:
    """Share of measurements below each quantile against the quantile's level."""
    figure = Figure(figsize=(4, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--", label="calibrated")
    for k, name in enumerate(names):
        axis.plot(nominal, found[:, k], marker="o", ms=4, label=name)
    axis.set(xlabel="level of the quantile", ylabel="measurements below it", aspect="equal")
    axis.legend(loc="upper left", fontsize=8)
    return figure


def sparsity_figure(model: Model) -> Figure:
    """Every weight matrix: blue where a weight is kept, white where it is pruned."""
    weights = matrices(model.weights)
    columns = min(4, len(weights))
    lines = -(-len(weights) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.4 * lines), layout="constrained")
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
    figure.suptitle(f"sparsity {model.sparsity:.1%}", fontsize=9)
    return figure


def save(figure: Figure, path: Path, *, overwrite: bool = True) -> None:
    """Write a PNG or SVG, by its ending."""
    content = BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=130)
    replace_file(path, content.getvalue(), overwrite=overwrite)


def _two_colours() -> object:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["white", BLUE])
