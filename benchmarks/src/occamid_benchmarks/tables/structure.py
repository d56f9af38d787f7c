"""A few sentences on what the surviving structure of a model says about the process."""

from __future__ import annotations

import re
from typing import Any

from occamid_benchmarks import registry


def described(report: dict[str, Any]) -> str:
    """Which regressors survived, what delay they show, which operators of an LSTM vanished."""
    inputs, outputs = lags(report["kept_names"], "u"), lags(report["kept_names"], "y")
    name, total = report["experiment"], report["regressors_total"]
    step = registry.get(report["record"]).sampling_time
    said = [
        f"**{name}** keeps {report['regressors_kept']} of {total} regressors and "
        f"{report['neurons_kept']} of {report['neurons_total']} neurons at "
        f"{report['sparsity']:.1%} sparsity (cycle {report['cycle']}): "
        f"{_spelled('u', inputs)} and {_spelled('y', outputs)}."
    ]
    if inputs:
        first = min(inputs)
        said.append(
            f"The input acts at once: u[t] survives, of {len(inputs)} input lags."
            if first == 0
            else f"The first input lag that survives is {first}: the output answers after "
            f"{first * step:g} s."
        )
    else:
        said.append("No input survives: the outputs of this model run by themselves.")
    if not outputs:
        said.append("No past output survives: what memory it has is in its lags of u or its state.")
    said += _operators(report["sparsity_by_matrix"])
    return " ".join(said)


def lags(names: list[str], channel: str) -> list[int]:
    """Lags of one channel among names such as ``u[t-3]``, smallest first."""
    found = (re.fullmatch(rf"{channel}\d*\[t(?:-(\d+))?\]", name) for name in names)
    return sorted({int(m[1] or 0) for m in found if m})


def _spelled(channel: str, found: list[int]) -> str:
    """Lags as ranges: ``u at lags 3–5 and 9``."""
    if not found:
        return f"no {channel}"
    runs: list[list[int]] = []
    for lag in found:
        if runs and lag == runs[-1][-1] + 1:
            runs[-1].append(lag)
        else:
            runs.append([lag])
    spelled = [str(r[0]) if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs]
    return f"{channel} at lag{'s' if len(found) > 1 else ''} {', '.join(spelled)}"


def _operators(sparsity: dict[str, float]) -> list[str]:
    """Matrices of a recurrent network that vanished altogether."""
    gone = [name for name, share in sparsity.items() if share == 1.0 and "W_" in name]
    if not any("W_" in name for name in sparsity):
        return []
    if not gone:
        return ["None of the LSTM's eight operators vanished."]
    return [f"Of the LSTM's operators {', '.join(f'`{n}`' for n in gone)} vanished altogether."]
