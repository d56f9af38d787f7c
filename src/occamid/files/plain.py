"""Plain data: what JSON can hold, and names that a spreadsheet does not run."""

from __future__ import annotations

import re
from typing import Any
from unicodedata import category

import numpy as np

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
ISOLATE, END = "\u2068", "\u2069"
_RIGHT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff]+")


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


def neutral(text: str) -> str:
    """A text that cannot turn the words around it, or hide any.

    Control and formatting characters are escapes; letters that are written from the right are
    kept between marks, so that what follows stays in its place.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(
        ascii(c)[1:-1] if category(c) in HIDDEN and c not in f"\n{ISOLATE}{END}" else c
        for c in text
    )
    return _RIGHT.sub(lambda piece: f"{ISOLATE}{piece[0]}{END}", shown)


def in_order(value: Any) -> Any:
    """Plain data in which every text is :func:`neutral`."""
    if isinstance(value, dict):
        return {neutral(k) if isinstance(k, str) else k: in_order(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_order(v) for v in value]
    return neutral(value) if isinstance(value, str) else value
