"""Compiled programs are kept between runs; double precision where a test asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.io

from occamid import Record

CACHE = Path(__file__).parent.parent / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def real_file(name: str) -> dict[str, np.ndarray]:
    """Variables of a real record, or skip and say so."""
    folder = os.environ.get("OCCAMID_DATA")
    if not folder or not (Path(folder) / name).exists():
        pytest.skip(f"needs the real record {name}; set OCCAMID_DATA to the folder that holds it")
    return scipy.io.loadmat(Path(folder) / name)


@pytest.fixture
def real_hairdryer() -> tuple[list[Record], list[Record]]:
    """Estimation and validation record of the real hairdryer."""
    data = real_file("hairdryer.mat")
    return (
        [Record(u=data["ue"], y=data["ye"], sampling_time=0.08, name="hairdryer estimation")],
        [Record(u=data["uv"], y=data["yv"], sampling_time=0.08, name="hairdryer validation")],
    )


@pytest.fixture
def real_drives() -> tuple[list[Record], list[Record]]:
    """First 300 and last 200 samples of the two drives."""
    data = real_file("coupled_drives.mat")
    drives = [
        Record(u=data[f"u1{k}"].ravel(), y=data[f"z1{k}"].ravel(), sampling_time=0.02, name=f"{k}")
        for k in (1, 2)
    ]
    return [d[:300] for d in drives], [d[300:] for d in drives]
