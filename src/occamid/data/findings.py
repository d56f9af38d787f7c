"""A finding: one thing about logged data that its user should know, in one line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["note", "advice", "fault"]
SEVERITIES: tuple[Severity, ...] = ("note", "advice", "fault")
SHOWN = 3  # places that are spelled out


@dataclass(frozen=True)
class Finding:
    """What was found, where, why it matters and what to do.

    Attributes:
        kind: one word, such as "gap" or "delay", the same for findings of one sort.
        severity: "note" is information, "advice" asks for a look, "fault" spoils a model.
        channel: the column; empty for a whole record.
        what: what is the case.
        why: why it matters.
        remedy: what to do about it; empty where nothing has to be done.
        record: name of the record.
        rows: first and last row of each place, counted from 0 within the record.
        times: the same in seconds since the start of the log.
        place: where it is in the words of the file, such as "line 17"; empty within a record.
    """

    kind: str
    severity: Severity
    channel: str
    what: str
    why: str = ""
    remedy: str = ""
    record: str = ""
    rows: tuple[tuple[int, int], ...] = ()
    times: tuple[tuple[float, float], ...] = ()
    place: str = ""

    @property
    def where(self) -> str:
        """The places in words; the first few, and how many there are."""
        if self.place:
            return self.place
        spans = [
            f"rows {a} to {b} ({_seconds(s, e)})" if b > a else f"row {a} ({s:.6g} s)"
            for (a, b), (s, e) in zip(self.rows[:SHOWN], self.times[:SHOWN], strict=True)
        ]
        more = len(self.rows) - SHOWN
        found = ", ".join(spans) + (f" and {more} more" if more > 0 else "")
        return f"{self.record}: {found}" if found and self.record else found

    @property
    def line(self) -> str:
        """Everything in one line."""
        parts = [f"{self.severity}: {self.what}" + (f" [{self.where}]" if self.where else "")]
        parts += [text[0].upper() + text[1:] for text in (self.why, self.remedy) if text]
        return ". ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"where": self.where, "line": self.line}


def worst(findings: Iterable[Finding]) -> Severity:
    """The highest severity among findings; "note" where there are none."""
    return max((f.severity for f in findings), key=SEVERITIES.index, default="note")


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Faults first, then advice, then notes; each finding once."""
    return sorted(dict.fromkeys(findings), key=lambda f: -SEVERITIES.index(f.severity))


def _seconds(start: float, end: float) -> str:
    return f"{start:.6g} to {end:.6g} s"
