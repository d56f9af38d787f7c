"""The command line: the files it writes, the errors it tells, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from safetensors.numpy import load_file
from typer.testing import CliRunner

from occamid import Run, cli, load
from occamid.bands.units import DivergedWarning
from occamid.cli import arguments, shared
from occamid.cli import training as train
from occamid.cli.identify import identify as identify_command
from occamid.data import twins
from occamid.errors import DataError, FileError
from occamid.files import folder as folders
from occamid.files.checkpoints import Checkpoints
from occamid.files.scratch import MARK
from occamid.identification import identify as auto
from occamid.identification.job import Job, job_from
from occamid.identification.referee import Trial
from occamid.reporting import figures
from tests.support.commands import Runner, call_main, listing, strict_json
from tests.support.jobs import OPTIONS, TINY

FILES = [
    "free_run.png",
    "model.safetensors",
    "report.html",
    "report.json",
    "result.json",
    "run.json",
    "settings.toml",
    "sparsity.png",
    "weights.safetensors",
]
PROCESSES = ", ".join(twins.TWINS)
pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    monkeypatch.chdir(tmp_path)
    return Runner(monkeypatch, capsys, tmp_path)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One successful run; its folder is only read."""
    base = tmp_path_factory.mktemp("finished")
    (base / "tiny.toml").write_text(TINY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        code = call_main(
            patch,
            *("identify", "--example", "hairdryer-twin"),
            *("--config", base / "tiny.toml", "--out", base / "made" / "out"),
        )
    assert code == 0
    yield base / "made" / "out"
    assert sorted(p.name for p in base.iterdir()) == ["made", "tiny.toml"]


# --- success ------------------------------------------------------------------------------------


def test_a_run_writes_its_files_and_nothing_else(finished: Path) -> None:
    assert sorted(p.name for p in finished.iterdir()) == FILES
    assert [p.name for p in finished.parent.iterdir()] == ["out"]  # nothing beside it
    assert finished.stat().st_mode & 0o777 == 0o755
    for name in ("free_run.png", "sparsity.png"):
        assert (finished / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_settings_written_are_the_job(finished: Path) -> None:
    job = job_from(finished / "settings.toml", {}, {})
    assert job == Job(example="hairdryer-twin", options=OPTIONS)


def test_the_report_is_that_of_its_content(finished: Path) -> None:
    content = strict_json(finished / "report.json")
    headline = content["verdict"]["headline"]
    assert "95 % band covers" in headline
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "hairdryer-twin test" in page


def test_the_summary_is_strict_json_with_a_row_for_every_model(finished: Path) -> None:
    summary = strict_json(finished / "result.json")
    rows = summary["rows"]
    assert [(r["lam"], r["restart"], r["cycle"]) for r in rows] == [
        (lam, restart, cycle) for lam in (1e-3, 2e-3) for restart in (0, 1) for cycle in (1, 2)
    ]
    for row in rows:
        assert row["status"] == "ok"
        assert row["one_step_rmse"][0] > 0
        assert row["sparsity"] * 24 == pytest.approx(round(row["sparsity"] * 24))  # of 24 weights
        assert row["n_regressors"] <= 7
        assert row["n_neurons"] <= 3
    assert summary["regressors"] == [
        *("u[t-4]", "u[t-3]", "u[t-2]", "u[t-1]", "u[t]", "y[t-2]", "y[t-1]")
    ]
    assert summary["samples"] == 296
    assert summary["sampling_time"] == 0.08
    assert summary["family"] == "mlp"
    (trial,) = summary["trials"]
    assert trial["family"] == "mlp"
    # of a model that sees all data: a little better than those of the folds, which see less
    assert 0.8 < summary["expected_rmse"][0] / trial["rmse"][0] <= 1
    assert 1 <= summary["members"] <= 4
    assert set(summary["kept_names"]) <= set(summary["regressors"])
    best = summary["best"]
    assert set(best["index"]) == {"lam", "restart", "cycle"}
    assert set(best["regressors"]) <= set(summary["regressors"])


def test_the_summary_says_where_it_is_from(finished: Path) -> None:
    provenance = strict_json(finished / "result.json")["provenance"]
    assert provenance["seed"] == 7
    assert provenance["version"] == version("occamid")
    assert provenance["jax"] == version("jax")
    assert provenance["python"] == ".".join(str(v) for v in sys.version_info[:3])
    assert f"{os.cpu_count()} cores" in provenance["machine"]
    assert provenance["device"]


def test_the_test_error_is_that_of_the_test_record(finished: Path) -> None:
    (test,) = strict_json(finished / "result.json")["test"]
    twin = twins.make("hairdryer-twin", 7)
    assert test["name"] == "hairdryer-twin test"
    assert test["n_init"] == 4
    assert test["rows"] == len(twin.test)
    ensemble = load(finished)
    free = ensemble.free_run(twin.test.u, twin.test.y[:4])
    y = twin.test.y[4:, 0]
    np.testing.assert_allclose(test["rmse"], np.sqrt(np.mean((free[4:, 0] - y) ** 2)))
    low, high = (edge[4:, 0] for edge in ensemble.simulate(twin.test, 4).interval(0.95))
    assert test["coverage95"][0] == pytest.approx(np.mean((low <= y) & (y <= high)))
    spread = np.sqrt(np.mean((y - y.mean()) ** 2))
    np.testing.assert_allclose(test["fit"][0], 100 * (1 - test["rmse"][0] / spread), rtol=1e-6)


def test_the_weights_of_every_cycle_are_kept(finished: Path) -> None:
    arrays = load_file(finished / "weights.safetensors")
    params = {n: v for n, v in arrays.items() if n.startswith("params/")}
    widths = {n: v for n, v in arrays.items() if n.startswith("psi/")}
    assert set(arrays) == set(params) | set(widths)
    assert all(v.shape[:3] == (2, 2, 2) for v in arrays.values())
    assert widths
    # 7 regressors to 3 units to 1 output, with biases
    assert sum(int(np.prod(v.shape[3:])) for v in params.values()) == 7 * 3 + 3 + 3 * 1 + 1


def test_the_written_settings_repeat_the_run_and_force_replaces(
    finished: Path, tmp_path: Path, run: Runner
) -> None:
    out = tmp_path / "again"
    with folders.claim(out) as place, folders.new_folder(place) as folder:
        (folder / "stale.txt").write_text("of the old run", encoding="utf-8")
    (out / "mine.txt").write_text("keep me", encoding="utf-8")
    outcome = run("identify", "--force", "--config", finished / "settings.toml", "--out", out)
    assert outcome.code == 0
    assert outcome.err == ""
    assert sorted(p.name for p in out.iterdir()) == sorted([*FILES, "mine.txt"])
    assert (out / "mine.txt").read_text("utf-8") == "keep me"
    assert [p.name for p in tmp_path.iterdir()] == ["again"]
    first, second = (strict_json(folder / "result.json") for folder in (finished, out))
    assert second["rows"] == first["rows"]
    assert second["test"] == first["test"]
    assert (out / "settings.toml").read_bytes() == (finished / "settings.toml").read_bytes()
    weights = load_file(finished / "weights.safetensors")
    for name, value in load_file(out / "weights.safetensors").items():
        np.testing.assert_array_equal(value, weights[name])
    said = outcome.out.splitlines()
    verdict = strict_json(out / "report.json")["verdict"]
    assert verdict["headline"] in said
    for warning in verdict["warnings"]:
        assert f"note: {warning['title']}. {warning['text']}" in said
    assert any(line.startswith("hairdryer-twin test, free run after 4 samples") for line in said)
    assert f"written to {out}: {', '.join(FILES)}" in said
    assert said[-1] == f"open {out / 'report.html'} in a browser"


def test_the_table_of_families_marks_the_chosen_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared.console, "_width", 200)
    found: Any = SimpleNamespace(
        trials=(
            Trial("linear", "linear in lagged inputs", (0.25, 3.0), 1.0, 0.1, 2.0),
            Trial("curved", "smooth units", (float("inf"), 1.0), 1.0, 0.1, 2.0),
        ),
        family=SimpleNamespace(name="linear"),
        shares={"linear": 1.0},
        grounds="linear is near enough",
        coverage_of_data="trained on all 10 rows",
    )
    train._show(found, {"verdict": {"headline": "Good.", "warnings": []}, "test": []}, tmp_path)
    said = capsys.readouterr().out
    assert "linear *" in said
    assert "0.25, 3" in said
    assert "inf, 1" in said
    assert "curved *" not in said
    assert "chosen: linear is near enough" in said


def test_options_override_the_file(tiny: Path) -> None:
    job = job_from(tiny, {"split": None, "files": []}, {"seed": 3, "lam": (0.5,), "hidden": None})
    assert job.example == "hairdryer-twin"
    assert job.options == OPTIONS.model_copy(update={"seed": 3, "lam": (0.5,)})
    assert job_from(None, {}, {}) == Job()


def test_new_data_replace_those_of_the_file(tiny: Path) -> None:
    job = job_from(tiny, {"files": ["log.csv"], "split": 0.7}, {})
    assert (job.example, job.files, job.split) == (None, ("log.csv",), 0.7)
    assert job.options == OPTIONS


def test_new_data_take_their_test_data_along(tmp_path: Path) -> None:
    """Test files of other data would judge a model that never saw their process."""
    path = tmp_path / "job.toml"
    path.write_text('files = ["old.csv"]\ntest = ["old test.csv"]\n', encoding="utf-8")
    assert job_from(path, {"files": ["new.csv"], "split": 0.7}, {}).test == ()
    assert job_from(path, {"example": "hairdryer-twin"}, {}).test == ()
    path.write_text('files = ["old.csv"]\nsplit = 0.5\n', encoding="utf-8")
    assert job_from(path, {"test": ["t.csv"]}, {}).split is None
    assert job_from(path, {}, {"seed": 3}).split == 0.5


def test_a_job_comes_back_from_its_file(tmp_path: Path) -> None:
    job = Job(
        files=("a.csv", "b.csv"),
        inputs=("pump", 3),
        outputs=("level",),
        time="t [ms]",
        experiment=5,
        resample=True,
        gaps="split",
        test=("c.csv",),
        options=OPTIONS,
    )
    path = tmp_path / "job.toml"
    path.write_text(job.to_toml(), encoding="utf-8")
    assert job_from(path, {}, {}) == job


def test_the_summary_as_json_is_all_that_is_printed(
    run: Runner, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "run_job", lambda *_, **__: {"family": "mlp", "rmse": [None]})
    outcome = run("identify", "--config", tiny, "--out", "out", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {"family": "mlp", "rmse": [None]}


def test_numbers_of_several_outputs() -> None:
    assert shared.listed((0.1234567, None), ".4g") == "0.1235, –"
    assert shared.listed([12.0, float("inf")], ".1f", " %") == "12.0 %, inf %"


def test_numbers_of_an_option() -> None:
    assert arguments.numbers("20", int, "hidden") == (20,)
    assert arguments.numbers("10,5", int, "hidden") == (10, 5)
    assert arguments.numbers("1e-3,0.2", float, "lam") == (1e-3, 0.2)
    assert arguments.numbers(None, float, "lam") is None


def test_help_names_the_processes_and_options() -> None:
    shown = CliRunner().invoke(cli.app, ["identify", "--help"], env={"COLUMNS": "300"})
    assert shown.exit_code == 0
    for word in (*twins.TWINS, "--example", "--out", "--config", "--force", "--resume"):
        assert word in shown.output


def test_the_installed_command_is_main() -> None:
    (command,) = entry_points(group="console_scripts", name="occamid")
    assert command.load() is cli.main


# --- errors of the user -------------------------------------------------------------------------


def test_an_error_seen_from_the_shell(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            *(sys.executable, "-c", "from occamid.cli import main; main()"),
            *("identify", "--example", "toaster", "--out", "out"),
        ],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == f"error: no twin is called 'toaster'; there are {PROCESSES}.\n"
    assert not (tmp_path / "out").exists()


def test_no_data(run: Runner) -> None:
    assert run.fails("identify", "--out", "out") == (
        f"name one or more files, or a simulated process with --example; there are {PROCESSES}."
    )


def test_an_unknown_example(run: Runner) -> None:
    assert run.fails("identify", "--example", "toaster", "--out", "out") == (
        f"no twin is called 'toaster'; there are {PROCESSES}."
    )


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--hidden", "3,x", "--hidden takes whole numbers separated by commas, not '3,x'."),
        ("--hidden", "2.5", "--hidden takes whole numbers separated by commas, not '2.5'."),
        ("--hidden", "", "--hidden takes whole numbers separated by commas, not ''."),
        (
            "--effort",
            "some",
            "setting effort: input should be 'quick', 'standard' or 'thorough' (got 'some').",
        ),
        (
            "--hidden",
            "5,0",
            "setting hidden: give at least one layer, each of 1 to 10000 units (got 0).",
        ),
        ("--lam", "1e-3;2e-3", "--lam takes numbers separated by commas, not '1e-3;2e-3'."),
        ("--lam", "small", "--lam takes numbers separated by commas, not 'small'."),
        ("--lam", "0", "setting lam: give one or more positive numbers (got 0.0)."),
        ("--lam", "nan", "setting lam: give one or more positive numbers (got nan)."),
        ("--lam", "1e-3,1e-3", "setting lam: values repeat (got [0.001, 0.001])."),
        ("--lags", "-1", "setting input_lags: -1 is negative; give 0 or more."),
        (
            "--lags",
            "0",
            "setting input_lags and output_lags are both 0: a static map has no dynamics; "
            "give lags.",
        ),
        (
            "--network",
            "gru",
            "setting network: input should be 'auto', 'mlp', 'lstm', 'rnn' or 'state-space' "
            "(got 'gru').",
        ),
        (
            "--restarts",
            "0",
            "setting restarts: input should be greater than or equal to 1 (got 0).",
        ),
        ("--seed", "-1", "setting seed: input should be greater than or equal to 0 (got -1)."),
    ],
)
def test_bad_options(option: str, text: str, said: str, run: Runner, tiny: Path) -> None:
    arguments = ("identify", "--config", tiny, "--out", "out", "--json", option, text)
    found = run.fails(*arguments)
    assert found.removeprefix(f"{tiny}: ") == said


