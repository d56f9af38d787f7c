"""How many workers: the variable, else affinity, else the quota of control groups."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from occamid.identification import identify as identifying
from occamid.training import cores as module
from occamid.training import quota
from occamid.training.cores import (
    VARIABLE,
    cores,
    device,
    limited,
    on_cpu,
    side_by_side,
    small_algebra,
)
from occamid.training.entries import VARIABLE as PROGRAMS
from tests.support.small import small_record


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups, none at first; sixteen cores by affinity; nothing asked for."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(quota, "GROUPS", tmp_path)
    monkeypatch.setattr(quota, "MEMBERSHIP", tmp_path / "cgroup")
    return tmp_path


def write(groups: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 16),
        ("max 100000\n", 16),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # a core and a half: two workers
        ("10000 100000\n", 1),
        ("9900000 100000\n", 16),
        ("", 16),
        ("nonsense\n", 16),
    ],
)
def test_the_quota_of_the_control_group(groups: Path, text: str | None, expected: int) -> None:
    write(groups, {} if text is None else {"cpu.max": text})
    assert cores() == expected


@pytest.mark.parametrize(
    ("member", "files", "expected"),
    [
        ("0::/user/job", {"user/job/cpu.max": "100000 100000"}, 1),
        ("0::/user/job", {"user/job/cpu.max": "max 100000", "user/cpu.max": "300000 100000"}, 3),
        ("0::/named/outside", {"cpu.max": "200000 100000"}, 2),  # a container sees its own as root
        ("4:memory:/a\n1:cpu,cpuacct:/b\n0::/", {
            "cpu,cpuacct/b/cpu.cfs_quota_us": "100000\n",
            "cpu,cpuacct/b/cpu.cfs_period_us": "50000\n",
        }, 2),
        ("1:cpu:/b", {"cpu/b/cpu.cfs_quota_us": "-1\n", "cpu/b/cpu.cfs_period_us": "1\n"}, 16),
        ("4:cpuset:/b", {"cpuset/b/cpu.max": "100000 100000"}, 16),
    ],
)  # fmt: skip
def test_the_groups_a_process_is_in_and_those_above_them_count(
    groups: Path, member: str, files: dict[str, str], expected: int
) -> None:
    """Of either version of control groups."""
    write(groups, files | {"cgroup": member})
    assert cores() == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("3", 3), ("64", 64), ("0", 2), ("-1", 2), ("", 2), ("many", 2), ("1.5", 2)],
)
def test_the_variable_goes_first(
    groups: Path, monkeypatch: pytest.MonkeyPatch, asked: str, expected: int
) -> None:
    write(groups, {"cpu.max": "200000 100000"})
    monkeypatch.setenv(VARIABLE, asked)
    assert cores() == expected


def test_affinity_and_where_there_is_none(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_jobs_run_at_the_same_time_and_answer_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    meeting = threading.Barrier(2)  # passed only if two jobs wait at once

    def job(k: int) -> int:
        meeting.wait(10)
        return k

    assert side_by_side([partial(job, k) for k in range(4)]) == [0, 1, 2, 3]


def test_the_first_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    begun: list[int] = []

    def job(k: int) -> None:
        begun.append(k)
        if k == 0:
            raise ValueError("no")
        threading.Event().wait(0.05)

    with pytest.raises(ValueError, match="no"):
        side_by_side([partial(job, k) for k in range(100)])
    assert len(begun) < 100


def test_one_core_uses_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    here = threading.get_ident()
    assert side_by_side([threading.get_ident] * 3) == [here] * 3


def test_a_job_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "5")
    assert side_by_side([cores, cores]) == [2, 2]
    assert side_by_side([cores]) == [5]
    assert cores() == 5


def test_fewer_cores_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "5")
    with limited(2):
        assert cores() == 2
        with limited(1):
            assert cores() == 1
        assert cores() == 2
    assert cores() == 5


def test_small_algebra_has_one_thread() -> None:
    """Threads of LAPACK that wait for each other cost more than half of an identification."""

    def threads() -> set[int]:
        return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

    before = threads()
    with threadpool_limits(2, "blas"):
        with small_algebra():
            assert threads() == {1}
        assert threads() == {2}
    assert threads() == before


@pytest.mark.parametrize("told", ["cpu", jax.devices("cpu")[0]])
def test_where_programs_run_is_what_jax_was_told(
    monkeypatch: pytest.MonkeyPatch, told: object
) -> None:
    """A device, the name of a platform, or nothing: then it is the first of all devices."""
    first = SimpleNamespace(platform="gpu", device_kind="one of these")
    devices = {None: first, "cpu": jax.devices("cpu")[0]}
    monkeypatch.setattr(jax, "devices", lambda platform=None: [devices[platform]])
    assert not on_cpu()
    assert device() is first
    with jax.default_device(told):
        assert on_cpu()
        assert device() is devices["cpu"]


GPUS = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from occamid import Settings, Record, train
from occamid.training import cores, train as training
def where(_=None):
    return next(iter(jnp.ones(1).devices())).id
assert cores.side_by_side([where] * 4) == [0] * 4  # two devices of cores are one
rng = np.random.default_rng(0)
u = rng.normal(size=200)
record = Record(u=u, y=np.convolve(u, [0.0, 1.0, 0.5])[:200])
settings = Settings(hidden=(3,), input_lags=2, output_lags=2, restarts=4, epochs=5, cycles=2)
alone = train(record, settings)
cores.on_cpu = training.on_cpu = lambda: False  # as if they were GPUs
assert cores.side_by_side([where] * 4) == [0, 1, 0, 1]
inner = partial(cores.side_by_side, [where] * 2)  # what a job begins stays where the job is
assert cores.side_by_side([inner, inner]) == [[0, 0], [1, 1]]
with jax.default_device(jax.devices()[1]):
    assert cores.side_by_side([where] * 3) == [1] * 3
used, begin = set(), training.init_batch
def watched(*args):
    used.add(cores.device().id)
    return begin(*args)
training.init_batch = watched
shared = train(record, settings)
assert used == {0, 1}
for name in alone.params:
    np.testing.assert_allclose(alone.params[name], shared.params[name], rtol=1e-4, atol=1e-6)
"""


