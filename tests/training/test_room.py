"""Compiled programs are forgotten before the system runs out of room for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from occamid.training import room


@pytest.mark.parametrize(
    ("pieces", "most", "forgotten"),
    [("a\n" * 41, "100", True), ("a\n" * 40, "100", False), ("a\n" * 99, "?", False)],
)
def test_programs_are_forgotten_where_they_take_much_room(
    pieces: str, most: str, forgotten: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[int] = []
    monkeypatch.setattr(room, "forget", lambda: cleared.append(1))
    for name, text in (("PIECES", pieces), ("MOST", most)):
        (tmp_path / name).write_text(text, "utf-8")
        monkeypatch.setattr(room, name, tmp_path / name)
    room.make_room()
    assert bool(cleared) == forgotten


def test_another_system_has_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PIECES", Path("/nowhere"))
    monkeypatch.setattr(room, "forget", lambda: pytest.fail("nothing is known"))
    room.make_room()
