"""Which version made a result, on which machine."""

from __future__ import annotations

import os
import platform
import time
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from occamid.training.cores import device


def provenance_key() -> str:
    """What must be the same for kept cycles to be used again, besides settings and data."""
    return f"{version('occamid')} {jax.__version__} {device().platform}"


@cache
def source() -> str:
    """A digest of this package's own modules: work that outlives a run is that of one source."""
    home = Path(__file__).parents[1]
    digest = sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(f"{path.relative_to(home).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def provenance() -> dict[str, Any]:
    """Version and machine, for every file of results."""
    return {
        "version": version("occamid"),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": device().device_kind,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
