"""Pictures of the report for papers and slides, by matplotlib; they read only the content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from occamid.reporting.figures import BLUE, GREY, reliability_figure, save

RED = "#b3261e"
Format = str


def save_figures(
    content: dict[str, Any], folder: Path, formats: Sequence[Format] = ("png",)
) -> list[Path]:
    """Write residuals, regressors, trade-off and reliability; ``formats`` are png, svg or pdf."""
    made: dict[str, Callable[[dict[str, Any]], Figure]] = {
        "residuals": residual_figure,
        "regressors": importance_figure,
        "trade_off": trade_off_figure,
        "reliability": calibration_figure,
    }
    paths = []
    for name, draw in made.items():
        figure = draw(content)
        for ending in formats:
            paths.append(folder / f"{name}.{ending}")
            save(figure, paths[-1])
    return paths


def residual_figure(content: dict[str, Any]) -> Figure:
    """Autocorrelation and cross-correlations of the residuals, a row for each output."""
    found = content["residuals"][content["data"]]
    outputs = found["outputs"]
    columns = 1 + max(len(out["inputs"]) for out in outputs)
    figure = Figure(figsize=(3.4 * columns, 0.5 + 2.3 * len(outputs)), layout="constrained")
    axes = figure.subplots(len(outputs), columns, squeeze=False)
    for row, out in zip(axes, outputs, strict=True):
        _stems(row[0], found["lags"][1:], out["auto"][1:], found["auto_bound"])
        row[0].set_title(_plain(f"residuals of {out['name']}"), fontsize=9)
        for axis, other in zip(row[1:], out["inputs"], strict=True):
            _stems(axis, found["cross_lags"], other["cross"], other["bound"])
            axis.set_title(_plain(f"{out['name']} against {other['name']}"), fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("lag [samples]")
    return figure


def _stems(axis: Axes, lags: list[int], values: list[float], bound: float) -> None:
    outside = [RED if abs(v) > bound else BLUE for v in values]
    axis.axhspan(-bound, bound, color=BLUE, alpha=0.15, lw=0)
    axis.axhline(0, color=GREY, lw=0.8)
    axis.bar(lags, values, width=0.4, color=outside)
    reach = max(1.2 * max(abs(v) for v in values), 1.8 * bound)
    axis.set_ylim(-reach, reach)
    axis.spines[["top", "right"]].set_visible(False)


def importance_figure(content: dict[str, Any]) -> Figure:
    """Weight of every regressor over its lag, a panel for each channel."""
    channels = content["importance"]
    figure = Figure(figsize=(7, 0.6 + 1.3 * len(channels)), layout="constrained")
    axes = figure.subplots(len(channels), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axis, c in zip(axes, channels, strict=True):
        axis.bar(c["lags"], c["strength"], width=0.6, color=BLUE)
        pruned = [lag for lag, n in zip(c["lags"], c["kept"], strict=True) if not n]
        axis.plot(pruned, np.zeros(len(pruned)), "o", mfc="none", mec=GREY, ms=3)
        axis.set_ylabel(_plain(c["name"]))
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("lag [samples]")
    return figure


def trade_off_figure(content: dict[str, Any]) -> Figure:
    """Free-run error against kept weights along the cycles, the chosen model in a ring."""
    found = content["trade_off"]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    same = lambda path: (path["run"], path["lam"])  # noqa: E731
    for k, ((_, lam), paths) in enumerate(groupby(found["paths"], key=same)):
        for m, path in enumerate(paths):
            label = f"λ = {lam:g}" if m == 0 else None
            axis.plot(path["weights"], path["error"], "o-", color=f"C{k}", ms=3, lw=0.6,
                      alpha=0.6, label=label)  # fmt: skip
    best = found["best"]
    (ring,) = axis.plot([best["weights"]], [best["error"]], "o", ms=12, mew=2, label="chosen")
    ring.set(markerfacecolor="none", markeredgecolor=RED)
    axis.set(xlabel="weights kept", ylabel="free-run error, scaled", yscale="log")
    axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def calibration_figure(content: dict[str, Any]) -> Figure:
    """Share of measurements below each quantile against its level."""
    found = content["calibration"]
    below = np.array([out["below"] for out in found["outputs"]]).T
    names = tuple(_plain(out["name"]) for out in found["outputs"])
    return reliability_figure(np.array(found["levels"]), below, names)


def _plain(name: str) -> str:
    """Text that matplotlib does not take for mathematics, nor leave out of a legend."""
    return name.replace("$", r"\$").lstrip("_") or "output"
