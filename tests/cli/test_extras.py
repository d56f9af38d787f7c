"""Without an extra everything else works, and what needs it says in one line how to get it."""

import subprocess
import sys
from pathlib import Path

import pytest

from occamid import cli
from occamid.reporting import figures
from tests.support.jobs import TINY

PLOTS = 'figures need matplotlib; install it with pip install "occamid[plots]".'
pytestmark = pytest.mark.usefixtures("two_folds")


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, where matplotlib is not installed."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)
    assert not figures.available()
    return tmp_path


def test_identify_without_matplotlib(no_plots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (no_plots / "job.toml").write_text(TINY, encoding="utf-8")
    assert cli._run(["identify", "--config", "job.toml", "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert f"no free_run.png and sparsity.png: {PLOTS}\n" in said
    names = {p.name for p in (no_plots / "run").iterdir()}
    assert "report.html" in names
    assert not any(name.endswith(".png") for name in names)


def test_a_plot_without_matplotlib(no_plots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._run(["compare", "run", "log.csv", "--out", "plot.png"]) == 2
    assert capsys.readouterr().err == f"error: {PLOTS}\n"
    assert list(no_plots.iterdir()) == []


def test_the_estimator_without_scikit_learn() -> None:
    program = "import sys; sys.modules['sklearn'] = None; import occamid; occamid.SparseNARX"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "ImportError: SparseNARX needs scikit-learn; install it with "
        'pip install "occamid[sklearn]".'
    )
