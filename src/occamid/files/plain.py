"""Plain data: what JSON can hold, and names that a spreadsheet does not run."""

from __future__ import annotations

from itertools import groupby
from math import isfinite
from typing import Any
from unicodedata import bidirectional, category

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of characters that are not to be seen
ISOLATE, END = "\u2068", "\u2069"  # what stands between them does not turn the words around it


def plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def cell_name(name: str) -> str:
    """A name for the header of a CSV file; a spreadsheet would run ``=A1`` as a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def neutral(text: str) -> str:
    """A text that can neither move the cursor nor turn the words around it.

    Control and formatting characters are written as escapes; letters that are written from the
    right are set apart, so that what follows them stays in its place.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(ascii(c)[1:-1] if category(c) in HIDDEN and c != "\n" else c for c in text)
    runs = groupby(shown, key=lambda c: bidirectional(c) in ("R", "AL"))
    return "".join(ISOLATE + "".join(run) + END if right else "".join(run) for right, run in runs)


def in_order(value: Any) -> Any:
    """Plain data in which every text is :func:`neutral`."""
    if isinstance(value, dict):
        return {neutral(k) if isinstance(k, str) else k: in_order(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_order(v) for v in value]
    return neutral(value) if isinstance(value, str) else value
