"""The work of ``occamid inspect --linear``: a model at an operating point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from occamid.bands.combine import load
from occamid.bands.linear import Linear, linearise
from occamid.bands.responses import responses
from occamid.cli.shared import console, say
from occamid.errors import DataError
from occamid.files.plain import plain


def inspect_linear(run: Path, at: tuple[float, ...] | None, as_json: bool) -> None:
    """Operating point, poles, time constants and gain of the leading member, gains with bands."""
    ensemble = load(run)
    u0 = None if at is None else np.array(at)
    found = linearise(ensemble, u0)
    try:
        band = responses(ensemble, u0, samples=2)
        std, left_out = band.gain.std.tolist(), band.left_out
    except DataError:  # unstable throughout: said below
        std, left_out = None, 1.0
    facts: dict[str, Any] = {
        "u0": dict(zip(found.input_names, found.u0.tolist(), strict=True)),
        "y0": dict(zip(found.output_names, found.y0.tolist(), strict=True)),
        "stable": found.stable,
        "poles": [[float(p.real), float(p.imag)] for p in found.poles],
        "time_constants": found.time_constants.tolist(),
        "gain": found.gain.tolist(),
        "gain_std": std,
        "left_out": left_out,
        **{letter: getattr(found, letter).tolist() for letter in "ABCD"},
    }
    if as_json:
        print(json.dumps(plain(facts)))
    else:
        _show(found, facts)


def _show(found: Linear, facts: dict[str, Any]) -> None:
    """The same for people."""
    std, left_out = facts["gain_std"], facts["left_out"]
    for what in ("u0", "y0"):
        said = ", ".join(f"{n} = {v:.5g}" for n, v in facts[what].items())
        say(f"{'inputs' if what == 'u0' else 'outputs'} at rest: {said}")
    say("stable there" if found.stable else "UNSTABLE there: it does not stay at rest")
    table = Table(title="poles, slowest first", title_justify="left")
    for heading in ("pole", "magnitude", "time constant [s]"):
        table.add_column(heading)
    for p, tau in zip(found.poles[:12], found.time_constants[:12], strict=True):
        spelled = f"{p.real:.5f}" + (
            f" {'+' if p.imag > 0 else '-'} {abs(p.imag):.5f}i" if p.imag else ""
        )
        table.add_row(spelled, f"{abs(p):.5f}", f"{tau:.4g}")
    console.print(table)
    for k, output in enumerate(found.output_names):
        for j, name in enumerate(found.input_names):
            doubt = "" if std is None else f", ± {std[k][j]:.2g} over the ensemble"
            say(f"gain of {output} over {name}: {found.gain[k, j]:.5g}{doubt}")
    if left_out > 1e-9:
        say(f"{left_out:.0%} of the ensemble has no stable operating point there")
