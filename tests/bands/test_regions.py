"""Bands that are wider where held-back errors were larger, against loops and known spreads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from occamid import FileError, combine, fit_posterior, load
from occamid.bands.calibration import HORIZONS
from occamid.bands.regions import FIRM, LEVELS, OUTLIER, Regions, factors_of, levels_of
from occamid.training.criterion import independent
from tests.bands.test_modelfile import rewrite
from tests.support.linear_model import linear_model, linear_posterior, linear_record
from tests.support.small import small_record
from tests.support.trained import batch_of

Array = np.ndarray


def slow(rng: np.random.Generator, rows: int) -> Array:
    """A centre of a run that goes up and down between -1 and 1."""
    return np.sin(np.cumsum(rng.uniform(0, 0.2, rows)))


def share_of(x: float, levels: Array, number: int) -> float:
    """Of one level where the output is x, written out."""
    if x <= levels[0] or x >= levels[-1]:
        return float(number == (0 if x <= levels[0] else len(levels) - 1))
    left = max(k for k in range(len(levels)) if levels[k] <= x)
    right = (x - levels[left]) / (levels[left + 1] - levels[left])
    return {left: 1 - right, left + 1: right}.get(number, 0.0)


def test_factors_equal_a_loop_over_rows() -> None:
    rng = np.random.default_rng(0)
    means = [rng.normal(size=(n, 2)) for n in (40, 25)]
    scores = [rng.standard_t(3, size=m.shape) * (1 + m**2) for m in means]
    levels = levels_of(np.concatenate(means))
    found = factors_of(levels, means, scores)
    for k in range(2):
        size = np.abs(np.concatenate(scores)[:, k])
        squares = np.minimum(size, OUTLIER * np.quantile(size, 0.95)) ** 2
        each = independent([run[:, k] for run in scores]) / len(size)
        for number in range(LEVELS):
            near, weight = FIRM, FIRM
            for x, square in zip(np.concatenate(means)[:, k], squares, strict=True):
                share = each * share_of(x, levels[:, k], number)
                near, weight = near + share * square / np.mean(squares), weight + share
            assert found[number, k] == pytest.approx(np.sqrt(near / weight), rel=1e-9)


def test_bands_hold_their_share_at_every_level_where_errors_depend_on_it() -> None:
    rng = np.random.default_rng(1)
    mean = slow(rng, 40_000)[:, None]
    scores = rng.normal(size=mean.shape) * np.exp(mean)  # e² times as large at the top
    levels = levels_of(mean)
    factors = factors_of(levels, [mean[:20_000]], [scores[:20_000]])
    assert np.all(np.diff(factors, axis=0) > 0.1)
    rest, at = scores[20_000:] / Regions(levels, factors[None]).at(mean)[0, 20_000:], mean[20_000:]
    usual = np.sqrt(np.mean(rest**2))
    for low, high in ((-1, -0.8), (-0.8, 0), (0, 0.8), (0.8, 1)):
        here = rest[(at >= low) & (at < high)] / usual
        assert np.sqrt(np.mean(here**2)) == pytest.approx(1.0, abs=0.15)


def test_few_or_coloured_errors_make_little_difference() -> None:
    """A hundred rows of the same error count as one."""
    rng = np.random.default_rng(2)
    mean = slow(rng, 2_000)[:, None]
    levels = levels_of(mean)
    white = factors_of(levels, [mean], [rng.normal(size=mean.shape)])
    np.testing.assert_allclose(white, 1.0, atol=0.15)
    larger = (1 + 3 * (mean > 0.8)) * rng.normal(size=mean.shape)
    coloured = (1 + 3 * (mean > 0.8)) * np.repeat(rng.normal(size=(20, 1)), 100, axis=0)
    sure, unsure, few = (
        factors_of(levels, [m], [s])[-1, 0]
        for m, s in ((mean, larger), (mean, coloured), (mean[:20], larger[:20]))
    )
    assert sure > 1.5
    assert 1.0 <= unsure < 1.0 + 0.6 * (sure - 1.0)
    assert abs(few - 1.0) < 0.5 * (sure - 1.0)


@pytest.mark.parametrize("values", [np.zeros(50), np.repeat([0.0, 1.0], 25), np.full(9, 1e6)])
def test_an_output_of_few_values_has_levels_all_the_same(values: Array) -> None:
    levels = levels_of(values[:, None])
    assert np.all(np.diff(levels, axis=0) > 0)
    np.testing.assert_allclose(
        levels[[0, -1], 0], [values.min(), values.max()], rtol=1e-6, atol=1e-6
    )
    found = factors_of(levels, [values[:, None]], [np.ones((len(values), 1))])
    np.testing.assert_allclose(found, 1.0)
    nothing = factors_of(levels, [values[:, None]], [np.zeros((len(values), 1))])
    np.testing.assert_array_equal(nothing, 1.0)


def test_every_row_is_widened_by_the_factor_where_it_is() -> None:
    plain = combine([linear_posterior(linear_model(), 0.1, (0.01, 0.02))])
    record = linear_record(40)
    middle = np.median(plain.simulate(record).mean)
    levels = np.array([[middle - 1.0], [middle + 1.0]])
    factors = np.array([[[1.0], [1.0]], [[4.0], [4.0]], [[1.0], [9.0]]])
    wide = replace(plain, inflation=np.full((3, 1), 2.0), regions=Regions(levels, factors))
    assert len(HORIZONS) == len(factors)
    for k, horizon in ((0, 1), (1, 10)):
        a, b = (model.predict(record, horizon) for model in (plain, wide))
        np.testing.assert_allclose(b.spread, 2 * factors[k, 0] * a.spread)
    alike = replace(wide, regions=Regions(levels, np.tile(factors[2], (3, 1, 1))))
    a, b = (model.simulate(record, 5) for model in (plain, alike))
    np.testing.assert_array_equal(a.mean, b.mean)
    for row in range(5, 40):
        factor = 1 + 8 * share_of(a.mean[row, 0], levels[:, 0], 1)
        assert b.spread[row, 0] == pytest.approx(2 * factor * a.spread[row, 0])
        low, high = (run.interval()[0][row, 0] - run.mean[row, 0] for run in (a, b))
        np.testing.assert_allclose(high, 2 * factor * low)


def test_regions_are_kept_in_the_model_file(tmp_path: Path) -> None:
    levels, factors = np.array([[-1.0], [0.5]]), np.array([[[1.0], [2.0]]] * 3)
    model = combine([fit_posterior(batch_of("mlp").best, small_record())])
    path = tmp_path / "model.safetensors"
    model.save(path)
    assert load(path).regions is None
    replace(model, regions=Regions(levels, factors)).save(path)
    again = load(path).regions
    assert again is not None
    np.testing.assert_array_equal(again.levels, levels)
    np.testing.assert_array_equal(again.factors, factors)
    for name, value, said in (
        ("regions/levels", levels[::-1].copy(), "regions/levels is not in rising order"),
        ("regions/levels", np.ones((2, 2)), "regions/levels is not numbers for each of 1 outputs"),
        ("regions/factors", -factors, "regions/factors is not"),
    ):
        rewrite(path, {name: value})
        with pytest.raises(FileError, match=f"is not a complete model file: {said}"):
            load(path)
        rewrite(path, {"regions/levels": levels, "regions/factors": factors})
    assert set(load_file(path)) >= {"regions/levels", "regions/factors"}
