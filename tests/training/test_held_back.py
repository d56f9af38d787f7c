"""Held-back rows: nothing of their outputs reaches the windows or the training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid import train
from occamid.data.windows import all_terms, windows
from tests.support.small import SMALL, small_record

QUICK = SMALL.replace(restarts=2, cycles=2)


@pytest.mark.parametrize(
    "held",
    [
        (slice(20, 30), slice(5, 9)),
        (slice(3, 10), slice(30, 40)),
        (slice(0, 2), slice(0, 0)),
        (slice(45, None), slice(-6, None)),
    ],
    ids=str,
)
def test_no_window_has_a_held_back_output(held: tuple[slice, slice]) -> None:
    """Row by row: it counts if neither its target nor any of its output terms is held back."""
    records = [small_record(50), small_record(40, seed=1)]
    terms = all_terms(records[0], 3, 2)
    start = 3
    found = windows(records, terms, start, held)
    assert found.valid.shape == (2, 47, 1)
    total = 0
    for r, (record, block) in enumerate(zip(records, held, strict=True)):
        hidden = set(range(len(record))[block])
        kept = 0
        for row in range(47):
            t = start + row
            used = {t} | {t - lag for _, lag in terms.outputs}
            expected = t < len(record) and not used & hidden
            assert bool(found.valid[r, row, 0]) == expected
            kept += expected
        assert float(found.residuals[r]) == kept
        total += kept
    assert 0 < total < 47 + 37 + (held[1] == slice(0, 0))


def test_held_back_needs_a_block_for_each_record() -> None:
    records = [small_record(50), small_record(40, seed=1)]
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer|shorter"):
        windows(records, all_terms(records[0], 3, 2), 3, [slice(3, 5)])


@pytest.mark.parametrize("scaling", ["standardize", "detrend"])
def test_training_does_not_look_at_held_back_outputs(scaling: str) -> None:
    """Scaling, weights, priors and figures are the same whatever the held-back outputs are."""
    held = [slice(40, 70), slice(60, 80)]
    settings = QUICK.replace(scaling=scaling)
    found = []
    for shift in (0.0, 3.0, 300.0):
        records = []
        for record, block in zip((small_record(), small_record(80, seed=1)), held, strict=True):
            y = record.y.copy()
            y[block] = y[block] * (1 - shift / 10) + shift
            records.append(replace(record, y=y))
        found.append(train(records, settings, held_back=held))
    for other in found[1:]:
        for name in ("u_offset", "u_scale", "y_offset", "y_scale"):
            np.testing.assert_array_equal(
                getattr(other.scaling, name), getattr(found[0].scaling, name)
            )
        for name, value in found[0].params.items():
            np.testing.assert_array_equal(other.params[name], value)
        for name, widths in found[0].psi.items():
            for a, b in zip(other.psi[name], widths, strict=True):
                np.testing.assert_array_equal(a, b)
        for name, column in found[0].table.items():
            np.testing.assert_array_equal(other.table[name], column)
        assert other.best_index == found[0].best_index
    assert found[0].count == 117 - 32 + 77 - 20
    plain = train([small_record(), small_record(80, seed=1)], settings)
    name = "layer0.W"
    assert np.abs(plain.params[name] - found[0].params[name]).max() > 1e-3


def test_training_without_a_block_at_the_end_equals_the_shorter_record() -> None:
    """Outputs held back at the end are as if the record ended there, scaling included."""
    record = small_record()
    held = train(record, QUICK, held_back=[slice(90, None)])
    short = train(record[:90], QUICK)
    np.testing.assert_array_equal(held.scaling.y_scale, short.scaling.y_scale)
    for name, value in short.params.items():
        np.testing.assert_allclose(held.params[name], value, rtol=1e-6, atol=1e-9)
