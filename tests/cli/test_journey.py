"""The command line as a user meets it: a log file in a shell, from identify to the report."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from typer.main import get_command
from typer.testing import CliRunner

from occamid import cli, load
from occamid.data import twins
from occamid.files.lock import SIGNED
from occamid.files.scratch import MARK
from tests.support.browser import CHROMIUM, Browser
from tests.support.commands import call_main, listing, strict_json
from tests.support.jobs import TINY
from tests.support.places import CACHE

COMMANDS = ("identify", "simulate", "predict", "compare", "inspect", "report")
LIMIT = 600.0  # seconds for a command on a busy machine


def environment() -> dict[str, str]:
    """Compiled programs are kept, as they are on a user's machine."""
    return {**os.environ, "XDG_CACHE_HOME": str(CACHE), "COLUMNS": "200"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from occamid.cli import main; main()", *map(str, arguments)]


def shell(here: Path, *arguments: object) -> str:
    """What a command prints; it ends well and says nothing on the error stream."""
    ran = subprocess.run(
        command(*arguments),
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr[-3000:]
    return ran.stdout


def numbers(folder: Path) -> dict[str, Any]:
    """What must be the same in a run that is repeated."""
    summary = strict_json(folder / "result.json")
    for changing in ("seconds", "provenance"):
        summary.pop(changing)
    for trial in summary["trials"]:
        trial.pop("seconds")
    return summary


def assert_same_run(one: Path, other: Path) -> None:
    assert numbers(one) == numbers(other)
    for name in ("weights.safetensors", "model.safetensors"):
        a, b = load_file(one / name), load_file(other / name)
        assert a.keys() == b.keys()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


# --- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_tells_every_option(name: str) -> None:
    shown = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "250"})
    assert shown.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.output)
    about: Any = get_command(cli.app)
    found = about.get_command(None, name).real().params
    assert found
    for parameter in found:
        if parameter.name == "help":
            continue
        names = [o for o in parameter.opts if o.startswith("--")] or [parameter.name]
        assert any(n.lower() in text.lower() for n in names), names
        assert parameter.help, names  # every option says what it is for
        assert parameter.help.split()[0] in text
    lines = text.strip().splitlines()
    assert lines[0].strip().startswith(f"Usage: root {name}")


def test_help_lists_the_commands() -> None:
    shown = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "250"})
    assert shown.exit_code == 0
    for name in (*COMMANDS, "data", "benchmark"):
        assert re.search(rf"\b{name}\b", shown.output)


# --- two inputs, two outputs --------------------------------------------------------------------

SMALLEST = """\
[options]
effort = "quick"
hidden = [3]
lam = [1e-3]
restarts = 2
epochs = 40
cycles = 2
input_lags = 3
output_lags = 2
"""


