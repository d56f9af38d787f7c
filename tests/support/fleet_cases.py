"""Small logs of many assets, and a fit that takes a moment: one network, few epochs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.support.small import small_record

ROWS = 120
CHEAP: dict[str, Any] = {
    "effort": "quick",
    "network": "mlp",
    "hidden": (2,),
    "lam": (1e-3,),
    "restarts": 2,
    "epochs": 5,
    "cycles": 1,
    "input_lags": 3,
    "output_lags": 2,
}
CONFIG = "[options]\n" + "".join(
    f"{k} = {json.dumps(list(v) if isinstance(v, tuple) else v)}\n" for k, v in CHEAP.items()
)
COLUMNS: dict[str, Any] = {"inputs": ["valve"], "outputs": ["level"]}
HOSTILE = ("../../etc/passwd", "=HYPERLINK(1)", "\u202egnp.exe", "אבג", "a/b", "<script>", "con")


def lines(seed: int, prefix: str = "") -> list[str]:
    """The rows of a log as text."""
    r = small_record(ROWS, seed)
    return [
        f"{prefix}{0.1 * k:.1f},{u:.9g},{y:.9g}"
        for k, (u, y) in enumerate(zip(r.u[:, 0], r.y[:, 0], strict=True))
    ]


def logs(folder: Path, count: int, bad: bool = False) -> list[Path]:
    """One file for each asset, and perhaps one that cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"pump{k}.csv" for k in range(count)]
    for k, path in enumerate(paths):
        path.write_text("\n".join(["time,valve,level", *lines(k)]) + "\n", "utf-8")
    if bad:
        paths.append(folder / "bad.csv")
        text = paths[0].read_text("utf-8").splitlines()
        text[7] = "0.6,1.0,oops"
        paths[-1].write_text("\n".join(text) + "\n", "utf-8")
    return paths


def together(path: Path, names: tuple[str, ...]) -> Path:
    """One file with the rows of all assets, one row of each at a time."""
    rows = zip(*(lines(k, f'"{name}",') for k, name in enumerate(names)), strict=True)
    text = ["asset,time,valve,level", *(line for group in rows for line in group)]
    path.write_text("\n".join(text) + "\n", "utf-8")
    return path


def models(out: Path) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of every model of a fleet, by the folder of the asset."""
    return {p.parent.name: load_file(p) for p in sorted(out.glob("assets/*/model.safetensors"))}


def same_models(one: Path, other: Path) -> bool:
    """Whether two fleets hold the same models, to the last bit."""
    a, b = models(one), models(other)
    return a.keys() == b.keys() and all(
        a[k].keys() == b[k].keys() and all(np.array_equal(a[k][n], b[k][n]) for n in a[k])
        for k in a
    )
