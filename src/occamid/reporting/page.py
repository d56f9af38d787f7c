"""The page: one HTML file that opens from disk, with nothing fetched from anywhere."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from occamid.files.plain import in_order
from occamid.reporting.plots import MOST_CHANNELS, MOST_INPUTS, MOST_OUTPUTS, figures
from occamid.reporting.verdict import p_value, percent

LARGE = 2500  # cells of a matrix above which neighbours are drawn as one bar
MOST_ASSETS = 2000  # rows of a table in a page; all are in the CSV file
TALLEST, FINEST = 14, 3  # pixels of a cell


def render(content: dict[str, Any]) -> str:
    """The report as HTML; ``content`` is what :func:`content` returned."""
    content = in_order(content)  # names cannot turn a sentence round
    page = _environment().get_template("template.html.j2")
    return page.render(
        c=content,
        figures=figures(content),
        limits={"outputs": MOST_OUTPUTS, "inputs": MOST_INPUTS, "channels": MOST_CHANNELS},
        plotly=files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8"),
    )


def render_fleet(content: dict[str, Any]) -> str:
    """The page over many assets as HTML; ``content`` is the fleet.json of its folder."""
    page = _environment().get_template("fleet.html.j2")
    return page.render(c=in_order(content), most=MOST_ASSETS)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    # tojson writes < > & ' as \u00XX, so that no text can end the script element
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters |= {
        "num": num,
        "fixed": fixed,
        "tight": tight,
        "percent": lambda value: tight(percent(value)),
        "p": lambda value: tight(p_value(value)),
        "squares": squares,
        "cell": cell_size,
    }
    return environment


def num(value: float | int | None, digits: int = 4) -> str:
    """A number for a table: four significant digits, a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"{value:.{digits}g}".replace("-", "−")


def fixed(value: float | None, decimals: int = 1) -> str:
    """A number with as many decimals as the others in its column."""
    return "–" if value is None else f"{value:.{decimals}f}".replace("-", "−")


def tight(text: str) -> str:
    """Numbers stay on one line with their unit."""
    for loose in (" %", " s)", "p = ", "p < "):
        text = text.replace(loose, loose.replace(" ", "\u00a0"))
    return text


def squares(cells: list[str]) -> str:
    """The kept cells of a matrix as an SVG path in units of cells."""
    total = sum(len(row) for row in cells)
    path = []
    for y, row in enumerate(cells):
        x = 0
        while x < len(row):
            end = x + 1
            if row[x] == "#" and total > LARGE:
                while end < len(row) and row[end] == "#":
                    end += 1
                path.append(f"M{x} {y}h{end - x}v1h-{end - x}z")
            elif row[x] == "#":
                path.append(f"M{x}.06 {y}.06h.88v.88h-.88z")
            x = end
    return "".join(path)


def cell_size(cells: list[str]) -> int:
    """Pixels for the side of a cell, so that small matrices are not huge nor large ones tiny."""
    return max(FINEST, min(TALLEST, 420 // max(len(cells), len(cells[0]) if cells else 1)))