def test_lags_beyond_the_record(run: Runner, tmp_path: Path) -> None:
    """Found with the bar already on the screen, so there is output beside the error."""
    outcome = run("identify", "--example", "hairdryer-twin", "--out", "out", "--lags", 300)
    assert (outcome.code, outcome.err) == (
        2,
        'error: record "hairdryer-twin estimation" has 300 rows, but the lags need more than 300; '
        "use a longer record or fewer lags.\n",
    )
    assert listing(tmp_path) == {}


def test_a_missing_config(run: Runner) -> None:
    assert run.fails(
        *("identify", "--example", "hairdryer-twin", "--config", "none.toml", "--out", "out")
    ) == ("cannot read the settings file none.toml: No such file or directory.")


def test_a_bad_config(run: Runner, tiny: Path) -> None:
    tiny.write_text("options = 3\n", encoding="utf-8")
    assert run.fails("identify", "--config", tiny, "--out", "out") == (
        f"{tiny}: options must be a table; write [options] and its settings below."
    )


def test_a_folder_that_holds_files(run: Runner, tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me", encoding="utf-8")
    assert run.fails(
        *("identify", "--example", "hairdryer-twin", "--config", tiny, "--out", "out")
    ) == ("out holds files and is no run of occamid; choose another --out.")


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_out_is_a_file(force: tuple[str, ...], run: Runner, tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "out").write_text("keep me", encoding="utf-8")
    assert run.fails(
        *("identify", "--example", "hairdryer-twin", "--config", tiny, "--out", "out", *force)
    ) == ("out is a file, not a folder; choose another --out.")


@pytest.mark.parametrize("below", ["sub", "sub/sub"])
def test_out_cannot_be_made(below: str, run: Runner, tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "file").write_text("keep me", encoding="utf-8")
    out = tmp_path / "file" / below
    assert run.fails(
        *("identify", "--example", "hairdryer-twin", "--config", tiny, "--out", out)
    ) == (f"{tmp_path / 'file'} is a file, not a folder; choose another --out.")


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize(
    ("out", "said"),
    [
        (".", ". is the current folder or holds it; choose another --out."),
        ("..", ".. is the current folder or holds it; choose another --out."),
        ("/dev/shm", "/dev/shm is a mount point, which cannot be replaced; choose another --out."),
        ("link", "link is a link to a folder that does not exist; choose another --out."),
        ("circle", "circle is a link to a folder that does not exist; choose another --out."),
        ("a" * 300, f"cannot write to {'a' * 300}: File name too long; choose another --out."),
    ],
)
def test_folders_that_cannot_be_replaced(
    out: str, said: str, force: tuple[str, ...], run: Runner, tmp_path: Path, tiny: Path
) -> None:
    if out == "/dev/shm" and not os.path.ismount(out):
        pytest.skip("no mount point here")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    arguments = ("identify", "--example", "hairdryer-twin", "--config", tiny, "--out", out, *force)
    assert run.fails(*arguments) == said


def test_a_parent_that_is_not_writable(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    assert run.fails("identify", "--example", "hairdryer-twin", "--out", "deep/a/b") == (
        f"cannot write to {tmp_path}: Permission denied; choose another --out."
    )


@pytest.mark.parametrize(
    "wrong", [("--example", "toaster"), ("--example", "hairdryer-twin", "--restarts", 0)]
)
def test_errors_leave_no_parent_folders(wrong: tuple[object, ...], run: Runner) -> None:
    run.fails("identify", *wrong, "--out", "deep/a/b")  # compares the folder before and after


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("identify", "--lags", "abc"), "Invalid value for '--lags': "),
        (("identify", "--colour", "red"), "No such option: --colour"),
        (("identify", "--seed"), "Option '--seed' requires an argument."),
        (("identfy",), "No such command 'identfy'."),
        (("inspect",), "Missing argument 'RUN'."),
        (("inspect", "a", "more"), "Got unexpected extra argument"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], said: str, run: Runner) -> None:
    assert run.fails(*arguments).lower().startswith(said.lower())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("identify", "--help")])
