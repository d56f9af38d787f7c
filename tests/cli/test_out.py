"""``identify --out``: what it may replace, and two of them at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from occamid import cli
from occamid.bands.modelfile import NAME as MODEL
from occamid.files.checkpoints import Checkpoints, digest_of
from occamid.identification import identify as identification
from occamid.identification.job import Job
from occamid.reporting import runs
from tests.support.commands import Runner, listing

LOG = b"time,pump,level\n" + b"".join(b"%d,%d,%d\n" % (k, k % 3, k % 5) for k in range(40))
NO_RUN = "holds files and is no run of occamid; choose another --out."
Hook = Callable[[], None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.csv").write_bytes(LOG)
    (tmp_path / "data" / "thesis.txt").write_bytes(b"the only copy")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> list[Hook]:
    """What happens while a model is identified; the identification itself does nothing."""
    hooks: list[Hook] = []

    def nothing(*_: object, checkpoints: Checkpoints, **__: object) -> SimpleNamespace:
        checkpoints.save(digest_of("a"), 0, [])
        for hook in [hooks.pop() for _ in tuple(hooks)]:
            hook()
        return SimpleNamespace(trials=())

    def write(found: object, job: Job, test: object, folder: Path, *_: object) -> dict[str, object]:
        (folder / runs.SETTINGS).write_text(job.to_toml(), encoding="utf-8")
        (folder / MODEL).write_bytes(b"model")
        return {"files": list(job.files)}

    monkeypatch.setattr(identification, "identify", nothing)
    monkeypatch.setattr(runs, "write", write)
    return hooks


@pytest.fixture
def run(
    here: Path,
    during: list[Hook],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Runner:
    return Runner(monkeypatch, capsys, here)


def command(out: str, *more: str, log: str = "data/log.csv") -> tuple[str, ...]:
    return ("identify", log, "-u", "pump", "-y", "level", "--out", out, "--json", *more)


@pytest.mark.parametrize("more", [(), ("--force",), ("--force", "--resume")])
@pytest.mark.parametrize("out", ["data", "link", "data/../data"])
def test_the_folder_of_the_log_is_no_run(
    out: str, more: tuple[str, ...], run: Runner, here: Path
) -> None:
    (here / "link").symlink_to("data")
    assert run.fails(*command(out, *more)) == f"{out} {NO_RUN}"


def test_a_log_among_the_files_of_a_run_stays(run: Runner, here: Path) -> None:
    assert run(*command("out")).code == 0
    (here / "out" / "log.csv").write_bytes(LOG)
    for more in (("--force",), ("--force", "--resume")):
        assert run(*command("out", *more, log="out/log.csv")).code == 0
        assert (here / "out" / "log.csv").read_bytes() == LOG
    assert sorted(p.name for p in here.iterdir()) == ["data", "out"]


@pytest.mark.parametrize("config", ["out/settings.toml", "job.toml", "out/../out/settings.toml"])
def test_the_settings_of_the_run_that_would_be_replaced(
    config: str, run: Runner, here: Path
) -> None:
    assert run(*command("out")).code == 0
    (here / "job.toml").symlink_to("out/settings.toml")
    assert run.fails("identify", "--config", config, "--out", "out", "--force") == (
        f"{config} is read by this command and a file of the run in out, which would be "
        "replaced; choose another --out."
    )
    assert run("identify", "--config", config, "--out", "again", "--json").code == 0


@pytest.mark.parametrize("option", ["--test", None])
def test_a_data_file_of_the_run_that_would_be_replaced(
    option: str | None, run: Runner, here: Path
) -> None:
    """A log that is linked to a file of the run."""
    assert run(*command("out")).code == 0
    (here / "data" / "second.csv").symlink_to(here / "out" / MODEL)
    path = here / "data" / "second.csv"
    told = command("out", "--force", "--test", str(path)) if option else None
    assert run.fails(*(told or command("out", "--force", log=str(path)))) == (
        f"{path} is read by this command and a file of the run in out, which would be replaced; "
        "choose another --out."
    )


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_two_at_a_time(
    force: tuple[str, ...],
    run: Runner,
    during: list[Hook],
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if force:
        assert run(*command("out")).code == 0
    codes: list[int] = []
    during.append(lambda: codes.append(cli._run([*command("out", *force)])))
    outcome = run(*command("out", *force))
    assert (outcome.code, codes) == (0, [2])
    assert outcome.err.startswith("error: another run (process ")
    assert outcome.err.endswith(") is writing to out; wait for it, or choose another --out.\n")
    assert json.loads(outcome.out) == {"files": [str(here / "data" / "log.csv")]}
    assert sorted(p.name for p in here.iterdir()) == ["data", "out"]


def test_a_folder_that_came_meanwhile(run: Runner, during: list[Hook], here: Path) -> None:
    def come() -> None:
        (here / "out").mkdir()
        (here / "out" / "mine.txt").write_bytes(b"mine")

    during.append(come)
    outcome = run(*command("out"))
    assert (outcome.code, outcome.err) == (
        2,
        "error: out was changed by somebody else meanwhile and is left as it is; the new results "
        f"are in {here / 'out-1'}.\n",
    )
    assert listing(here / "out") == {"mine.txt": b"mine"}
    assert (here / "out-1" / MODEL).read_bytes() == b"model"
    assert sorted(p.name for p in here.iterdir()) == ["data", "out", "out-1"]
