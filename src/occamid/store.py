"""Results on disk: JSON and TOML for people, safetensors for arrays, never half a folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from occamid.errors import FileError
from occamid.result import Result

SETTINGS, SUMMARY, WEIGHTS = "settings.toml", "result.json", "weights.safetensors"


def check_writable(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is taken or cannot be made, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} exists and is not a folder; choose another --out.")
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise FileError(f"{folder} already holds files; choose another --out, or use --force.")
    parent = folder.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent):
            pass
    except OSError as error:
        raise FileError(
            f"cannot write to {parent}: {error.strerror}; choose another --out."
        ) from None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder that takes the place of ``folder`` at the end, and only on success."""
    parent = folder.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
    except OSError as error:
        raise FileError(f"cannot write to {parent}: {error.strerror}.") from None
    try:
        yield scratch
        scratch.chmod(0o755)  # mkdtemp makes private folders
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=parent))
            os.replace(folder, old / "was")
            os.replace(scratch, folder)
            shutil.rmtree(old)
        else:
            os.replace(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_result(result: Result, folder: Path, extra: dict[str, Any] | None = None) -> None:
    """Settings, figures of every model, and the weights and prior widths of every cycle."""
    (folder / SETTINGS).write_text(result.settings.to_toml(), encoding="utf-8")
    arrays = {f"params/{name}": value for name, value in result.params.items()}
    for name, widths in result.psi.items():
        arrays.update({f"psi/{name}/{k}": value for k, value in enumerate(widths)})
    (folder / WEIGHTS).write_bytes(save({n: np.ascontiguousarray(v) for n, v in arrays.items()}))
    (folder / SUMMARY).write_text(
        json.dumps(summary(result) | (extra or {}), indent=1, allow_nan=False), encoding="utf-8"
    )


def summary(result: Result) -> dict[str, Any]:
    """What a report needs, as plain JSON values."""
    best = result.best
    scaling = result.scaling
    return {
        "provenance": dict(result.provenance) | {"seed": result.settings.seed},
        "seconds": {k: round(v, 3) for k, v in result.seconds.items()},
        "samples": result.count,
        "sampling_time": result.sampling_time,
        "regressors": list(result.regressors.names),
        "scaling": {k: getattr(scaling, k).tolist() for k in scaling.__dataclass_fields__},
        "best": {
            "index": result.best_index._asdict(),
            "regressors": list(best.regressors),
            "neurons": list(best.neurons),
            "parameters": best.compact().parameters,
        },
        "rows": [_plain(row._asdict()) for row in result.rows()],
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
