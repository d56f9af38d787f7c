"""No number in a document that a command did not print."""

import re
from pathlib import Path

import pytest

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
