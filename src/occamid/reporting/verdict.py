"""The verdict in words: what was found, and what a reader should not overlook."""

from __future__ import annotations

from typing import Any

from scipy.stats import binom

COVERS_TOO_LITTLE = 0.90  # of a 95 % band; errors of a free run are correlated, so coverage varies
COVERS_TOO_MUCH = 0.99
CHANCE = 0.01  # that a true band covers so little, or so much, were errors independent
POOR, GOOD, MUCH_BETTER = 60.0, 60.0, 25.0  # fits in per cent of a free run and of predictions
AHEAD = 10  # steps of those predictions
INPUTS_NAMED = 4  # in the headline; more would bury the rest of it


def verdict(facts: dict[str, Any]) -> dict[str, Any]:
    """The headline, the sentence about the data, and the warnings, from plain numbers."""
    outputs = facts["outputs"]
    warnings = [
        *_of_data(facts),
        *_of_runs(outputs, facts["rows"]),
        *_of_drift(outputs),
        *_of_residuals(outputs),
        *_of_samples(facts),
    ]
    return {"headline": headline(facts), "basis": basis(facts), "warnings": warnings}


def headline(facts: dict[str, Any]) -> str:
    """``Keeps 6 of 41 regressors; the input u acts after 3 samples (0.24 s, 97 % sure); …``."""
    inner = facts.get("states")
    if inner:
        states = _count(inner[0], "hidden state")
        parts = [f"{states} and {_count(inner[1], 'unit')}" if inner[1] else f"linear, {states}"]
    else:
        parts = [f"keeps {facts['kept']} of {_count(facts['candidates'], 'regressor')}"]
    if facts["families"] > 1:
        count = f"{facts['families']} families with {_count(facts['parameters'], 'parameter')}"
        parts = [f"a stack of {count}, whose first model {_verb(parts[0])}"]
    parts += [_acts(channel) for channel in facts["inputs"][:INPUTS_NAMED]]
    hidden = len(facts["inputs"]) - INPUTS_NAMED
    if hidden > 0:
        parts.append(f"{_count(hidden, 'further input')} in the table below")
    outputs = facts["outputs"]
    if any(out["fit"] is None for out in outputs):
        parts.append("the free run diverges")
    else:
        parts.append(f"free-run fit {_each(outputs, 'fit', 1.0)}")
        parts.append(f"the 95 % band covers {_each(outputs, 'coverage', 100.0)}")
    text = "; ".join(parts) + "."
    return text[0].upper() + text[1:]


def _verb(what: str) -> str:
    """``keeps 3 of 4 regressors``; ``has 2 hidden states``; ``is linear, with 1 hidden state``."""
    if what.startswith("linear, "):
        return what.replace("linear, ", "is linear, with ")
    return what if what.startswith("keeps") else f"has {what}"


def basis(facts: dict[str, Any]) -> str:
    """What the figures in the headline rest on."""
    seen = {
        "test": "Fit and coverage are those of free runs on test data the model has not seen",
        "estimation": "Fit and coverage are those of free runs on the estimation data itself",
    }[facts["data"]]
    members, families = facts["members"], facts["families"]
    what = "by one model" if members == 1 else f"by an ensemble of the {members} best models"
    if families > 1:
        what = f"by a stack of {members} models of {families} families"
    steps = _count(facts["n_init"], "measured sample")
    return f"{seen}, {what}, each started from {steps}."


def _acts(channel: dict[str, Any]) -> str:
    """Whether an input is used; its delay only with the probability that the data give it."""
    name, delay = channel["name"], channel.get("delay")
    if channel["lag"] is None:
        return f"the input {name} is not used"
    if not delay:
        return f"the input {name} is used"
    (low, high), (start, end) = delay["samples"], delay["seconds"]
    if low == high:
        sure = percent(100 * delay["probability"])
        return f"the input {name} acts after {_count(low, 'sample')} ({start:.4g} s, {sure} sure)"
    between = f"{low} to {high} samples ({start:.4g} to {end:.4g} s, 90 % sure)"
    return f"the input {name} acts after {between}"


def _of_data(facts: dict[str, Any]) -> list[dict[str, str]]:
    if facts["data"] == "test":
        return []
    return [
        {
            "title": "No test record",
            "text": "Everything below is judged on the data the model was made from, which "
            "flatters it. Hold back a record, or part of one, before relying on these numbers.",
        }
    ]


