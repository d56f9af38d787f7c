"""Finished work on disk, so that a run that was cut off can go on where it stopped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from occamid.errors import FileError
from occamid.files.atomic import replace_file
from occamid.files.store import ENDING, Store

DIGITS = 24  # of a key
NAME = rf"[0-9a-f]{{{DIGITS}}}(-\d+\.safetensors|{re.escape(ENDING)})"  # a cycle, or an entry
OURS = re.compile(rf"{NAME}|\.{NAME}-\w{{8}}")  # or one half written by ``replace_file``


def digest_of(*parts: Any) -> str:
    """A name for everything that determines a chunk's numbers: settings, data, models."""
    digest = sha256()
    for leaf in jax.tree.leaves(parts):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Checkpoints:
    """A folder with one file for each finished cycle of each chunk, and a store of finished units.

    The store is the folder itself, unless the user has ``named`` one, which is left alone.
    """

    folder: Path
    named: Store | None = None

    @property
    def store(self) -> Store:
        """Where finished units are kept."""
        return self.named or Store.of(self.folder)

    def _path(self, key: str, cycle: int) -> Path:
        return self.folder / f"{key}-{cycle}.safetensors"

    def save(self, key: str, cycle: int, tree: Any) -> None:
        """Keep a tree of arrays; the file is whole or not there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make {self.folder}: {error.strerror}.") from None
        leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(jax.device_get(tree))]
        content = save({str(k): leaf for k, leaf in enumerate(leaves)})
        replace_file(self._path(key, cycle), content)

    def load(self, key: str, cycle: int, like: Any) -> Any | None:
        """The tree of a finished cycle in the shape of ``like``; None where there is none."""
        shapes, structure = jax.tree.flatten(like)
        try:
            found = load(self._path(key, cycle).read_bytes())
        except (OSError, SafetensorError):
            return None
        leaves = [found.get(str(k)) for k in range(len(shapes))]
        for leaf, shape in zip(leaves, shapes, strict=True):
            if leaf is None or (leaf.shape, leaf.dtype) != (shape.shape, shape.dtype):
                return None
        return jax.tree.unflatten(structure, leaves)

    def kept(self) -> list[Path]:
        """Files of finished work, half-written ones too; others that lie there are not ours."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return []
        found = [p for p in self.folder.iterdir() if OURS.fullmatch(p.name)]
        return [p for p in found if p.is_file() and not p.is_symlink()]

    def clear(self) -> None:
        """Remove every file of ours, and the folder if nothing else was in it."""
        found = self.kept()
        for path in found:
            path.unlink(missing_ok=True)
        if found and not any(self.folder.iterdir()):
            self.folder.rmdir()