@pytest.fixture(scope="module")
def two_by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated masses as a user would log them."""
    here = tmp_path_factory.mktemp("masses")
    twin = twins.make("mass-spring-damper-twin", 1)
    for name, record in (("log", twin.estimation[:400]), ("second", twin.test[:200])):
        table = pd.DataFrame(
            np.column_stack([np.arange(len(record)) * 0.1, record.u, record.y]),
            columns=["time", "left force", "right force", "left mass", "right mass"],
        )
        table.to_csv(here / f"{name}.csv", index=False, float_format="%.6g")
    (here / "tiny.toml").write_text(SMALLEST, encoding="utf-8")
    return here


@pytest.mark.usefixtures("two_folds")
@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_two_inputs_and_two_outputs(
    network: str,
    two_by_two: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(two_by_two)

    def answer(*arguments: object) -> Any:
        code = call_main(monkeypatch, *arguments, "--json")
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return json.loads(said.out)

    channels = ["-u", "left force", "-u", "right force", "-y", "left mass", "-y", "right mass"]
    summary = answer(
        *("identify", "log.csv", *channels, "--test", "second.csv"),
        *("--config", "tiny.toml", "--network", network, "--out", network),
    )
    assert summary["family"] == network
    assert len(summary["test"][0]["rmse"]) == 2
    assert (two_by_two / network / "report.html").stat().st_size > 1e6
    ensemble = load(two_by_two / network)
    assert ensemble.terms.input_names == ("left force", "right force")
    assert ensemble.terms.output_names == ("left mass", "right mass")

    simulated = answer("simulate", network, "second.csv", "--out", f"{network}.csv")
    np.testing.assert_allclose(simulated["rmse"], summary["test"][0]["rmse"], rtol=1e-9)
    table = pd.read_csv(f"{network}.csv")
    measured = pd.read_csv("second.csv")
    assert list(table) == [
        "time",
        *(f"left mass{what}" for what in ("", " std", " low", " high")),
        *(f"right mass{what}" for what in ("", " std", " low", " high")),
    ]
    assert len(table) == len(measured)
    assert np.isfinite(table.to_numpy()).all()
    known = simulated["known"]
    for name, error in zip(("left mass", "right mass"), simulated["rmse"], strict=True):
        np.testing.assert_allclose(table[name][:known], measured[name][:known], rtol=1e-6)
        miss = (table[name] - measured[name])[known:]
        assert np.sqrt(np.mean(miss**2)) == pytest.approx(error, rel=1e-5)
    predicted = answer("predict", network, "second.csv", "--out", f"{network}-ahead.csv")
    assert np.all(np.array(predicted["rmse"]) < np.array(simulated["rmse"]))
    (row,) = answer("compare", network, "second.csv")
    assert row["rmse"] == simulated["rmse"]
    inspected = answer("inspect", network)
    assert inspected["members"] == summary["members"]
    assert inspected["job"]["outputs"] == ["left mass", "right mass"]


# --- the journey --------------------------------------------------------------------------------


def european(rows: int, seed: int) -> str:
    """A log as a German spreadsheet writes it: timestamps, semicolons, decimal commas."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.normal(size=rows // 5 + 1), 5)[:rows]
    y, x = np.zeros(rows), 0.0
    for t in range(2, rows):
        x = 1.2 * y[t - 1] - 0.4 * y[t - 2] + 0.3 * np.tanh(1.5 * u[t - 1])
        y[t] = x + 0.01 * rng.normal()
    table = pd.DataFrame(
        {
            "Zeitstempel": pd.Timestamp("2026-03-01 08:00:00")
            + pd.to_timedelta(0.5 * np.arange(rows), unit="s"),
            "Ventil [%]": 50 + 20 * u,
            "Füllstand [m]": 2 + y,
        }
    )
    return str(table.to_csv(index=False, sep=";", decimal=",", float_format="%.5f"))


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a user has identified a model from a log."""
    here = tmp_path_factory.mktemp("journey")
    (here / "log.csv").write_text(european(2_000, 0), encoding="utf-8")
    (here / "second.csv").write_text(european(500, 1), encoding="utf-8")
    began = time.perf_counter()
    said = shell(
        here,
        *("identify", "log.csv", "--input", "Ventil [%]", "--output", "Füllstand [m]"),
        *("--split", "0.7", "--effort", "quick", "--out", "RUN"),
    )
    seconds = time.perf_counter() - began
    print(f"identify took {seconds:.1f} s")
    if os.environ.get("OCCAMID_TIMING"):
        assert seconds < 90
    assert "open RUN/report.html in a browser" in said
    return here


@pytest.mark.slow
def test_the_run_is_good(journey: Path) -> None:
    summary = strict_json(journey / "RUN" / "result.json")
    (test,) = summary["test"]
    assert test["fit"][0] > 85
    assert test["coverage95"][0] > 0.85
    assert summary["sampling_time"] == 0.5
    assert len(summary["trials"]) > 1
    assert sorted(p.name for p in journey.iterdir()) == ["RUN", "log.csv", "second.csv"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_report_opens_without_complaints(journey: Path, browser: Browser) -> None:
    page = journey / "RUN" / "report.html"
    browser.open(page, 1280)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.querySelectorAll('[data-figure] svg.main-svg').length") > 2
    assert "Füllstand [m]" in browser.evaluate("document.body.innerText")


@pytest.mark.slow
def test_every_command_uses_the_run(
    journey: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(journey, tmp_path / "here")
    here = tmp_path / "here"
    said = shell(here, "simulate", "RUN", "second.csv", "--out", "sim.csv")
    assert "written to sim.csv: 500 rows" in said
    answer = json.loads(shell(here, "simulate", "RUN", "second.csv", "--out", "b.csv", "--json"))
    assert (here / "sim.csv").read_bytes() == (here / "b.csv").read_bytes()
    table = pd.read_csv(here / "sim.csv")
    name = "Füllstand [m]"
    assert list(table) == ["time", name, f"{name} std", f"{name} low", f"{name} high"]
    assert np.isfinite(table.drop(columns="time").to_numpy()).all()
    written = pd.read_csv(here / "second.csv", sep=";", dtype=str)
    assert table["time"].tolist() == written.iloc[:, 0].tolist()  # the file's own times
    assert (table[f"{name} low"] <= table[name]).all()
    assert (table[name] <= table[f"{name} high"]).all()
    assert answer["fit %"][0] > 85

    said = shell(here, "predict", "RUN", "second.csv", "--horizon", "5", "--out", "five.csv")
    assert "horizon: 5" in said
    over = ("--out", "b.csv", "--force")
    near = json.loads(shell(here, "predict", "RUN", "second.csv", *over, "--json"))
    far = json.loads(shell(here, "predict", "RUN", "second.csv", "--horizon", 5, *over, "--json"))
    five = pd.read_csv(here / "five.csv").drop(columns="time")
    assert np.isfinite(five.to_numpy()).all()
    assert (here / "five.csv").read_bytes() == (here / "b.csv").read_bytes()
    assert near["rmse"][0] < far["rmse"][0]

    said = shell(here, "compare", "RUN", "RUN", "second.csv", "--out", "plot.png")
    assert said.count("RUN") == 2
    assert (here / "plot.png").read_bytes().startswith(b"\x89PNG")
    first, second = json.loads(shell(here, "compare", "RUN", "RUN", "second.csv", "--json"))
    assert first == second
    assert first["rmse"] == answer["rmse"]

    said = shell(here, "inspect", "RUN")
    content = json.loads(shell(here, "inspect", "RUN", "--json"))
    for regressor in content["regressors"]:
        assert regressor in said
    assert content["job"]["split"] == 0.7

    page = (here / "RUN" / "report.html").read_bytes()
    (here / "RUN" / "report.html").unlink()
    assert "written to RUN/report.html" in shell(here, "report", "RUN")
    assert (here / "RUN" / "report.html").read_bytes() == page
    said = shell(here, "report", "RUN", "--out", "page.html", "--json")
    assert json.loads(said) == {"out": "page.html"}
    assert (here / "page.html").read_bytes() == page


@pytest.mark.slow
@pytest.mark.study
def test_settings_of_a_run_repeat_it(tmp_path: Path) -> None:
    """Cross-validation, choice, refinement and bands; a short log, for it runs twice."""
    (tmp_path / "log.csv").write_text(european(400, 0), encoding="utf-8")
    channels = ("--input", "2", "--output", "3", "--split", "0.7", "--lags", "4")
    shell(tmp_path, "identify", "log.csv", *channels, "--effort", "quick", "--out", "RUN")
    settings = tmp_path / "RUN" / "settings.toml"
    (tmp_path / "elsewhere").mkdir()  # paths in it do not depend on the folder
    again = tmp_path / "elsewhere" / "RUN2"
    answer = json.loads(
        shell(again.parent, "identify", "--config", settings, "--out", "RUN2", "--json")
    )
    assert_same_run(tmp_path / "RUN", again)
    first = strict_json(tmp_path / "RUN" / "result.json")
    assert len(first["trials"]) > 1
    assert answer["test"] == first["test"]
    assert (again / "settings.toml").read_bytes() == settings.read_bytes()


# --- a run that is killed -----------------------------------------------------------------------

LONG = """\
example = "hairdryer-twin"

