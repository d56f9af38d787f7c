"""Tables as Markdown writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, first column left, the rest right."""
    line = lambda cells: "| " + " | ".join(cells) + " |"  # noqa: E731
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join([line(head), line(rule), *map(line, rows)])
