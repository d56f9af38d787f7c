"""Finished cycles on disk, so that a run that was cut off can go on where it stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from occamid.files.atomic import replace_file


def digest_of(*parts: Any) -> str:
    """A name for everything that determines a chunk's numbers: settings, data, models."""
    digest = sha256()
    for leaf in jax.tree.leaves(parts):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class Checkpoints:
    """A folder with one file for each finished cycle of each chunk."""

    folder: Path

    def _path(self, key: str, cycle: int) -> Path:
        return self.folder / f"{key}-{cycle}.safetensors"

    def save(self, key: str, cycle: int, tree: Any) -> None:
        """Keep a tree of arrays; the file is whole or not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
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

    def clear(self) -> None:
        """Remove every file, half-written ones too, and the folder if nothing else is in it."""
        for pattern in ("*.safetensors", ".*.safetensors-*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            os.rmdir(self.folder)
