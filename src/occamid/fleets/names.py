"""Names of assets: from files, as folders, as seeds.

A name is anything that stands in a column or a path; what becomes of it must stay in its folder.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from occamid.errors import SettingsError

PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")  # safe everywhere, also where case does not count
RESERVED = re.compile(r"con|prn|aux|nul|com\d|lpt\d")  # no folders on Windows
LONGEST = 40  # characters that are kept of other names
DIGITS = 10  # of their digest


def folder_name(asset: str) -> str:
    """The folder of an asset: its name where that is plain, else what is left and a digest."""
    if PLAIN.fullmatch(asset) and not RESERVED.fullmatch(asset):
        return asset
    kept = re.sub(r"[^A-Za-z0-9_-]+", "-", asset)[:LONGEST].strip("-") or "asset"
    return f"{kept}-{_digest(asset)[:DIGITS]}"


def seed_of(asset: str, seed: int) -> int:
    """A seed for each asset that neither its place in the list nor its neighbours change."""
    return int(_digest(f"{seed}\0{asset}")[:8], 16) % 2**31


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def names_of(paths: Sequence[Path]) -> list[str]:
    """One name for each file: its own without the ending, or as much of its path as it takes."""
    full = [Path(os.path.abspath(path)) for path in paths]
    twice = next((p for p, count in Counter(full).items() if count > 1), None)
    if twice is not None:
        raise SettingsError(f"{twice} is named twice; each file is one asset.")
    stems = Counter(path.stem for path in full)
    same = [path for path in full if stems[path.stem] > 1]
    root = os.path.commonpath([path.parent for path in same]) if same else ""
    names = [
        path.stem if stems[path.stem] == 1 else path.relative_to(root).as_posix() for path in full
    ]
    if len(set(names)) < len(names):
        raise SettingsError("two of the files would have the same name; rename one of them.")
    return names
