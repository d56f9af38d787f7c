"""The real benchmark records, where the machine has them."""

import os
from pathlib import Path

import pytest

from occamid_benchmarks import registry
from occamid_benchmarks.suite import records


def real_data(name: str) -> registry.Data:
    """A real benchmark in the paper's split, or skip and say so."""
    folder = os.environ.get(registry.VARIABLE)
    if not folder or not (Path(folder) / registry.get(name).file).exists():
        pytest.skip(f"needs the real {name} record; set {registry.VARIABLE} to its folder")
    return registry.load(name)


def real_case(name: str) -> records.Case:
    """A record of the suite on its official split, or skip and say so."""
    if name in registry.BENCHMARKS:
        real_data(name)
    else:
        folder = os.environ.get(registry.VARIABLE)
        files = records.SOURCES[name].files
        if not folder or not all((Path(folder) / records.FOLDER / f).exists() for f in files):
            pytest.skip(f"needs the real {name} record; set {registry.VARIABLE} to its folder")
    return records.load(name)
