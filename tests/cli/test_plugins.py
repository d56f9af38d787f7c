"""Commands of other packages: listed without an import, loaded when used, explained if missing."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from typer.testing import CliRunner

from occamid import cli
from occamid.cli import plugins

Offer = Callable[..., None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Say what other packages offer, by name and place."""

    def offered(**places: str) -> None:
        def found(**wanted: Any) -> EntryPoints:
            every = [EntryPoint(n, v, plugins.GROUP) for n, v in places.items()]
            return EntryPoints(every).select(**wanted)

        monkeypatch.setattr(plugins, "entry_points", found)

    return offered


@pytest.mark.parametrize("name", ["benchmark", "data"])
def test_where_only_the_wheel_is_installed(
    name: str, offer: Offer, capsys: pytest.CaptureFixture[str]
) -> None:
    offer()
    for arguments in ([name], [name, "list"], [name, "--help"]):
        assert cli._run(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == (
            f"error: occamid {name} is not installed; it is in the package occamid-benchmarks, "
            "which is on no index: run pip install ./benchmarks in a checkout of occamid.\n"
        )


def test_a_command_of_any_package(offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    offer(other="tests.support.plugin:app", identify="tests.support.plugin:app")
    shown = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "200"})
    assert "From another package." in shown.output
    assert cli._run(["other", "greet", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    assert cli._run(["other", "nothing"]) == 2
    assert capsys.readouterr().err == "error: No such command 'nothing'.\n"
    assert cli._run(["identify", "greet", "you"]) == 2  # its own commands cannot be replaced
    assert "hello" not in capsys.readouterr().out


def test_a_package_that_does_not_load(offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    offer(benchmark="no_such_package:app")
    assert cli._run(["benchmark", "list"]) == 2
    assert capsys.readouterr().err == (
        "error: occamid benchmark cannot be loaded (No module named 'no_such_package'); "
        "install its package again.\n"
    )


def test_no_command_of_occamid_imports_the_benchmarks_or_what_only_they_need() -> None:
    program = (
        "import sys; from occamid import cli; cli._run(['--help']); "
        "extras = {'occamid_benchmarks', 'sklearn', 'matplotlib', 'pooch'}; "
        "sys.exit(f'imported {extras & set(sys.modules)}' if extras & set(sys.modules) else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("occamid 0.")
