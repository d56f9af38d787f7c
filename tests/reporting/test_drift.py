"""A plant that drifts: simulation fails, prediction does not, and the verdict says what helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from occamid import Record, combine, fit_posterior
from occamid.reporting.content import content, show
from occamid.reporting.verdict import drifts, verdict
from occamid.training.linear import fit_arx

OUT: dict[str, Any] = {
    "name": "y",
    "fit": -90.0,
    "coverage": 0.94,
    "white": True,
    "white_p": 0.4,
    "depends_on": [],
}
FACTS: dict[str, Any] = {
    "kept": 6,
    "candidates": 41,
    "inputs": [],
    "outputs": [],
    "data": "test",
    "n_init": 20,
    "rows": 1000,
    "families": 1,
    "parameters": 40,
    "members": 1,
    "diverged": 0.0,
    "failed": 0,
    "runs": 20,
}


def told(**changes: Any) -> str:
    found = verdict(FACTS | {"outputs": [OUT | changes]})
    return " ".join(f"{w['title']}. {w['text']}" for w in found["warnings"])


def test_the_verdict_offers_what_helps_with_numbers() -> None:
    said = told(ahead={"steps": 10, "fit": 84.2, "one_step": 97.1})
    assert "y drifts away from the free run" in said
    assert "the fit is -90 %, but 84 % 10 steps ahead of measured outputs and 97 % one step" in said
    for remedy in ("Predict from measured outputs with a horizon", "differences", "more data"):
        assert remedy in said


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fit": 85.0, "ahead": {"steps": 10, "fit": 95.0, "one_step": 99.0}},
        {"fit": 20.0, "ahead": {"steps": 10, "fit": 30.0, "one_step": 40.0}},
    ],
)
def test_and_is_silent_where_that_would_not_help(changes: dict[str, Any]) -> None:
    assert "drifts" not in told(**changes)


def test_what_counts_as_drift() -> None:
    assert drifts(None, 90.0)  # a free run that diverges
    assert drifts(30.0, 90.0)
    assert not drifts(30.0, 50.0)
    assert not drifts(70.0, 90.0)


def test_a_plant_with_a_slow_disturbance_on_its_output() -> None:
    rng = np.random.default_rng(1)
    u, x = rng.normal(size=2000), np.zeros(2000)
    for t in range(1, 2000):
        x[t] = 0.5 * x[t - 1] + 0.1 * u[t - 1]
    y = x + np.cumsum(0.1 * rng.normal(size=2000))
    estimation, test = Record(u=u, y=y).split(1000)
    model = combine([fit_posterior(fit_arx([estimation])[0].model, estimation)])
    page = content(model, None, show(model, [estimation]), show(model, [test]))
    (out,) = page["facts"]["outputs"]
    assert out["fit"] < 40
    assert out["ahead"]["fit"] > 60
    assert any("drifts away" in w["title"] for w in page["verdict"]["warnings"])
