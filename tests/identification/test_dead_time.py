"""Inputs are moved to where they act, inside a fold; models say then how far back they lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid.assessment.check.delay import delays
from occamid.bands.combine import widen_to_residuals
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.identification.assemble import Workshop, nearest_member
from occamid.identification.dead_time import dead_times, moved
from occamid.identification.families import CLASSICAL, families
from occamid.identification.folds import Lesson, folds, piece, whole
from occamid.identification.identify import shown
from occamid.identification.job import check_test
from occamid.identification.options import BUDGETS, Options
from occamid.training.fading import Fading, fit_fading

DEAD = 30  # samples that the first input waits


def plant(rows: int, seed: int = 0, bent: bool = False) -> Record:
    """A slow process with two inputs, the first of which is far away."""
    rng = np.random.default_rng(seed)
    u, y = np.zeros((rows, 2)), np.zeros((rows, 1))
    for t in range(1, rows):
        u[t] = rng.normal(size=2) if t % 7 == 0 else u[t - 1]
        far = u[t - DEAD, 0] if t >= DEAD else 0.0
        y[t] = 0.8 * y[t - 1] + (far**2 if bent else far) + 0.4 * u[t - 1, 1]
    return Record(u=u, y=y + 0.05 * rng.normal(size=y.shape))


@pytest.mark.parametrize("bent", [False, True])
def test_inputs_wait_no_longer_than_their_effects(bent: bool) -> None:
    far, near = dead_times([plant(800, bent=bent)], Options())
    assert DEAD - 6 <= far < DEAD
    assert near == 0


def test_nothing_is_moved_that_the_user_fixed_or_that_is_unknown() -> None:
    record = plant(800)
    assert dead_times([record], Options(input_lags=40)) == (0, 0)
    assert dead_times([record], Options(input_delay=2)) == (0, 0)
    noise = np.random.default_rng(1).normal(size=(800, 2))
    assert dead_times([replace(record, u=noise)], Options()) == (0, 0)


def test_an_input_that_acts_twice_is_not_moved_beyond_the_first_time() -> None:
    """What a later and larger effect says alone would take the first one away from every model."""
    rng = np.random.default_rng(5)
    u = rng.normal(size=1000)
    weak, strong = (np.concatenate([np.zeros(d), u[:-d]]) for d in (8, 60))
    noise = 0.1 * rng.normal(size=1000)
    for first, sooner in ((0.3, True), (0.0, False)):
        record = Record(u=u, y=first * weak + strong + noise)
        (delay,) = delays((record,))
        assert delay.best == 60
        assert (delay.sooner > 0.99) if sooner else (delay.sooner < 0.001)
        assert delay.told != sooner
        (dead,) = dead_times([record], Options())
        assert dead == 0 if sooner else 55 <= dead < 60


def test_rows_are_worth_more_than_a_dead_time() -> None:
    """Every record loses its first rows: of many short ones that would be too much."""
    record = plant(3000)
    assert max(dead_times([record[k : k + 500] for k in range(0, 3000, 500)], Options())) > 0
    short = [record[k : k + 90] for k in range(0, 2970, 90)]
    assert dead_times(short, Options()) == (0, 0)


def test_a_lesson_has_every_input_where_it_acts() -> None:
    record, dead = plant(300), (20, 3)
    (fold, *_) = folds([record], 3)
    found = moved(fold.lesson, dead)
    for before, after in zip(fold.lesson.records, found.records, strict=True):
        assert after.lead == max(0, before.lead - 20)
        np.testing.assert_array_equal(after.y, before.y[20:])
        assert after.start == before.start + 20
        for t in range(20, len(before)):
            for c, d in enumerate(dead):
                assert after.u[t - 20, c] == before.u[t - d, c]
    for (record, seen), (after, now) in zip(fold.lesson.blanked, found.blanked, strict=True):
        np.testing.assert_array_equal(now, seen[20:])
        np.testing.assert_array_equal(after.u, record.later(dead).u)
    assert moved(fold.lesson, (0, 0)) is fold.lesson


def test_short_records_leave_and_pieces_with_inputs_before_them_stay() -> None:
    record = plant(300)
    pieces = (record, record[:39], record[:41], piece(record, 100, 120))
    found = moved(Lesson(pieces, whole(pieces).blanked), (20, 0))
    assert [len(r) for r in found.records] == [280, 21, 100]
    assert found.records[-1].lead == 80
    assert [len(r) for r, _ in found.blanked] == [280, 21, 100]


def test_models_say_how_far_back_the_inputs_lie() -> None:
    """A plain ARX of moved inputs runs through the record as it is, from its first outputs."""
    record, truth = plant(900), plant(400, seed=5)
    shop = Workshop.of(whole([record]), Options(), BUDGETS["quick"])
    assert shop.dead[0] > 20
    model = shop.model(CLASSICAL[0])
    assert f"u1[t-{DEAD}]" in model.regressors
    assert model.start > shop.dead[0]
    run = model.simulate(truth)
    assert run.rmse(truth)[0] < 0.1
    # The same run as that of the model before its terms were told, through moved inputs.
    plain = replace(shop, dead=())
    inside = plain.model(CLASSICAL[0]).first
    there = truth.later(shop.dead)
    first = model.first
    np.testing.assert_allclose(
        first.free_run(truth.u, truth.y[: first.start])[first.start :],
        inside.free_run(there.u, there.y[: inside.start])[inside.start :],
    )


def test_lags_are_proposed_for_moved_inputs() -> None:
    """Units on lagged signals do without what lies before the dead time."""
    record = plant(900)
    shop = Workshop.of(whole([record]), Options(), BUDGETS["quick"])
    settings = {f.name: f.settings for f in families(Options(), shop.records)}
    assert settings["linear"] is not None
    assert int(settings["linear"].input_lags) < DEAD


def test_nothing_is_learned_from_inputs_that_never_were() -> None:
    """Rows before the dead time is over have no inputs that act: they teach nothing."""
    rng = np.random.default_rng(4)
    pieces = []
    for _ in range(3):
        u = rng.normal(size=500)
        y = np.convolve(np.concatenate([rng.normal(size=100), u]), 0.9 ** np.arange(20))[:500]
        pieces.append(Record(u=u, y=y + 0.1 * rng.normal(size=500)))  # acts after a hundred rows
    lesson = moved(whole(pieces), (99,))
    fit = fit_fading(lesson.records, Fading(120, 0, rows=10))
    assert 0.09 < np.sqrt(fit.noise_variance[0]) * fit.model.scaling.y_std[0] < 0.12


def test_records_too_short_for_a_model_are_not_shown() -> None:
    """They are learned from no more, and no run through them can be asked for."""
    records = (plant(600), plant(500, seed=1), plant(20, seed=2))
    shop = Workshop.of(whole(records), Options(), BUDGETS["quick"])
    model = shop.model(CLASSICAL[0])
    assert len(shop.records) == 2
    assert shown(records, model) == records[:2]
    assert np.isfinite(widen_to_residuals(model, shown(records, model)).inflation).all()
    assert nearest_member(model, shown(records, model)).start == model.start


def test_a_test_record_must_be_longer_than_dead_time_and_lags() -> None:
    record = plant(900)
    check_test(Options(), [record], [plant(120, seed=1)])
    with pytest.raises(DataError, match=r"has 60 rows, but the models tried need \d+ or more"):
        check_test(Options(), [record], [plant(60, seed=1)])
