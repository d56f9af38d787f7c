"""Compiled programs are kept between runs; double precision where a test asks for it.

With ``OCCAMID_CHECK_SHAPES`` set, every array that goes into or comes out of a function of occamid
is checked against its annotation; the hook must be there before the first import of occamid.
"""

import gc
import os
from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import pytest

if os.environ.get("OCCAMID_CHECK_SHAPES"):
    from tests.support.shapes import check_shapes

    check_shapes()

from occamid.identification.options import BUDGETS
from occamid.training.entries import VARIABLE as PROGRAMS
from occamid.training.programs import forget
from occamid_benchmarks import registry
from tests.support.places import CACHE
from tests.support.real import real_data

# Arrays are checked where programs are traced: nothing is kept then.
os.environ[PROGRAMS] = "" if os.environ.get("OCCAMID_CHECK_SHAPES") else str(CACHE)

# What JAX traces lives long: to look through it again and again takes a tenth of all time.
gc.set_threshold(200_000, 20, 100)


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Free compiled programs after each file: a process can hold only so many of them."""
    yield
    forget()


@pytest.fixture(scope="module")
def two_folds() -> Iterator[None]:
    """Quick runs judge on two folds: every fold compiles, and what follows is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", replace(BUDGETS["quick"], folds=2))
        yield


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small matrices: on a busy machine two BLAS threads are ten times slower than one."""
    with pytest.importorskip("threadpoolctl").threadpool_limits(1):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def real_hairdryer() -> registry.Data:
    return real_data("hairdryer")


@pytest.fixture
def real_drives() -> registry.Data:
    return real_data("coupled-drives")


# What trains or compiles much: left out of `make check`, part of `make test`.
LONG = (
    *("bands", "benchmarks", "cli", "export", "identification", "reporting"),
    *("fleets/test_fleet", "fleets/test_store"),
    *("training/test_state_space", "training/test_free_run", "training/test_train"),
    *("training/test_padding", "files/test_checkpoints", "files/test_killed"),
)


# Whole identifications and published figures, minutes each: `make study`.
STUDY = ("identification/test_live", "benchmarks/test_published")


# Minutes in one file: they go first, so that no worker is left alone with one at the end.
FIRST = (
    *("cli/test_journey", "identification/test_identify", "identification/test_estimator"),
    *("bands/test_monte_carlo", "export/test_records", "training/test_curvature"),
    *("networks/test_simulate", "export/test_deploy_page", "training/test_state_space"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark long tests and studies by where they are; the longest files first."""
    first = {f"{place}.py": number for number, place in enumerate(FIRST)}
    items.sort(key=lambda item: first.get("/".join(item.path.parts[-2:]), len(first)))
    for item in items:
        if any(f"tests/{place}" in item.path.as_posix() for place in STUDY):
            item.add_marker(pytest.mark.study)
        if any(f"tests/{place}" in item.path.as_posix() for place in LONG):
            item.add_marker(pytest.mark.long)
