"""A fleet of 240 logs on two workers, disturbed ten times: a worker is killed, then the client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.fleets.test_workers import CHILD, MAIN, gone, soon, workers_of
from tests.support.fleet_cases import CONFIG, logs, same_models

pytest.importorskip("distributed")
pytestmark = [pytest.mark.study, pytest.mark.slow, pytest.mark.timeout(3600)]
COUNT, RUNS = 240, 10


def start(home: Path, out: str, *more: str) -> subprocess.Popen[str]:
    files = [str(path) for path in sorted((home / "logs").iterdir())]
    told = ("--input", "valve", "--output", "level", "--config", str(home / "job.toml"), "--json")
    command = [sys.executable, *MAIN, "fleet", *files, *told, "--out", str(home / out), *more]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        env={**os.environ, **CHILD}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def done(out: Path) -> dict[Path, int]:
    """When each asset was written; a hidden folder was still in the making at a kill."""
    return {path: path.stat().st_mtime_ns for path in out.glob("assets/[!.]*/asset.json")}


def enough(out: Path, assets: float) -> bool:
    """Whether so many are done and some are at work."""
    return len(done(out)) >= assets and bool(workers_of(out))


def all_gone(workers: list[int]) -> bool:
    return all(map(gone, workers))


def test_ten_disturbed_fleets_equal_the_undisturbed_one(tmp_path: Path) -> None:
    """The worker after a random share of the work, the client after a random share of the rest."""
    (tmp_path / "job.toml").write_text(CONFIG, "utf-8")
    logs(tmp_path / "logs", COUNT)
    began = time.monotonic()
    calm = start(tmp_path, "calm")
    _, errors = calm.communicate()
    assert calm.returncode == 0, errors
    print(f"undisturbed: {time.monotonic() - began:.0f} s")
    for run in range(RUNS):
        began, rng, out = time.monotonic(), np.random.default_rng(run), tmp_path / f"run{run}"
        shares = np.sort(rng.uniform(0.02, 0.9, 2))
        client = start(tmp_path, out.name)
        soon(partial(enough, out, shares[0] * COUNT))
        for worker in workers_of(out)[:1]:
            os.kill(worker, signal.SIGKILL)
        soon(partial(enough, out, shares[1] * COUNT))
        workers = workers_of(out)
        client.kill()
        client.communicate()
        soon(partial(all_gone, workers))
        before = done(out)
        again = start(tmp_path, out.name, "--resume")
        _, errors = again.communicate()
        assert again.returncode == 0, errors
        assert same_models(tmp_path / "calm", out)
        found = json.loads((out / "fleet.json").read_text("utf-8"))
        assert sorted(row["asset"] for row in found["assets"]) == sorted(
            f"pump{k}" for k in range(COUNT)
        )
        assert not found["failures"]
        assert {path: done(out)[path] for path in before} == before  # none was done twice
        print(f"run {run}: {len(before)} done before, {time.monotonic() - began:.0f} s")
