"""Folders of an export: written whole or not at all, and never over something of the user's.

``export.json`` in the folder names every file with its checksum.  A folder may be replaced only if
it is empty, or if all it holds is an export that nobody has touched since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from occamid.errors import FileError
from occamid.files.folder import check_writable, new_folder

MANIFEST = "export.json"
LARGEST = 10_000_000  # bytes of a manifest that is read


def check(out: Path) -> None:
    """Refuse a folder that cannot be made, or that holds anything but an untouched export."""
    check_writable(out, overwrite=True)
    if not out.exists():
        return
    held = sorted(p for p in out.rglob("*") if not p.is_dir() or p.is_symlink())
    if not held and not any(out.iterdir()):
        return
    known = _manifest(out / MANIFEST)
    for path in held:
        name = path.relative_to(out).as_posix()
        if name == MANIFEST and known is not None:
            continue
        if known is None or path.is_symlink() or known.get(name) != _checksum(path):
            why = "is not an export of ours" if known is None else f"holds {name}, which is yours"
            raise FileError(f"{out} {why}; nothing was written. Choose another --out.")
    if known is None:
        raise FileError(
            f"{out} is not an export of ours; nothing was written. Choose another --out."
        )


def write(
    files: Mapping[str, str | bytes], out: Path, about: Mapping[str, Any]
) -> tuple[Path, ...]:
    """Write the files and their manifest; returns their paths."""
    check(out)
    content = {n: v.encode("utf-8") if isinstance(v, str) else v for n, v in files.items()}
    manifest = {
        "written by": f"occamid {version('occamid')}",
        **about,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in content.items()},
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=True) + "\n"
    with new_folder(out) as scratch:
        for name, data in {**content, MANIFEST: text.encode("utf-8")}.items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return tuple(out / name for name in content)


def _manifest(path: Path) -> dict[str, str] | None:
    """Checksums by name, or None where there is no manifest of ours."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST:
            return None
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    ours = isinstance(found, dict) and str(found.get("written by", "")).startswith("occamid ")
    files = found.get("files") if ours else None
    return files if isinstance(files, dict) else None


def _checksum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
