"""The interactive figures, as the dictionaries plotly.js draws; they read only the content.

Colours are names such as ``@accent``: the page gives them their values, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

Figure = dict[str, Any]
SERIES = ("@accent", "@series2", "@series3", "@series4", "@series5")
MOST_OUTPUTS = 4  # whose residuals are drawn; the tables hold all
MOST_INPUTS = 4
MOST_CHANNELS = 12
LONGEST_NAME, SHORT_NAME = 24, 12  # characters beside a panel


def figures(content: dict[str, Any]) -> dict[str, Figure]:
    """Every figure by the name of its place in the page."""
    found = {f"run{k}": free_run(run) for k, run in enumerate(content["runs"])}
    residuals = content["residuals"][content["data"]]
    for k, out in enumerate(residuals["outputs"][:MOST_OUTPUTS]):
        found[f"auto{k}"] = stems(residuals["lags"][1:], out["auto"][1:], residuals["auto_bound"])
        for j, other in enumerate(out["inputs"][:MOST_INPUTS]):
            found[f"cross{k}-{j}"] = stems(residuals["cross_lags"], other["cross"], other["bound"])
        found[f"histogram{k}"] = histogram(out)
    found["importance"] = importance(content["importance"], content["facts"]["members"])
    if content["trade_off"]:
        found["trade_off"] = trade_off(content["trade_off"])
        found["restarts"] = restarts(content["restarts"])
    if "tried" in content:
        found["front"] = front(content["tried"])
    found["reliability"] = reliability(content["calibration"])
    for k, pair in enumerate(content.get("dynamics", {}).get("pairs", ())):
        found[f"step{k}"] = banded(pair["time"], pair["step"], "time [s]")
        found[f"magnitude{k}"] = banded(pair["frequencies"], pair["magnitude"], "frequency [Hz]")
        found[f"magnitude{k}"]["layout"]["xaxis"] |= _logarithmic(pair["frequencies"])
        found[f"static{k}"] = banded(pair["values"], pair["static"], pair["input"])
    return found


def free_run(run: dict[str, Any]) -> Figure:
    """Measurement, free run and 95 % band of each output, the inputs below."""
    outputs, time = run["outputs"], run["time"]
    weights = [2.2] * len(outputs) + [1.0]
    layout = _rows(weights, [out["name"] for out in outputs] + ["inputs"])
    data: list[dict[str, Any]] = []
    for k, out in enumerate(outputs):
        common = {"yaxis": _axis("y", k), "showlegend": k == 0, "mode": "lines"}
        edge = {"width": 0, "color": "@band"}
        data += [
            common | {"y": out["low"], "line": edge, "showlegend": False, "hoverinfo": "skip"},
            common
            | {"y": out["high"], "line": edge, "fill": "tonexty", "fillcolor": "@band"}
            | {"name": "95 % band", "legendgroup": "band", "hoverinfo": "skip"},
            common | {"y": out["measured"], "name": "measured", "legendgroup": "measured"}
            | {"line": {"color": "@grey", "width": 1.8}},
            common | {"y": out["mean"], "name": "free run", "legendgroup": "free run"}
            | {"line": {"color": "@accent", "width": 1.4}},
        ]  # fmt: skip
    for j, channel in enumerate(run["inputs"]):
        line = {"color": SERIES[(j + 1) % len(SERIES)], "width": 1.2, "shape": "hv"}
        data.append(
            {"y": channel["values"], "name": _text(channel["name"]), "mode": "lines"}
            | {"line": line, "yaxis": _axis("y", len(outputs))}
        )
    window = {"type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    layout["shapes"] = [window | {"x0": time[0], "x1": run["known"], "fillcolor": "@quiet"}
                        | {"line": {"width": 0}}]  # fmt: skip
    layout["xaxis"]["title"] = {"text": "time [s]", "standoff": 6}
    layout["hovermode"] = "x unified"
    layout["height"] = 90 + 190 * len(outputs) + 90
    return {"x": time, "data": data, "layout": layout}  # x is common to all traces


def stems(lags: list[int], values: list[float], bound: float) -> Figure:
    """Correlations over lags with their bounds."""
    reach = max(1.2 * max(abs(v) for v in values), 1.8 * bound)
    outside = ["@bad" if abs(v) > bound else "@accent" for v in values]
    bars = {"type": "bar", "x": lags, "y": values, "width": 0.36, "marker": {"color": outside}}
    band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -bound, "y1": bound}
    layout = _layout(height=230)
    layout["shapes"] = [band | {"fillcolor": "@band", "line": {"width": 0}, "layer": "below"}]
    layout["xaxis"] |= {"title": {"text": "lag [samples]", "standoff": 6}}
    layout["yaxis"] |= {"range": [-reach, reach], "nticks": 6}
    layout["showlegend"] = False
    hover = "lag %{x}: %{y:.3f}<extra></extra>"
    return {"data": [bars | {"hovertemplate": hover}], "layout": layout}


def histogram(out: dict[str, Any]) -> Figure:
    """Densities of the residuals, and the normal density of the same mean and spread."""
    h = out["histogram"]
    edges = np.array(h["edges"])
    std = h["std"] or 1.0
    x = np.linspace(edges[0], edges[-1], 121)
    normal = np.exp(-0.5 * ((x - h["mean"]) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    middle, width = (edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0])
    bars = {"type": "bar", "x": middle.tolist(), "y": h["density"], "width": 0.94 * width}
    curve = {"x": x.tolist(), "y": normal.tolist(), "mode": "lines", "name": "normal"}
    layout = _layout(height=230)
    layout["xaxis"] |= {"title": {"text": "residual", "standoff": 6}, "nticks": 6}
    layout["yaxis"] |= {
        "title": {"text": "density", "standoff": 8},
        "nticks": 5,
        "rangemode": "tozero",
    }
    return {
        "data": [
            bars | {"marker": {"color": "@accent"}, "opacity": 0.75, "name": "residuals"},
            curve | {"line": {"color": "@grey", "width": 1.8}, "hoverinfo": "skip"},
        ],
        "layout": layout,
    }


def importance(channels: list[dict[str, Any]], members: int) -> Figure:
    """Weight of every regressor over its lag, a row for each channel; pruned ones as small dots."""
    drawn = channels[:MOST_CHANNELS]
    layout = _rows([1.0] * len(drawn), [c["name"] for c in drawn], 0.06, SHORT_NAME)
    tallest = max((v or 0.0 for c in drawn for v in c["strength"]), default=1.0) or 1.0
    oldest = max((lag for c in drawn for lag in c["lags"]), default=1)
    data = []
    for k, c in enumerate(drawn):
        said = [
            f"{_text(name)}<br>weight {s or 0:.3g}"
            + ("" if e is None else f"<br>log evidence {e:.3g}")
            + f"<br>kept by {n} of {members}"
            for name, s, e, n in zip(
                c["regressors"], c["strength"], c["evidence"], c["kept"], strict=True
            )
        ]
        row = {"yaxis": _axis("y", k), "showlegend": False}
        data.append(
            row
            | {"type": "bar", "x": c["lags"], "y": c["strength"], "width": 0.62, "text": said}
            | {"hovertemplate": "%{text}<extra></extra>", "textposition": "none"}
            | {"marker": {"color": "@accent", "opacity": [0.35 + 0.65 * n / members
                                                          for n in c["kept"]]}}
        )  # fmt: skip
        pruned = [lag for lag, n in zip(c["lags"], c["kept"], strict=True) if not n]
        dots = {"color": "@grey", "size": 4, "symbol": "circle-open"}
        data.append(
            row
            | {"x": pruned, "y": [0] * len(pruned), "mode": "markers", "marker": dots}
            | {"hovertemplate": "lag %{x}: pruned<extra></extra>"}
        )
        layout[_long("y", k)] |= {"range": [-0.06 * tallest, 1.1 * tallest], "nticks": 3}
    layout["xaxis"] |= {"title": {"text": "lag [samples]", "standoff": 6}}
    layout["xaxis"] |= {"range": [-0.7, oldest + 0.7], "tick0": 0, "dtick": -(-oldest // 12) or 1}
    layout["height"] = 70 + 105 * len(drawn)
    return {"data": data, "layout": layout}


def trade_off(found: dict[str, Any]) -> Figure:
    """Error against size: a thin line for each restart, from its first cycle to its last."""
    data = []
    for k, (lam, paths) in enumerate(groupby(found["paths"], key=itemgetter("lam"))):
        colour = SERIES[k % len(SERIES)]
        trace: dict[str, Any] = {"x": [], "y": [], "customdata": []}
        for path in paths:
            trace["x"] += [*path["weights"], None]
            trace["y"] += [*path["error"], None]
            trace["customdata"] += [
                [path["restart"], cycle, regressors]
                for cycle, regressors in zip(path["cycles"], path["regressors"], strict=True)
            ] + [[None, None, None]]
        hover = "restart %{customdata[0]}, cycle %{customdata[1]}<br>%{x} weights, "
        hover += "%{customdata[2]} regressors<br>error %{y:.4g}<extra></extra>"
        data.append(
            trace
            | {"mode": "lines+markers", "name": f"λ = {lam:g}", "hovertemplate": hover}
            | {"line": {"color": colour, "width": 0.8}, "marker": {"color": colour, "size": 5}}
            | {"opacity": 0.75, "connectgaps": False}
        )
    best = found["best"]
    ring = {"symbol": "circle-open", "size": 15, "color": "@bad", "line": {"width": 2.4}}
    data.append(
        {"x": [best["weights"]], "y": [best["error"]], "mode": "markers", "marker": ring}
        | {"name": "chosen", "hoverinfo": "skip"}
    )
    layout = _layout(height=360)
    sizes = [v for path in found["paths"] for v in path["weights"]]
    wide = max(sizes, default=1) > 8 * max(1, min(sizes, default=1))
    layout["xaxis"] |= {"title": {"text": "weights kept", "standoff": 6}, "nticks": 8}
    layout["xaxis"] |= _logarithmic(sizes) if wide else {}
    layout["yaxis"] |= {"title": {"text": "free-run error, scaled", "standoff": 8}}
    layout["yaxis"] |= _scale([v for path in found["paths"] for v in path["error"]])
    layout["hovermode"] = "closest"
    return {"data": data, "layout": layout}


def front(tried: dict[str, Any]) -> Figure:
    """Error of every trial against its size; a line along those that no other beats in both."""
    hover = "trial %{customdata[0]}: %{customdata[1]}<br>%{x} parameters, error %{y:.4g}"
    ring = {"symbol": "circle-open", "size": 15, "color": "@bad", "line": {"width": 2.4}}
    groups = [
        ("pruned", "pruned", {"color": "@grey", "size": 5, "symbol": "x"}),
        ("finished", "finished", {"color": "@series2", "size": 6}),
        ("front", "front", {"color": "@accent", "size": 8}),
        ("chosen", "taken", ring),
    ]
    data = []
    for key, name, marker in groups:
        rows = [row for row in tried["rows"] if row[key] and row["score"] is not None]
        rows.sort(key=itemgetter("size", "score"))
        trace: dict[str, Any] = {"mode": "lines+markers" if key == "front" else "markers"}
        trace |= {"x": [r["size"] for r in rows], "y": [r["score"] for r in rows], "name": name}
        trace |= {"customdata": [[r["number"], _text(r["knobs"], 120)] for r in rows]}
        trace |= {"marker": marker, "hovertemplate": f"{hover}<extra></extra>"}
        trace |= {"line": {"color": "@accent", "width": 1.4, "shape": "hv"}}
        data.append(trace)
    drawn = [row for row in tried["rows"] if row["score"] is not None]
    layout = _layout(height=380)
    sizes = [max(1, row["size"]) for row in drawn]
    layout["xaxis"] |= {"title": {"text": "live parameters", "standoff": 6}}
    layout["xaxis"] |= _scale(sizes)
    layout["yaxis"] |= {"title": {"text": "error on held-back data, scaled", "standoff": 8}}
    layout["yaxis"] |= _scale([row["score"] for row in drawn])
    layout["hovermode"] = "closest"
    return {"data": data, "layout": layout}


def restarts(rows: list[dict[str, Any]]) -> Figure:
    """Expected error of every restart, best first."""
    data = []
    for k, row in enumerate(rows):
        colour = SERIES[k % len(SERIES)]
        data.append(
            {"x": list(range(1, len(row["scores"]) + 1)), "y": row["scores"]}
            | {"mode": "lines+markers", "name": f"λ = {row['lam']:g}"}
            | {"line": {"color": colour, "width": 1.2}, "marker": {"color": colour, "size": 6}}
            | {"hovertemplate": "place %{x}: %{y:.4g}<extra></extra>"}
        )
    layout = _layout(height=360)
    most = max((len(row["scores"]) for row in rows), default=1)
    layout["xaxis"] |= {"title": {"text": "restart, best first", "standoff": 6}}
    layout["xaxis"] |= {"tick0": 1, "dtick": -(-most // 10)}
    layout["yaxis"] |= {"title": {"text": "expected free-run error, scaled", "standoff": 8}}
    layout["yaxis"] |= _scale([v for row in rows for v in row["scores"]])
    layout["hovermode"] = "closest"
    return {"data": data, "layout": layout}


def reliability(found: dict[str, Any]) -> Figure:
    """Share of measurements below each quantile against the level of the quantile."""
    line = {"color": "@grey", "width": 1.2, "dash": "dash"}
    data: list[dict[str, Any]] = [
        {"x": [0, 1], "y": [0, 1], "mode": "lines", "name": "calibrated", "line": line}
        | {"hoverinfo": "skip"}
    ]
    for k, out in enumerate(found["outputs"]):
        colour = SERIES[k % len(SERIES)]
        data.append(
            {"x": found["levels"], "y": out["below"], "name": _text(out["name"])}
            | {"mode": "lines+markers", "marker": {"size": 7, "color": colour}}
            | {"line": {"color": colour, "width": 1.6}}
            | {"hovertemplate": "level %{x:.3f}: %{y:.3f} below<extra></extra>"}
        )
    layout = _layout(height=360)
    unit = {"range": [-0.02, 1.02], "dtick": 0.25}
    layout["xaxis"] |= unit | {"title": {"text": "level of the quantile", "standoff": 6}}
    layout["yaxis"] |= unit | {"title": {"text": "measurements below it", "standoff": 8}}
    layout["hovermode"] = "closest"
    return {"data": data, "layout": layout}


def banded(x: list[float], curve: dict[str, Any], title: str) -> Figure:
    """A curve with its 95 % band."""
    edge = {"width": 0, "color": "@band"}
    common = {"x": x, "mode": "lines", "showlegend": False}
    data = [
        common | {"y": curve["low"], "line": edge, "hoverinfo": "skip"},
        common | {"y": curve["high"], "line": edge, "fill": "tonexty", "fillcolor": "@band"}
        | {"hoverinfo": "skip"},
        common | {"y": curve["mean"], "line": {"color": "@accent", "width": 1.6}},
    ]  # fmt: skip
    layout = _layout(height=260)
    layout["xaxis"]["title"] = {"text": _text(title), "standoff": 6}
    layout["hovermode"] = "closest"
    return {"data": data, "layout": layout}


def _layout(height: int) -> dict[str, Any]:
    axis = {"gridcolor": "@grid", "linecolor": "@line", "zerolinecolor": "@line", "ticks": ""}
    return {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 30, "b": 44},
        "paper_bgcolor": "@surface",
        "plot_bgcolor": "@surface",
        "font": {"color": "@text", "size": 12},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@line", "font": {"color": "@text"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
        "xaxis": axis | {"showgrid": False, "showline": True, "zeroline": False},
        "yaxis": axis | {"automargin": True},
        "bargap": 0,
    }


def _rows(
    weights: list[float], titles: list[str], gap: float = 0.05, longest: int = LONGEST_NAME
) -> dict[str, Any]:
    """Panels below each other that share the axis of time or lag."""
    layout = _layout(height=0)
    axis = layout.pop("yaxis")
    heights = np.array(weights) / sum(weights) * (1 - gap * (len(weights) - 1))
    top = 1.0
    for k, (height, title) in enumerate(zip(heights.tolist(), titles, strict=True)):
        layout[_long("y", k)] = axis | {
            "domain": [max(0.0, top - height), top],
            "title": {"text": _text(title, longest), "standoff": 8},
            "anchor": "x",
            "nticks": 5,
        }
        top -= height + gap
    layout["xaxis"]["anchor"] = _axis("y", len(weights) - 1)
    return layout


def _axis(letter: str, k: int) -> str:
    return letter if k == 0 else f"{letter}{k + 1}"


def _long(letter: str, k: int) -> str:
    return f"{letter}axis" if k == 0 else f"{letter}axis{k + 1}"


def _scale(values: list[float]) -> dict[str, Any]:
    """A logarithmic axis where errors span more than a factor of four."""
    positive = [v for v in values if v and v > 0]
    if not positive or max(positive) < 4 * min(positive):
        return {"nticks": 6}
    return _logarithmic(positive)


def _logarithmic(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with written-out numbers, as many as a small plot can bear."""
    low, high = max(min(values), 1e-300), max(values)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1.0,) if len(decades) > 5 else (1.0, 2.0, 5.0)
    ticks = [float(f"{step}e{d}") for d in decades for step in steps]
    shown = {"tickvals": ticks, "ticktext": [f"{v:g}" for v in ticks], "tickmode": "array"}
    return {"type": "log"} | shown


def _text(name: str, longest: int = LONGEST_NAME) -> str:
    """A name from a file as plain text: plotly.js takes tags in labels for markup."""
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return escape(short, quote=False)
