"""Plain data: what JSON can hold, and names that a spreadsheet does not run."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def cell_name(name: str) -> str:
    """A name for the header of a CSV file; a spreadsheet would run ``=A1`` as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