def test_help_is_no_error(arguments: tuple[str, ...], run: Runner) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    assert "Usage: " in outcome.out


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, typer.Abort])
def test_stopping_leaves_nothing(
    interruption: type[BaseException],
    run: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise interruption

    monkeypatch.setattr(auto, "identify", stop)
    outcome = run("identify", "--example", "hairdryer-twin", "--out", "deep/out")
    assert (outcome.code, outcome.err.strip()) == (130, "stopped")
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, typer.Abort])
def test_stopping_tells_how_to_go_on(
    interruption: type[BaseException],
    run: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object, checkpoints: Checkpoints, **__: object) -> None:
        checkpoints.save("0" * 24, 0, [np.zeros(3)])
        raise interruption

    monkeypatch.setattr(auto, "identify", stop)
    outcome = run("identify", "--example", "hairdryer-twin", "--out", "out")
    assert (outcome.code, outcome.err) == (130, f"{train.RESUME}\nstopped\n")
    assert "--resume" in train.RESUME
    assert [p.name for p in tmp_path.iterdir()] == [".out.partial"]


# --- failures while writing ---------------------------------------------------------------------


class BrokenError(Exception):
    """A failure nobody foresaw."""


def test_a_failure_while_writing_keeps_the_old_folder(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with folders.claim(out) as place, folders.new_folder(place) as folder:
        (folder / "result.json").write_text("old", encoding="utf-8")
    before = listing(tmp_path)
    written: list[list[str]] = []

    def save(figure: object, path: Path) -> None:
        written.append(sorted(p.name for p in path.parent.iterdir()))
        raise BrokenError

    monkeypatch.setattr(figures, "save", save)
    with pytest.raises(BrokenError):
        identify_command(example="hairdryer-twin", out=out, config=tiny, force=True)
    half = [n for n in FILES if not n.endswith(".png") and n != "run.json"]
    assert written == [sorted([MARK, *half])]
    kept = [p for p in listing(tmp_path) if p not in before]
    assert kept[0] == ".out.partial"  # finished cycles, for --resume
    assert all(p.startswith(".out.partial/") for p in kept[1:])
    assert {k: v for k, v in listing(tmp_path).items() if k not in kept} == before


def test_a_full_disk_is_told_with_the_folder(
    run: Runner, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(figures, "save", save)
    outcome = run("identify", "--example", "hairdryer-twin", "--config", tiny, "--out", "out")
    assert (outcome.code, outcome.err) == (
        2,
        "error: cannot write the results to out: No space left on device. Finished cycles are "
        "kept: the same command with --resume goes on from there.\n",
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.partial", "tiny.toml"]


def test_a_disk_that_is_full_while_training_keeps_the_finished_cycles(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, checkpoints: Checkpoints, **__: object) -> None:
        checkpoints.save("0" * 24, 0, [np.zeros(3)])
        monkeypatch.setattr(os, "fdopen", full)
        checkpoints.save("0" * 24, 1, [np.zeros(3)])

    def full(handle: int, *_: object) -> None:
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(auto, "identify", fill)
    outcome = run("identify", "--example", "hairdryer-twin", "--out", "out")
    assert outcome.code == 2
    assert outcome.err.endswith(f"1.safetensors: No space left on device. {train.RESUME}\n")
    kept = {".out.partial", f".out.partial/{'0' * 24}-0.safetensors"}
    assert set(listing(tmp_path)) == kept


def test_errors_in_the_data_leave_no_finished_cycles(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would come again: nothing is there to go on with."""

    def fail(*_: object, checkpoints: Checkpoints, **__: object) -> None:
        checkpoints.save("0" * 24, 0, [np.zeros(3)])
        assert (tmp_path / "deep" / ".out.partial").is_dir()
        raise DataError("no model is usable.")

    monkeypatch.setattr(auto, "identify", fail)
    outcome = run("identify", "--example", "hairdryer-twin", "--out", "deep/out")
    assert (outcome.code, outcome.err) == (2, "error: no model is usable.\n")
    assert listing(tmp_path) == {}


def test_an_infinite_test_error_does_not_lose_the_run(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = np.array([np.inf])
    monkeypatch.setattr(Run, "rmse", lambda *_: bad)
    monkeypatch.setattr(Run, "fit", lambda *_: -bad)
    identify_command(out=tmp_path / "out", config=tiny)
    (test,) = strict_json(tmp_path / "out" / "result.json")["test"]
    assert (test["rmse"], test["fit"]) == ([None], [None])


def test_a_ctrl_c_that_a_destructor_swallowed_comes_again() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as of a command
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        cli._not_lost(SimpleNamespace(exc_type=KeyboardInterrupt))
        time.sleep(10)
    signal.signal(signal.SIGINT, before)


def test_warnings_of_ours_are_a_line_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Any] = []
    monkeypatch.setattr(cli, "_warned", lambda *told: others.append(told[0]))
    cli._note(DivergedWarning("`n_init` is too small"), DivergedWarning, "ensemble.py", 210)
    assert capsys.readouterr().err == "note: --n-init is too small\n"
    theirs = UserWarning("theirs")
    cli._note(theirs, UserWarning, "library.py", 1)
    assert others == [theirs]
    assert capsys.readouterr().err == ""


def test_an_empty_folder_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "mine")
    said = pytest.raises(FileError, match=r"cannot write to .*mine: Permission denied")
    with said, folders.claim(tmp_path / "mine"):
        pass
