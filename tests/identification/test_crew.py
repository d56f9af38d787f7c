"""Jobs on threads and on worker processes: the same answers, in order, and clear refusals."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamid
from occamid.errors import DataError, FileError, SettingsError
from occamid.files.checkpoints import Checkpoints
from occamid.files.store import Store
from occamid.identification import crew
from occamid.identification.crew import Crew, Workers, crew_of
from tests.support.fleet_cases import CHEAP
from tests.support.small import small_record

pytest.importorskip("distributed")


def square(number: int) -> tuple[int, int]:
    return number**2, os.getpid()


def refuse() -> None:
    raise DataError("too short")


class Cluster:
    """A client whose jobs are done at once, each of them ending as it is told to."""

    def __init__(self, ends: dict[int, Any] | None = None) -> None:
        self.ends = ends or {}

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled = [future.key for future in futures]

    def nthreads(self) -> dict[str, int]:
        return {"one": 3, "two": 4}

    def map(self, do: Any, jobs: list[Any], pure: bool) -> list[Any]:
        assert not pure  # equal jobs of two calls are not one
        return [Future(k, do, job, self.ends.get(k)) for k, job in enumerate(jobs)]


class Future:
    def __init__(self, key: int, do: Any, job: Any, end: Any) -> None:
        self.key, self._do, self._job, self._end = key, do, job, end
        self.status = end if isinstance(end, str) else "error" if end else "finished"

    def exception(self) -> Any:
        return self._end

    def result(self) -> Any:
        return self._do(self._job)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = crew.distributed()
    monkeypatch.setattr(library, "as_completed", lambda futures: reversed(futures))


@pytest.mark.usefixtures("_at_once")
def test_results_keep_their_order_and_each_end_is_told() -> None:
    ended: list[tuple[int, int]] = []
    found = Crew(Cluster()).do(
        [partial(square, k) for k in range(3)], lambda k, got: ended.append((k, got[0]))
    )
    assert [value for value, _ in found] == [0, 1, 4]
    assert ended == [(2, 4), (1, 1), (0, 0)]
    assert Crew(Cluster()).size == 7


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("state", ["cancelled", "lost"])
def test_a_cluster_that_goes_away_is_told(state: str) -> None:
    with pytest.raises(FileError, match="the cluster went away"):
        Crew(Cluster({1: state})).do([partial(square, k) for k in range(2)])


@pytest.mark.usefixtures("_at_once")
def test_workers_that_are_killed_again_and_again_are_told() -> None:
    killed = crew.distributed().scheduler.KilledWorker("job", None, 3)
    with pytest.raises(FileError, match="give each of them more memory"):
        Crew(Cluster({0: killed})).do([partial(square, 1)])


@pytest.mark.usefixtures("_at_once")
def test_what_a_job_refuses_reaches_the_caller_and_ends_the_others() -> None:
    client, ended = Cluster(), list[int]()
    jobs: list[Any] = [partial(square, 1), refuse, partial(square, 2)]
    with pytest.raises(DataError, match="too short"):
        Crew(client).do(jobs, lambda k, _: ended.append(k))
    assert ended == [2]  # the last is done first here
    assert client.cancelled == [0, 1, 2]


def test_threads_are_the_rule() -> None:
    with crew_of(Workers()) as own:
        assert own.client is None
        assert own.do([partial(square, 3)]) == [(9, os.getpid())]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (Workers("tcp://127.0.0.1:1", 2), "`cluster` or `workers`, not both"),
        (Workers(None, 0), "a number of processes from 1, not 0"),
    ],
)
def test_what_cannot_be_is_refused(workers: Workers, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        crew.check(workers)


@pytest.mark.slow
def test_processes_choose_and_find_what_threads_do(tmp_path: Path) -> None:
    """And they keep what they have heard where they are told to."""
    record = small_record(200, seed=4)
    here = occamid.identify(record, seed=2, **CHEAP)
    stages: list[str] = []
    kept = Checkpoints(tmp_path / "own", Store.of(f"file://{tmp_path}/store"))
    told: dict[str, Any] = {"seed": 2, "workers": 2, "checkpoints": kept}
    there = occamid.identify(record, progress=lambda s: stages.append(s.what), **told, **CHEAP)
    assert len(list((tmp_path / "store").iterdir())) == len(there.trials) * 3
    assert there.grounds == here.grounds
    np.testing.assert_allclose(there.expected_rmse, here.expected_rmse, rtol=1e-5)
    for one, other in zip(here.model.posteriors, there.model.posteriors, strict=True):
        for name, value in one.model.weights.items():
            np.testing.assert_array_equal(other.model.weights[name], value)
    assert sum(what.startswith("fold ") for what in stages) >= 2


@pytest.mark.slow
def test_trials_of_a_search_run_on_processes() -> None:
    pytest.importorskip("optuna")
    record = small_record(200, seed=4)
    fixed = {k: v for k, v in CHEAP.items() if k not in ("lam", "input_lags", "output_lags")}
    stages: list[str] = []
    found = occamid.search(
        record, trials=3, workers=2, progress=lambda s: stages.append(s.what), **fixed
    )
    assert {what.split()[1] for what in stages if what.startswith("trial")} == {"0", "1", "2"}
    assert sorted(trial.number for trial in found.trials) == [0, 1, 2]
    assert found.chosen.finished
