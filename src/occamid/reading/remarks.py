"""What a reader has to say: every problem of the files in one error, and notes about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from occamid.data.findings import Finding
from occamid.errors import DataError, OccamidError

MOST = 20  # problems in one message


@dataclass
class Remarks:
    """Errors that are told together, and findings that stop nobody."""

    errors: list[OccamidError] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep an error until :meth:`tell`."""
        try:
            yield
        except OccamidError as error:
            parts = getattr(error, "parts", (error,))
            known = {str(e) for e in self.errors}
            self.errors += [part for part in parts if str(part) not in known]

    def tell(self) -> None:
        """Raise what was collected: one error as it is, several as a list."""
        if not self.errors:
            return
        first = self.errors[0]
        if len(self.errors) == 1:
            raise first
        said = [one_line(str(error)) for error in self.errors]
        left = f"\n  - and {len(said) - MOST} more" if len(said) > MOST else ""
        kind = type(first) if len({type(e) for e in self.errors}) == 1 else DataError
        listed = "".join(f"\n  - {text}" for text in said[:MOST])
        error = kind(f"{len(said)} problems:{listed}{left}")
        error.parts = tuple(self.errors)  # type: ignore[attr-defined]
        raise error


def one_line(text: str) -> str:
    """A message on one line; what cannot be printed is written as an escape."""
    text = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
