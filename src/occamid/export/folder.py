"""Folders of an export: written whole or not at all, and never over something of the user's.

The list of its files that every folder of occamid holds (:mod:`occamid.files.manifest`) tells what
may be replaced; ``export.json`` among them tells an export from a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from occamid.errors import FileError
from occamid.files.folder import Place, claim, new_folder

ABOUT = "export.json"


@contextmanager
def place(out: Path) -> Iterator[Place]:
    """Keep a folder for an export; one that holds anything but an untouched export is refused."""
    with claim(out, overwrite=True) as found:
        if found.old and ABOUT not in found.old:
            raise FileError(f"{out} is a run of occamid, not an export; choose another `out`.")
        yield found


def write(
    files: Mapping[str, str | bytes], place: Place, about: Mapping[str, Any]
) -> tuple[Path, ...]:
    """Write the files; returns their paths."""
    facts = {"written by": f"occamid {version('occamid')}", **about, "files": [*files]}
    with new_folder(place) as scratch:
        (scratch / ABOUT).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        for name, data in files.items():
            (scratch / name).write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    return tuple(place.folder / name for name in files)
