"""Names of people's columns in languages that would stumble over them.

A name may hold quotes, braces, ends of comments, control characters or anything else.  Generated
code never contains it as it is: :func:`identifiers` makes short ASCII words, :func:`shown` a
harmless text for comments and strings.  Formats with real quoting (JSON, ONNX, XML) keep the name
itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

LONGEST = 24  # characters of an identifier made from a name; IEC 61131-3 counts on 32 in all
SHOWN = 60  # characters of a name in a comment
HARMLESS = re.compile(r"[^A-Za-z0-9 _.,:()\[\]<>=+-]")


def identifier(name: str, prefix: str = "") -> str:
    """An ASCII word of letters, digits and single underscores that starts with a letter."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    word = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:LONGEST].strip("_")
    if not prefix and not word[:1].isalpha():
        word = f"m_{word}".strip("_")
    return f"{prefix}_{word}".strip("_") if prefix else word


def identifiers(names: Iterable[str], prefix: str) -> tuple[str, ...]:
    """Identifiers that differ from each other, whatever the case of their letters."""
    found: list[str] = []
    for position, name in enumerate(names, start=1):
        word = identifier(name, prefix)
        if word == prefix:
            word = f"{prefix}_{position}"
        unique, count = word, 2
        while unique.lower() in (other.lower() for other in found):
            unique, count = f"{word}_{count}", count + 1
        found.append(unique)
    return tuple(found)


def shown(name: str) -> str:
    """A name for a comment or a string of generated code: nothing in it can end either."""
    cut = name if len(name) <= SHOWN else name[: SHOWN - 3] + "..."
    return HARMLESS.sub("_", cut)


def xml(name: str) -> str:
    """A name without what XML cannot hold, not yet quoted."""
    return "".join(c if _in_xml(ord(c)) else "_" for c in name) or "_"


def _in_xml(code: int) -> bool:
    plain = 0x20 <= code <= 0xD7FF and not 0x7F <= code <= 0x9F
    return plain or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with a number behind those that would repeat."""
    found: list[str] = []
    for name in names:
        unique, count = name, 2
        while unique in found:
            unique, count = f"{name} ({count})", count + 1
        found.append(unique)
    return tuple(found)
