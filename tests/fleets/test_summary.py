"""What a fleet has in common, who is odd, and a table that no spreadsheet runs."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from occamid.fleets.summary import summary
from occamid.fleets.table import to_csv
from occamid.reporting.page import render_fleet
from tests.support.fleet_cases import HOSTILE

OUTPUT = {
    "name": "=level",
    "expected_rmse": 1.0,
    "expected_interval": [0.9, 1.1],
    "rmse": 1.0,
    "fit": 90.0,
    "coverage": 0.95,
}
BAD = {"asset": "=BAD", "folder": "assets/x", "files": ["@x.csv"], "message": "-1 is wrong\n=1"}


def row(asset: str, gain: float = 2.0, **output: Any) -> dict[str, Any]:
    return {
        "asset": asset,
        "folder": f"assets/{asset}",
        "files": ["x.csv"],
        "family": "arx",
        "rows": 300,
        "judged_on": "test",
        "outputs": [OUTPUT | output],
        "regressors": ["u[t-1]", "y[t-1]"],
        "parameters": 2,
        "gains": [{"input": "u", "output": "=level", "gain": gain, "std": 0.1}],
        "slowest": 1.5,
        "seconds": 1.0,
    }


FLEET = [row(f"pump{k}", 2 + 0.01 * k, fit=90 + 0.2 * k) for k in range(9)]


def test_a_uniform_fleet_has_no_odd_ones() -> None:
    found = summary(FLEET)
    assert found["odd"] == []
    assert found["regressors"][0] == {"name": "u[t-1]", "assets": 9, "share": 1.0}
    assert found["families"] == {"arx": 9}
    error = found["measures"][0]
    assert (error["low"], error["median"], error["assets"]) == pytest.approx((8.4, 9.2, 9))
    assert sum(error["bins"]) == 9


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (row("x", gain=5.0), "gain from u to =level: 5, the median is 2.0"),
        (row("x", fit=20.0), "=level: free-run error, % of its spread: 80, the median is 9"),
        (row("x", coverage=0.4), "=level: inside the 95 % band, %: 40, the median is 95"),
        (row("x") | {"slowest": 40.0}, "slowest time constant, s: 40, the median is 1.5"),
        (row("x") | {"regressors": ["u[t-9]"]}, "regressors shared with most, %: 0, the median"),
    ],
)
def test_the_odd_one_is_found_and_the_reason_told(odd: dict[str, Any], said: str) -> None:
    (found,) = summary([*FLEET, odd])["odd"]
    assert found["asset"] == "x"
    assert len(found["reasons"]) == 1
    assert found["reasons"][0].startswith(said)


def test_better_than_the_others_is_not_odd() -> None:
    assert summary([*FLEET, row("x", fit=99.9, coverage=1.0)])["odd"] == []


def test_numbers_that_are_not_there_are_left_out() -> None:
    gone = row("x", fit=None, coverage=None) | {"gains": [], "slowest": None}
    found = summary([*FLEET, gone])
    assert [m["assets"] for m in found["measures"]] == [9, 9, 9, 9, 10]
    assert found["odd"] == []


def test_the_table_is_harmless() -> None:
    rows = [row(name) for name in HOSTILE]
    text = to_csv(rows, [BAD], {HOSTILE[0]: ["+odd"]})
    cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    assert "\u202e" not in text
    table = list(csv.DictReader(io.StringIO(text)))
    assert [line["state"] for line in table] == ["identified"] * len(HOSTILE) + ["failed"]
    assert table[0]["asset"] == HOSTILE[0]
    assert table[0]["odd"] == "'+odd"
    assert table[-1]["message"] == "'-1 is wrong =1"
    assert table[0]["'=level fit %" if "'=level fit %" in table[0] else "=level fit %"] == "90.0"


def test_the_page_is_harmless() -> None:
    rows = [row(name) for name in HOSTILE]
    about = {"version": "1", "date": "today", "effort": "quick", "seed": 0}
    content = {"title": "<b>", "provenance": about, "assets": rows, "failures": [BAD]}
    page = render_fleet(content | {"summary": summary(rows)})
    assert "<script" not in page
    assert "\u202e" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page
    empty = render_fleet(content | {"assets": [], "summary": {}})
    assert "0 of 1 assets identified" in empty