def _of_residuals(outputs: list[dict[str, Any]]) -> list[dict[str, str]]:
    found = []
    coloured = [out for out in outputs if not out["white"]]
    if coloured:
        p = p_value(min(out["white_p"] for out in coloured))
        found.append(
            {
                "title": f"Residuals of {_names(coloured)} are not white",
                "text": f"The Ljung–Box test rejects whiteness ({p}): past residuals still predict "
                "the next one. More lags or states may help. The bands take residuals for white, "
                "so look at their calibration.",
            }
        )
    dependent = [out for out in outputs if out["depends_on"]]
    if dependent:
        which = "; ".join(f"{out['name']} on {', '.join(out['depends_on'])}" for out in dependent)
        found.append(
            {
                "title": "Residuals still depend on past inputs",
                "text": f"Those of {which}. The model misses part of what the inputs do. "
                "Allow more input lags, more units or a smaller λ.",
            }
        )
    return found


def _of_runs(outputs: list[dict[str, Any]], rows: int) -> list[dict[str, str]]:
    found = []

    def missed(out: dict[str, Any]) -> int:
        return round(rows * (1 - out["coverage"]))

    useless = [out for out in outputs if out["fit"] is not None and out["fit"] < 0]
    if useless:
        found.append(
            {
                "title": f"The free run of {_names(useless)} is worse than the mean",
                "text": f"A constant would fit better (fit {_each(useless, 'fit', 1.0)}). "
                "Do not simulate with this model.",
            }
        )
    known = [out for out in outputs if out["coverage"] is not None]
    for odd, title, text in (
        (
            [
                out
                for out in known
                if out["coverage"] < COVERS_TOO_LITTLE
                and binom.sf(missed(out) - 1, rows, 0.05) < CHANCE
            ],
            "too narrow",
            "Calibrate on held-back blocks before trusting the bands.",
        ),
        (
            [
                out
                for out in known
                if out["coverage"] > COVERS_TOO_MUCH and binom.cdf(missed(out), rows, 0.05) < CHANCE
            ],
            "wider than needed",
            "They are safe, but say less than they could.",
        ),
    ):
        if odd:
            covered = _each(odd, "coverage", 100.0)
            found.append(
                {
                    "title": f"The bands of {_names(odd)} are {title}",
                    "text": f"The 95 % band covers {covered} of the measurements. {text}",
                }
            )
    return found


def drifts(free: float | None, ahead: float | None) -> bool:
    """Whether predictions from measured outputs are good where the free run is not."""
    if ahead is None or ahead < GOOD:
        return False
    return free is None or (free < POOR and ahead - free > MUCH_BETTER)


def _of_drift(outputs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A slow disturbance or drift: what helps, where measured outputs make up for it."""
    found = []
    for out in outputs:
        ahead = out.get("ahead")
        if not ahead or not drifts(out["fit"], ahead["fit"]):
            continue
        found.append(
            {
                "title": f"{out['name']} drifts away from the free run",
                "text": f"In free run the fit is {percent(out['fit'])}, but "
                f"{percent(ahead['fit'])} {ahead['steps']} steps ahead of measured outputs and "
                f"{percent(ahead['one_step'])} one step ahead: something slow that is not among "
                "the inputs moves this output. Predict from measured outputs with a horizon "
                "instead of simulating; log what moves it as an input; identify the changes from "
                "sample to sample (differences of inputs and outputs); or estimate on more data.",
            }
        )
    return found


def _of_samples(facts: dict[str, Any]) -> list[dict[str, str]]:
    found = []
    if facts["diverged"]:
        found.append(
            {
                "title": "Part of the posterior diverged",
                "text": f"{percent(100 * facts['diverged'])} of the posterior left the range of "
                "the data in free run, which widens the band. Prefer a sparser model (a later "
                "cycle, a larger λ).",
            }
        )
    if 2 * facts["failed"] > facts["runs"]:
        found.append(
            {
                "title": "Most restarts failed",
                "text": f"{facts['failed']} of {_count(facts['runs'], 'restart')} gave no usable "
                "model. Try another λ or learning rate.",
            }
        )
    return found


def percent(value: float | None) -> str:
    """``87 %``; one decimal where whole numbers would hide the difference to 0 or 100."""
    if value is None:
        return "not finite"
    near_an_end = 0 < abs(value) < 1 or 99 < value < 100
    return f"{value:.1f} %" if near_an_end else f"{value:.0f} %"


def p_value(p: float) -> str:
    """``p = 0.003``, never a meaningless string of zeros."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _each(outputs: list[dict[str, Any]], key: str, factor: float) -> str:
    """One percentage, or one for each output with its name."""
    if len(outputs) == 1:
        return percent(factor * outputs[0][key])
    return ", ".join(f"{percent(factor * out[key])} ({out['name']})" for out in outputs)


def _names(outputs: list[dict[str, Any]]) -> str:
    return ", ".join(out["name"] for out in outputs)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
