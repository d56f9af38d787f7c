"""The trials of a search as files and as a part of the report."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from occamid.files.plain import plain
from occamid.identification.search.search import Searched
from occamid.identification.search.trials import Tried

TABLE, ALL = "trials.csv", "trials.json"


def content(searched: Searched) -> dict[str, Any]:
    """What the page shows of the trials, the smallest first."""
    trials = sorted(searched.trials, key=lambda t: (t.size, t.score, t.number))
    along = {t.number for t in searched.front}
    states = [t.state for t in searched.trials]
    counted = ", ".join(f"{states.count(s)} {s}" for s in ("finished", "pruned", "failed"))
    return plain(
        {
            "said": f"{len(states)} trials ({counted}): {searched.fit.grounds}.",
            "rows": [
                {
                    "number": t.number,
                    "size": t.size,
                    "score": t.score,
                    "knobs": said(t.knobs),
                    "finished": t.finished,
                    "pruned": t.state == "pruned",
                    "front": t.number in along,
                    "chosen": t.number == searched.chosen.number,
                }
                for t in trials
            ],
        }
    )


def said(knobs: dict[str, Any]) -> str:
    """Settings of a trial for people, the network first."""
    rest = {k: v for k, v in knobs.items() if k not in ("network", "cycles", "epochs")}
    shown = [f"{name.replace('_', ' ')} {_value(value)}" for name, value in rest.items()]
    return ", ".join([str(knobs.get("network", "")), *shown])


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "/".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def summary(searched: Searched) -> dict[str, Any]:
    """All trials for other programs."""
    return plain(
        {
            "chosen": searched.chosen.number,
            "front": [t.number for t in searched.front],
            "trials": [t._asdict() for t in searched.trials],
        }
    )


def write(searched: Searched, folder: Path) -> None:
    """A table for people's programs, and everything as JSON."""
    text = json.dumps(summary(searched), indent=1, allow_nan=False)
    (folder / ALL).write_text(text, encoding="utf-8")
    (folder / TABLE).write_text(table(searched), encoding="utf-8", newline="")


def table(searched: Searched) -> str:
    """A row for each trial; settings that a trial does not have are empty."""
    names = list(dict.fromkeys(name for t in searched.trials for name in t.knobs))
    outputs = [f"rmse {k + 1}" for k in range(len(searched.chosen.rmse))]
    along = {t.number for t in searched.front}
    found = io.StringIO()
    rows = csv.writer(found, lineterminator="\n")
    first = ["trial", "state", "front", "chosen", "score", "size", "folds", "seconds"]
    rows.writerow(first + outputs + names)
    for t in searched.trials:
        marks = [int(t.number in along), int(t.number == searched.chosen.number)]
        rows.writerow(
            [t.number, t.state, *marks, _cell(t.score), t.size, t.folds, t.seconds]
            + _errors(t, len(outputs))
            + [_value(t.knobs[name]) if name in t.knobs else "" for name in names]
        )
    return found.getvalue()


def _errors(trial: Tried, count: int) -> list[str]:
    return [_cell(v) for v in trial.rmse] or [""] * count


def _cell(value: float) -> str:
    return "" if value == float("inf") else repr(float(value))
