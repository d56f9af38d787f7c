"""One peer on one record: ``answer PEER PROBLEM ANSWER SECONDS LIMIT SEED``, run as a module.

SECONDS of the processor after which the peer begins nothing more, LIMIT after which it is ended.
"""

from __future__ import annotations

import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from platform import python_version

from occamid_benchmarks.peers import NAMES
from occamid_benchmarks.peers.exchange import Answer, Array, Problem, read_problem, write_answer
from occamid_benchmarks.peers.task import FreeRun, Task, scaling


def identify(name: str, task: Task) -> tuple[FreeRun, str]:
    """A free run and what it is; libraries are imported only here."""
    if name == "gru":
        from occamid_benchmarks.peers import gru

        return gru.identify(task)
    if name == "jax-sysid":
        from occamid_benchmarks.peers import state_space

        return state_space.identify(task)
    from occamid_benchmarks.peers import frols

    return frols.identify(task, int(name.removeprefix("frols-")))


def predict(name: str, problem: Problem, seconds: float, seed: int) -> tuple[list[Array], str]:
    """Free runs of all tests in the record's units, and what the model is."""
    scale = scaling(problem)
    records = tuple(map(scale.signals, problem.estimation))
    task = Task(records, problem.n_init, seed, time.process_time() + seconds)
    run, about = identify(name, task)
    tests = map(scale.signals, problem.tests)
    return [scale.outputs(run(test.u, test.y)) for test in tests], about


def answer(name: str, problem: Problem, seconds: float, seed: int) -> Answer:
    """A failure of any kind is an answer too."""
    began = time.process_time()
    predictions: list[Array] = []
    about = error = ""
    try:
        predictions, about = predict(name, problem, seconds, seed)
    except Exception as caught:  # whatever a library throws
        first = (str(caught).strip().splitlines() or [""])[0]
        error = f"{type(caught).__name__}: {first}"[:200]
    taken = round(time.process_time() - began, 1)
    versions = {"python": python_version(), **{d: version(d) for d in NAMES[name][1]}}
    return Answer(tuple(predictions), about, error, taken, versions)


if __name__ == "__main__":
    peer, source, target, allowed, limit, number = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 10))  # ends by SIGXCPU
    write_answer(
        Path(target), answer(peer, read_problem(Path(source)), float(allowed), int(number))
    )
