"""Ensembles of several families beside each other, against sums written out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from occamid import Ensemble, FileError, Record, combine, load
from occamid.assessment.run import Run
from occamid.bands.blend import blended, widened
from occamid.bands.calibration import HORIZONS
from occamid.bands.ensemble import Beside
from occamid.data.windows import Terms
from tests.support.linear_model import linear_model, linear_posterior, linear_record

Array = np.ndarray
SHARE = 0.3


def deep() -> Ensemble:
    """A family that looks back three rows."""
    model = linear_model(0.5, 0.2)
    late = Terms(((0, 3),), ((0, 3),), ("u",), ("y",))
    return combine([linear_posterior(replace(model, terms=late, start=3), 0.3, (0.05, 0.02))])


@pytest.fixture
def both() -> tuple[Ensemble, Ensemble, Ensemble]:
    """One family, another, and the first with the second beside it."""
    one = combine([linear_posterior(linear_model(), 0.1, (0.02, 0.01))], feedback="none")
    return one, deep(), replace(one, beside=(Beside(deep(), SHARE),))


def by_hand(one: Run, other: Run) -> tuple[Array, Array, Array]:
    mean = (1 - SHARE) * one.mean + SHARE * other.mean
    assert one.epistemic_std is not None
    assert other.epistemic_std is not None
    assert one.aleatoric_std is not None
    assert other.aleatoric_std is not None
    own = one.spread ** (2 * (1 - SHARE)) * other.spread ** (2 * SHARE)
    with np.errstate(invalid="ignore"):  # known rows have no spread
        parts = [(one.aleatoric_std / one.spread) ** 2, (other.aleatoric_std / other.spread) ** 2]
    noise = ((1 - SHARE) * parts[0] + SHARE * parts[1]) * own
    apart = (1 - SHARE) * (one.mean - mean) ** 2 + SHARE * (other.mean - mean) ** 2
    doubt = own - noise + apart
    return mean, np.sqrt(doubt), np.sqrt(noise)


def check(found: Run, runs: tuple[Run, Run], rows: slice) -> None:
    expected = by_hand(*runs)
    for value, wanted in zip(
        (found.mean, found.epistemic_std, found.aleatoric_std), expected, strict=True
    ):
        np.testing.assert_allclose(value[rows], wanted[rows], rtol=1e-12)  # type: ignore[index]
    np.testing.assert_allclose(found.spread**2, found.epistemic_std**2 + found.aleatoric_std**2)  # type: ignore[operator]


def test_free_runs_and_predictions_are_means_by_share_and_disagreement_is_doubt(
    both: tuple[Ensemble, Ensemble, Ensemble],
) -> None:
    one, other, together = both
    record = linear_record()
    runs = one.simulate(record, 5), other.simulate(record, 5)
    check(together.simulate(record, 5), runs, slice(5, None))
    np.testing.assert_allclose(
        together.free_run(record.u, record.y[:5]), together.simulate(record, 5).mean
    )
    for horizon in (1, 4):
        found = together.predict(record, horizon)
        runs = one.predict(record, horizon), other.predict(record, horizon)
        check(found, runs, slice(3, None))
        np.testing.assert_array_equal(found.mean[:3], record.y[:3])  # the other starts there
        assert found.n_init == 3
        assert not found.spread[:3].any()


def test_bands_of_gaussians_are_gaussian(both: tuple[Ensemble, Ensemble, Ensemble]) -> None:
    run = both[2].simulate(linear_record(), 5)
    low, high = run.interval(0.95)
    np.testing.assert_allclose((high - low)[5:], 2 * 1.959964 * run.spread[5:], rtol=1e-6)
    np.testing.assert_allclose((high + low) / 2, run.mean)


def test_the_inflation_is_that_of_all_together(both: tuple[Ensemble, Ensemble, Ensemble]) -> None:
    record, together = linear_record(), both[2]
    wide = replace(together, inflation=np.array([[2.0]] * (len(HORIZONS) - 1) + [[3.0]]))
    plain, found = together.simulate(record, 5), wide.simulate(record, 5)
    np.testing.assert_allclose(found.spread, 3 * plain.spread)
    np.testing.assert_allclose(
        found.interval()[0] - found.mean, 3 * (plain.interval()[0] - plain.mean)
    )
    np.testing.assert_allclose(wide.predict(record).spread, 2 * together.predict(record).spread)
    np.testing.assert_array_equal(found.mean, plain.mean)


def test_who_needs_more_rows_than_are_known_is_left_out(
    both: tuple[Ensemble, Ensemble, Ensemble],
) -> None:
    one, _, together = both
    record = linear_record()
    assert together.window == 3
    assert together.simulate(record).n_init == 3
    np.testing.assert_array_equal(together.simulate(record, 1).mean, one.simulate(record, 1).mean)
    np.testing.assert_array_equal(
        together.free_run(record.u, record.y[:1]), one.free_run(record.u, record.y[:1])
    )
    short = record[:3]
    np.testing.assert_array_equal(together.predict(short).mean, one.predict(short).mean)


def test_a_run_may_begin_after_another_record_or_at_rest(
    both: tuple[Ensemble, Ensemble, Ensemble],
) -> None:
    one, other, together = both
    record, before = linear_record(), linear_record(seed=1)
    for initial in (before, "steady"):
        runs = (
            one.simulate(record.u, initial=initial),
            other.simulate(record.u, initial=initial),
        )
        check(together.simulate(record.u, initial=initial), runs, slice(0, None))


def test_samples_are_blended_too(both: tuple[Ensemble, Ensemble, Ensemble]) -> None:
    one, other, together = both
    record = linear_record()
    runs = one.simulate(record, 5, samples=400), other.simulate(record, 5, samples=400)
    found = together.simulate(record, 5, samples=400)
    check(found, runs, slice(5, None))
    assert found.coverage(record).shape == (1,)


def test_one_run_is_itself_and_a_known_row_has_no_band() -> None:
    run = deep().simulate(linear_record(), 5)
    assert blended([run], np.ones(1)) is run
    assert not widened(run, np.array([[7.0]])).spread[:5].any()


def test_a_stack_comes_back_from_its_file(
    both: tuple[Ensemble, Ensemble, Ensemble], tmp_path: Path
) -> None:
    record, together = linear_record(), both[2]
    path = tmp_path / "model.safetensors"
    together.save(path)
    found = load(path)
    assert [b.share for b in found.beside] == [SHARE]
    for name in ("mean", "std"):
        np.testing.assert_array_equal(
            getattr(found.simulate(record, 5), name), getattr(together.simulate(record, 5), name)
        )
    assert found.parameters_in_all == together.parameters_in_all == 6


@pytest.mark.parametrize("share", [0.0, 1.0, 1e300])
def test_a_damaged_stack_is_refused(
    both: tuple[Ensemble, Ensemble, Ensemble], tmp_path: Path, share: float
) -> None:
    path = tmp_path / "model.safetensors"
    both[2].save(path)
    with safe_open(path, framework="numpy") as file:
        text, arrays = file.metadata()["occamid"], {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
    save_file(arrays, path, {"occamid": text.replace(f'"share": {SHARE}', f'"share": {share}')})
    with pytest.raises(FileError, match="family 1 beside the leading one does not fit it"):
        load(path)


def test_a_record_with_other_channels_is_refused(both: tuple[Ensemble, Ensemble, Ensemble]) -> None:
    wrong = Record(u=np.zeros((9, 2)), y=np.zeros(9))
    with pytest.raises(Exception, match="2"):
        both[2].simulate(wrong)
