"""Compiled programs are kept between runs; double precision where a test asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from occamid.data import benchmarks

CACHE = Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Free compiled programs after each file: a process can hold only so many of them."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def real_data(name: str) -> benchmarks.Data:
    """A real benchmark in the paper's split, or skip and say so."""
    folder = os.environ.get(benchmarks.VARIABLE)
    if not folder or not (Path(folder) / benchmarks.get(name).file).exists():
        pytest.skip(f"needs the real {name} record; set {benchmarks.VARIABLE} to its folder")
    return benchmarks.load(name)


@pytest.fixture
def real_hairdryer() -> benchmarks.Data:
    return real_data("hairdryer")


@pytest.fixture
def real_drives() -> benchmarks.Data:
    return real_data("coupled-drives")