[options]
effort = "quick"
network = "mlp"
hidden = [4]
lam = [1e-3]
restarts = 4
cycles = 6
epochs = {epochs}
input_lags = 3
output_lags = 2
seed = 5
"""
EPOCHS = 2_000
KILLS = 10


@pytest.mark.slow
@pytest.mark.study
def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    """Ten runs are killed at random moments; each is resumed to what an undisturbed one gives."""
    (tmp_path / "job.toml").write_text(LONG.format(epochs=EPOCHS), encoding="utf-8")
    start = ("identify", "--config", "job.toml", "--json", "--out")
    shell(tmp_path, *start, "warm")  # compiles
    began = time.perf_counter()
    shell(tmp_path, *start, "whole")
    duration = time.perf_counter() - began
    before = set(listing(tmp_path))
    rng = np.random.default_rng(int.from_bytes(os.urandom(4)))
    # Python starts in the first part of the time; the moments cover what is left.
    moments = duration * np.sort(rng.uniform(0.25, 1.0, KILLS))
    resumed, kept = 0, []
    for number, moment in enumerate(moments):
        out = f"run{number}"
        process = subprocess.Popen(
            command(*start, out),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        assert process.wait(LIMIT) in (0, -signal.SIGKILL)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        kept.append(len(list(tmp_path.glob(f".{out}.partial/*.safetensors"))))
        if (tmp_path / out).exists():  # it was faster: then it is whole
            load(tmp_path / out)
            # killed between the folder and the end, it may have left its finished cycles
            shutil.rmtree(tmp_path / f".{out}.partial", ignore_errors=True)
            (tmp_path / f".{out}.lock").unlink(missing_ok=True)
        else:
            shell(tmp_path, *start, out, "--resume")
            resumed += 1
        assert_same_run(tmp_path / "whole", tmp_path / out)
        shutil.rmtree(tmp_path / out)
        assert set(listing(tmp_path)) == before  # nothing is left beside it
    print(f"{duration:.1f} s undisturbed; files of finished cycles at each kill: {kept}")
    assert resumed > 0


@pytest.mark.usefixtures("two_folds")
def test_what_a_killed_run_left_is_cleaned_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it kept a cycle and while it wrote the results: half a file, half a folder."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / ".out.partial").mkdir()
    key = "0123456789abcdef" * 2
    (tmp_path / ".out.partial" / f".{key[:24]}-0.safetensors-x7fabc_d").write_bytes(b"half")
    (tmp_path / ".out.partial" / f"{key[:24]}-0.safetensors").write_bytes(b"half")
    (tmp_path / ".out.lock").write_bytes(SIGNED + f"{gone.pid}\n".encode())
    (tmp_path / f".out.new-{gone.pid}-x7f").mkdir()
    (tmp_path / f".out.new-{gone.pid}-x7f" / MARK).touch()
    (tmp_path / f".out.new-{gone.pid}-x7f" / "result.json").write_bytes(b"half")
    other = tmp_path / f".out.new-{os.getpid()}-x7f"  # of a process that runs
    other.mkdir()
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = call_main(
        monkeypatch, "identify", "--config", "tiny.toml", "--out", "out", "--resume", "--json"
    )
    assert code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "out", "tiny.toml"]
    load(tmp_path / "out")


# --- a long log ---------------------------------------------------------------------------------

ROWS = 1_000_000
MEASURED = """
import resource, sys
sys.argv = ["occamid", *sys.argv[1:]]
from occamid.cli import main
try:
    main()
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    """Three inputs, a million rows: read and identified in less than 4 GiB."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(0)
    u = rng.normal(size=(ROWS, 3))
    y = lfilter([0, 0.5], [1, -0.7], u[:, 0]) + lfilter([0, 0.2], [1, -0.5], np.tanh(u[:, 1]))
    y += 0.01 * rng.normal(size=ROWS)
    with (tmp_path / "long.csv").open("w", encoding="utf-8") as file:
        file.write("a,b,c,y\n")
        np.savetxt(file, np.column_stack([u, y]), fmt="%.5f", delimiter=",")
    size = (tmp_path / "long.csv").stat().st_size
    (tmp_path / "tiny.toml").write_text(SMALLEST + 'network = "mlp"\n', encoding="utf-8")
    began = time.perf_counter()
    ran = subprocess.run(
        [
            *(sys.executable, "-c", MEASURED, "identify", "long.csv", "--config", "tiny.toml"),
            *("-u", "a", "-u", "b", "-u", "c", "--sampling-time", "0.001", "--split", "0.9"),
            *("--out", "RUN", "--json"),
        ],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    seconds = time.perf_counter() - began
    assert ran.returncode == 0, ran.stderr
    peak = int(re.fullmatch(r"peak (\d+)\n", ran.stderr)[1])  # type: ignore[index]
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{size / 2**20:.0f} MiB read and identified in {seconds:.1f} s, {peak / 2**20:.2f} GiB")
    assert peak <= children
    assert peak < 4 * 2**20  # KiB
    assert json.loads(ran.stdout)["sampling_time"] == 0.001
