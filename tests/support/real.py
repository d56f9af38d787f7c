"""The real benchmark records, where the machine has them."""

import os
from pathlib import Path

import pytest

from occamid_benchmarks import registry


def real_data(name: str) -> registry.Data:
    """A real benchmark in the paper's split, or skip and say so."""
    folder = os.environ.get(registry.VARIABLE)
    if not folder or not (Path(folder) / registry.get(name).file).exists():
        pytest.skip(f"needs the real {name} record; set {registry.VARIABLE} to its folder")
    return registry.load(name)