def test_several_gpus_share_jobs_and_restarts(tmp_path: Path) -> None:
    """Two devices of this machine in their place: each has its turn, and the weights are equal."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    env = {**os.environ, "XLA_FLAGS": flags, "OCCAMID_THREADS": "4", PROGRAMS: str(tmp_path)}
    kept = []
    for _ in range(2):  # each has its own programs, which the second process finds
        subprocess.run([sys.executable, "-c", GPUS], env=env, check=True)
        trained = tmp_path.glob("*_cycle_of_all*")  # what is small may be too quick to be kept
        kept.append({path.name: path.stat().st_mtime_ns for path in trained})
    assert kept[0] == kept[1] != {}


@pytest.mark.parametrize(
    ("backend", "rows", "told", "expected"),
    [
        ("gpu", 1_000, None, ["cpu"]),
        ("gpu", 20_001, None, []),
        ("cpu", 1_000, None, []),
        ("gpu", 1_000, "gpu", []),  # the user knows better
    ],
)
def test_short_records_stay_on_the_cores_beside_a_gpu(
    monkeypatch: pytest.MonkeyPatch, backend: str, rows: int, told: str | None, expected: list[str]
) -> None:
    places: list[str | None] = []

    @contextmanager
    def default_device(place: str | None) -> Iterator[None]:
        places.append(place)
        yield

    fake = SimpleNamespace(
        config=SimpleNamespace(jax_default_device=told), default_backend=lambda: backend,
        devices=lambda platform: [platform], default_device=default_device,
    )  # fmt: skip
    monkeypatch.setattr(module, "jax", fake)
    with module.suited_to(rows):
        pass
    assert places == expected

    def none(platform: str) -> list[str]:
        raise RuntimeError(f"no {platform}")

    fake.devices = none  # JAX knows the GPU alone
    with module.suited_to(rows):
        pass
    assert places == expected + [None] * len(expected)


def test_an_identification_runs_where_it_suits_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []

    @contextmanager
    def suited(rows: int) -> Iterator[None]:
        entered.append(rows)
        yield
        entered.append(-rows)

    monkeypatch.setattr(identifying, "suited_to", suited)
    monkeypatch.setattr(identifying, "_identified", lambda *_: entered.append(0))
    identifying.identify([small_record(40), small_record(60)])
    assert entered == [100, 0, -100]
