"""Whatever lies in and around ``--out``: what no run wrote is there after any command."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from occamid import cli
from occamid.bands.modelfile import NAME as MODEL
from occamid.cli import inspection, simulation
from occamid.errors import DataError, FileError
from occamid.files.checkpoints import Checkpoints, digest_of
from occamid.files.manifest import NEXT
from occamid.identification import identify as identification
from occamid.identification.job import Job
from occamid.reporting import figures, runs
from tests.support.folders import write

Entry = bytes | str | None  # a file, where a link leads, a folder
NAMES = (MODEL, runs.SETTINGS, runs.CONTENT, runs.PAGE, "more.txt")
DEAD = ".out.new-99999999-abcdefgh"  # named like a folder of a process that is gone
INSIDE = (*NAMES, "run.json", "notes.txt", "sub/deep.csv", ".occamid-next", ".occamid-scratch")
WAITING = (".occamid-next/run.json", f".occamid-next/{MODEL}")
BESIDE = (
    *("log.csv", "job.toml", "sim.csv", "plot.png", "link", "out-1", "data", "data/log.csv"),
    *(".out.lock", ".out.partial", ".out.partial/weights.safetensors", ".out.partial/a-0.txt"),
    *(f"{DEAD}/notes.txt", f"{DEAD}/run.json", ".data.lock", ".disk.partial/x"),
)
FOLDERS = ("out", "data", "disk")
PATHS = (*BESIDE, *(f"{f}/{n}" for f in FOLDERS for n in (*INSIDE, *WAITING)))
OUTS = (*FOLDERS, "link", "data/../out", "out/sub", ".out.partial", DEAD, "deep/er")
entries = st.one_of(
    st.binary(max_size=3).map(lambda b: b"# " + b.hex().encode()),  # TOML too
    st.just(b""),
    st.none(),
    st.sampled_from([*FOLDERS, "log.csv", "missing", f"out/{MODEL}", "data/log.csv"]),
)
worlds = st.tuples(
    st.dictionaries(st.sampled_from(FOLDERS), st.sets(st.sampled_from(NAMES)), max_size=3),
    st.dictionaries(st.sampled_from(PATHS), entries, max_size=12),
)
flags = st.lists(st.sampled_from(["--force", "--resume"]), unique=True)
force = st.sampled_from([[], ["--force"]])
identify = st.builds(
    lambda read, test, out, more: ["identify", read, "--test", test, "--out", out, *more],
    *(st.sampled_from(["log.csv", "data/log.csv", "link", f"out/{MODEL}"]),) * 2,
    st.sampled_from(OUTS),
    flags,
)
configured = st.builds(
    lambda arguments, config: [*arguments, "--config", config],
    identify,
    st.sampled_from(["job.toml", f"out/{runs.SETTINGS}", "data/../job.toml"]),
)
uses = st.builds(
    lambda name, run, out, more: [*name, *run, "--out", out, *more],
    st.sampled_from([("simulate",), ("predict",), ("compare",)]),
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(["log.csv", "link"])),
    st.sampled_from(["sim.csv", "plot.png", "link", "log.csv", "data/../log.csv", *PATHS]),
    force,
)
reports = st.builds(
    lambda run, out, more: ["report", run, *out, *more],
    st.sampled_from(FOLDERS),
    st.sampled_from([[], ["--out", "page.html"], ["--out", f"out/{runs.CONTENT}"]]),
    force,
)
commands = st.tuples(
    st.one_of(identify, configured, uses, reports),
    st.sampled_from(["well", "well", "bad data", "stopped", "full disk", "full while writing"]),
    st.sets(st.sampled_from(NAMES)),
)
ending: list[Any] = ["well", ()]  # how the next command ends, and the files it writes


def _identify(*_: object, checkpoints: Checkpoints, **__: object) -> SimpleNamespace:
    checkpoints.save(digest_of("a"), 0, [np.zeros(1)])
    if ending[0] == "bad data":
        raise DataError("no model is usable.")
    if ending[0] == "stopped":
        raise KeyboardInterrupt
    if ending[0] == "full disk":
        raise FileError("cannot write a cycle: No space left on device.")
    return SimpleNamespace(trials=())


def _write(found: object, job: Job, test: object, folder: Path, *_: object) -> dict[str, object]:
    for name in ending[1]:
        (folder / name).write_bytes(b"new")
    if ending[0] == "full while writing":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return {"verdict": {"headline": "good", "warnings": []}, "test": []}


class Ensemble(SimpleNamespace):
    """Predicts nothing."""

    start, parameters = 0, 1

    def simulate(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(mean=np.zeros((30, 1)), n_init=0, rmse=lambda _: np.zeros(1))

    predict = simulate


@pytest.fixture(autouse=True, scope="module")
def empty_models() -> Iterator[None]:
    """Commands that read and write for real, with nothing to compute."""
    record = SimpleNamespace(name="log", y=np.zeros((30, 1)), output_names=("y",))
    log = SimpleNamespace(record=record, complete=True, measured=30, times=[0.0])
    judged = {"rmse": (0.0,), "fit": (0.0,), "coverage95": (0.0,)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "read", lambda job: ((), ()))
        patch.setattr(identification, "identify", _identify)
        patch.setattr(runs, "write", _write)
        patch.setattr(simulation, "load", lambda run: Ensemble())
        patch.setattr(runs, "read_json", lambda *_: {})
        patch.setattr(runs, "judge", lambda *_: judged)
        patch.setattr(simulation, "read", lambda *_, **__: log)
        patch.setattr(simulation, "_table", lambda *_: pd.DataFrame({"time": [0.0]}))
        patch.setattr(simulation, "len", lambda _: 30, raising=False)
        patch.setattr(figures, "compare_figure", lambda *_: Figure())
        patch.setattr(inspection, "render", lambda _: "<p>new</p>")
        yield


def place(path: Path, entry: Entry) -> None:
    """Put somebody's file, link or folder there, where that is possible."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry is None:
            path.mkdir(exist_ok=True)
        elif isinstance(entry, str):
            path.symlink_to(path.absolute().parents[len(path.parts) - 1] / entry)
        else:
            path.write_bytes(entry)


