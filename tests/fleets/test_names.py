"""Names of assets stay in their folder, whatever they are, and seeds do not depend on others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from occamid.errors import SettingsError
from occamid.fleets.names import folder_name, names_of, seed_of
from tests.support.fleet_cases import HOSTILE


@pytest.mark.parametrize("name", ["pump1", "a", "7", "house_12-b"])
def test_plain_names_are_their_folders(name: str) -> None:
    assert folder_name(name) == name


@given(st.one_of(st.sampled_from([*HOSTILE, "", ".", "..", "CON", "a\0b", "x" * 300]), st.text()))
def test_a_folder_is_one_plain_name(name: str) -> None:
    found = folder_name(name)
    assert found.isascii()
    assert Path(found).name == found
    assert 0 < len(found) <= 60
    assert not found.startswith((".", "-", "="))


def test_names_that_look_alike_have_folders_of_their_own() -> None:
    names = ["Pump", "pump", "PUMP", "a-b", "a b", "../a-b", *HOSTILE]
    assert len({folder_name(name).casefold() for name in names}) == len(names)


def test_a_seed_depends_on_name_and_seed_alone() -> None:
    assert len({seed_of(f"pump{k}", s) for k in range(50) for s in range(4)}) == 200
    assert all(0 <= seed_of(name, 3) < 2**31 for name in HOSTILE)


def test_files_are_called_by_as_much_of_their_path_as_it_takes(tmp_path: Path) -> None:
    files = ["north/log.csv", "south/log.csv", "pump.csv"]
    assert names_of([tmp_path / f for f in files]) == ["north/log.csv", "south/log.csv", "pump"]
    assert names_of([tmp_path / "a.csv", tmp_path / "a.txt"]) == ["a.csv", "a.txt"]


def test_a_file_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is named twice"):
        names_of([tmp_path / "a.csv", tmp_path / "b" / ".." / "a.csv"])
