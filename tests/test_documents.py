"""No number in a document that a command did not print."""

import re
from pathlib import Path

import numpy as np
import pytest

from occamid.data import twins
from occamid_benchmarks.tables.document import document

ROOT = Path(__file__).parent.parent


def test_results_are_what_the_table_command_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert (ROOT / "docs/results.md").read_text("utf-8") == document(Path("benchmarks/results"))


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert ((ROOT / name).parent / target).exists(), target


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_names_of_files_are_right(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for path in re.findall(r"`((?:docs|tests|benchmarks|src)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.slow
def test_the_snippets_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = twins.make("hairdryer-twin").estimation
    rows = np.concatenate([record.u, record.y], axis=1)
    np.savetxt(
        tmp_path / "log.csv", rows, delimiter=",", header="pump,level", comments="", fmt="%.6g"
    )
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) == 2
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert {"tank.safetensors", "log.csv"} <= {p.name for p in tmp_path.iterdir()}
