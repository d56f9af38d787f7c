"""Which version made a result, on which machine."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from typing import Any

import jax

from occamid.training.cores import device


def provenance_key() -> str:
    """What must be the same for kept cycles to be used again, besides settings and data."""
    return f"{version('occamid')} {jax.__version__} {device().platform}"


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
