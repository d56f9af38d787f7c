"""The table of a fleet: one row for each asset, as CSV for people and as JSON for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from occamid.files.plain import cell_name, neutral
from occamid.fleets.units import Row

SCORES = {
    "expected_rmse": "expected RMSE",
    "rmse": "RMSE",
    "fit": "fit %",
    "coverage": "share inside 95 % band",
}


def to_csv(rows: Sequence[Row], failures: Sequence[Row], odd: Mapping[str, Sequence[str]]) -> str:
    """One line for each asset, those that failed at the end; no cell can be run as a formula."""
    outputs = list(dict.fromkeys(out["name"] for row in rows for out in row["outputs"]))
    table = [_line(row, odd.get(row["asset"], ())) for row in rows]
    table += [_failed(row) for row in failures]
    headings = ["asset", "state", "family", "rows", "judged on"]
    headings += [f"{name} {said}" for name in outputs for said in SCORES.values()]
    headings += ["parameters", "regressors", "odd", "seconds", "folder", "files", "message"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, headings))
    writer.writerows([_cell(line.get(name)) for name in headings] for line in table)
    return text.getvalue()


def _line(row: Row, odd: Sequence[str]) -> dict[str, Any]:
    scores = {
        f"{out['name']} {said}": out[key] for out in row["outputs"] for key, said in SCORES.items()
    }
    same = ("asset", "family", "rows", "parameters", "seconds", "folder")
    return scores | {name: row[name] for name in same} | {
        "state": "identified",
        "judged on": row["judged_on"],
        "regressors": " ".join(row["regressors"]),
        "odd": "; ".join(odd),
        "files": " ".join(row["files"]),
    }  # fmt: skip


def _failed(row: Row) -> dict[str, Any]:
    return row | {"state": "failed", "files": " ".join(row["files"])}


def _cell(value: Any) -> Any:
    """Text on one line that is neither run by a spreadsheet nor turns the others round."""
    if value is None:
        return ""
    return cell_name(neutral(" ".join(value.split()))) if isinstance(value, str) else value