def seen(path: Path) -> Entry:
    """What is there now, without following a link."""
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else None


def around() -> dict[Path, Entry]:
    """Everything below the current folder."""
    return {p: seen(p) for p in Path(".").rglob("*")}


def asked_for(arguments: list[str]) -> set[Path]:
    """The one file that ``simulate --out FILE --force`` and its like may replace, if no input."""
    command, *rest = arguments
    if command == "identify" or "--force" not in rest:
        return set()
    out = rest[rest.index("--out") + 1] if "--out" in rest else f"{rest[0]}/{runs.PAGE}"
    read = (rest[1], f"{rest[0]}/{MODEL}") if command != "report" else ()
    target = Path(os.path.normpath(Path(out).parent.resolve() / Path(out).name))
    if any(os.path.exists(p) and Path(p).resolve() == target.resolve() for p in read):
        return set()
    return {target}


@settings(max_examples=150, deadline=None)
@given(worlds, st.lists(commands, min_size=1, max_size=3))
def test_what_no_run_wrote_is_never_gone(
    world: tuple[dict[str, set[str]], dict[str, Entry]],
    told: list[tuple[list[str], str, set[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as base, chdir(base):
        (Path(base) / "data").mkdir()
        former, others = world
        for folder, names in former.items():
            write(Path(folder), dict.fromkeys(names, b"old"))
        ours = around()
        for name, entry in others.items():
            place(Path(name), entry)
        foreign = {p: e for p, e in around().items() if ours.get(p, "") != e}
        for path in [p for p, e in foreign.items() if p.name == NEXT and e is None]:
            del foreign[path]  # an empty folder of this name is ours; what is in one counts
        for arguments, how, names in told:
            ending[:] = how, sorted(names)
            assert cli._run([*arguments, "--json"]) in (0, 2, 130)
            for path in list(foreign):
                if path.parent.resolve() / path.name in asked_for(arguments):
                    del foreign[path]
            now = around()
            assert {p: now.get(p, "gone") for p in foreign} == foreign
