"""Blocks of cross-validation: every row of a record is held back once."""

import pytest

from occamid.identification.referee import _block


@pytest.mark.parametrize(("rows", "folds"), [(100, 4), (101, 7), (50, 1), (23, 10)])
def test_blocks_cover_the_record_once(rows: int, folds: int) -> None:
    blocks = [_block(rows, fold, folds) for fold in range(folds)]
    assert [t for b in blocks for t in range(b.start, b.stop)] == list(range(rows))
    sizes = [b.stop - b.start for b in blocks]
    assert max(sizes) - min(sizes) <= 1
