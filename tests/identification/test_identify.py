"""The automatic mode: what is tried, what is chosen, and that nothing else is looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid import DataError, Fit, Options, Record, SettingsError, identify
from occamid.data import twins
from occamid.identification import referee
from occamid.identification.families import Family, families
from occamid.identification.identify import thin
from occamid.identification.options import BUDGETS
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import Trial, choose, sharing_settings
from occamid.training.settings import Settings
from occamid.training.train import Progress

TINY = Options(effort="quick", restarts=2, cycles=2, epochs=20, input_lags=3, output_lags=2)


def family(name: str, kind: str) -> Family:
    return Family(name, kind, name, Settings())


def trial(name: str, score: float) -> Trial:
    return Trial(name, name, (score,), score, 0.0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"a": 1.0, "b": 0.99, "c": 0.95}, "b"),  # the simple kind is near: its best family
        ({"a": 1.2, "b": 1.3, "c": 1.0}, "c"),  # it is not near
        ({"a": 1.0, "b": 2.0, "c": 0.95}, "a"),
        ({"a": np.inf, "b": np.inf, "c": np.inf}, "a"),  # nothing worked: the simplest
    ],
)
def test_the_simplest_kind_that_is_nearly_the_best(scores: dict[str, float], expected: str) -> None:
    tried = [family("a", "simple"), family("b", "simple"), family("c", "flexible")]
    assert choose(tried, [trial(n, s) for n, s in scores.items()]).name == expected


def test_without_trials_the_first_family_is_taken() -> None:
    assert choose([family("a", "x")], []).name == "a"


def test_long_records_are_thinned_to_evenly_spaced_pieces() -> None:
    n = 50_000
    record = Record(u=np.arange(n), y=np.arange(n) * 2.0, name="long")
    pieces = thin((record,), 10_000)
    assert sum(map(len, pieces)) == 10_000
    assert pieces[0].u[0, 0] == 0
    assert pieces[-1].u[-1, 0] == n - 1
    assert all(np.all(np.diff(p.u[:, 0]) == 1) for p in pieces)
    short = record[:5000]
    (whole,) = thin((short,), 10_000)
    assert whole is short


def test_families_go_from_simple_to_flexible_and_take_what_is_fixed() -> None:
    twin = twins.make("hairdryer-twin", 0)
    found = families(Options(), (twin.estimation,))
    assert [f.kind for f in found] == ["linear"] * 3 + ["response"] + ["curved"] * 2
    assert all(f.settings.seed == 0 for f in found)
    fixed = families(Options(input_lags=4, output_lags=2, seed=3, lam=0.01), (twin.estimation,))
    assert {f.settings.input_lags for f in fixed} == {4}
    assert {f.settings.lam for f in fixed} == {(0.01,)}
    assert {f.settings.output_lags for f in fixed} == {2}  # so no family without outputs
    (lstm,) = families(Options(network="lstm", input_lags=2, output_lags=2), (twin.estimation,))
    assert lstm.settings.network == "lstm"


def test_the_effort_says_how_much_is_tried() -> None:
    twin = twins.make("hairdryer-twin", 0)
    quick, thorough = (
        families(Options(effort=effort), (twin.estimation,)) for effort in ("quick", "thorough")
    )
    assert quick[-1].settings.restarts == BUDGETS["quick"].restarts
    assert thorough[-1].settings.restarts == BUDGETS["thorough"].restarts
    assert quick[-1].settings.epochs < thorough[-1].settings.epochs


def test_options_say_what_is_wrong() -> None:
    with pytest.raises(SettingsError, match="effort"):
        Options(effort="much")
    with pytest.raises(SettingsError, match="known are effort, network"):
        Options(speed=1)


@pytest.fixture(scope="module")
def twin() -> twins.Twin:
    return twins.make("hairdryer-twin", 0)


@pytest.fixture(scope="module")
def told() -> list[Stage]:
    """What the identification below says as it goes on."""
    return []


@pytest.fixture(scope="module")
def many(twin: twins.Twin, told: list[Stage]) -> Fit:
    return identify(twin.estimation, TINY, progress=told.append)


def test_an_identification_end_to_end(twin: twins.Twin, many: Fit, told: list[Stage]) -> None:
    assert {t.family for t in many.trials} >= {"linear", "linear-refined", "curved-refined"}
    (own,) = (t for t in many.trials if t.family == many.family.name)
    assert many.expected_rmse == own.rmse
    assert own.score == pytest.approx(own.rmse[0] / np.std(twin.estimation.y))
    assert many.family.name == choose(families(TINY, many.records), many.trials).name
    assert (many.records, many.options) == ((twin.estimation,), TINY)
    assert many.batch.settings == many.family.settings
    assert np.all(np.diff([s.share for s in told]) >= -1e-9)
    assert told[-1] == Stage("done", 1.0, told[-1].seconds)


def test_the_model_is_nearly_as_good_as_its_cross_validation(twin: twins.Twin, many: Fit) -> None:
    run = many.model.simulate(twin.test)
    assert run.rmse(twin.test)[0] < 2 * many.expected_rmse[0]
    np.testing.assert_allclose(
        run.mean, many.model.free_run(twin.test.u, twin.test.y[: many.model.start]), rtol=1e-6
    )


def test_options_by_name_are_the_same_options_and_the_seed_fixes_everything(
    twin: twins.Twin, many: Fit
) -> None:
    again = identify([twin.estimation], **TINY.given())
    assert again.options == TINY
    first, second = (f.model.free_run(twin.test.u, twin.test.y[:3]) for f in (many, again))
    np.testing.assert_array_equal(first, second)


def test_changes_go_before_options() -> None:
    """Refused with the changed value, so nothing is trained."""
    record = Record(u=np.arange(12.0) % 5, y=np.arange(12.0) % 3)
    with pytest.raises(DataError, match="the lags need more than 20"):
        identify(record, TINY, input_lags=20)
    with pytest.raises(SettingsError, match="speed"):
        identify(record, TINY, speed=1)


def test_a_single_model_is_a_member_of_the_ensemble(twin: twins.Twin, many: Fit) -> None:
    one = identify(twin.estimation, TINY, single=True)
    assert len(one.model.weights) == 1
    known = twin.test.y[:3]
    mine = one.model.members.model(0).free_run(twin.test.u, known)
    runs = many.model.members.free_run(twin.test.u, known)
    assert np.abs(runs - mine).max(axis=(1, 2)).min() < 1e-8


def test_one_family_is_not_cross_validated(twin: twins.Twin) -> None:
    fit = identify(twin.estimation, TINY, network="mlp", hidden=3)
    assert fit.trials == ()
    assert np.isnan(fit.expected_rmse).all()
    assert (fit.family.name, fit.batch.settings.hidden) == ("mlp", (3,))


def test_families_of_the_same_settings_share_a_training() -> None:
    a, b, c = (Settings(hidden=(n,)) for n in (1, 2, 3))
    tried = [
        Family(name, "kind", name, settings)
        for name, settings in zip("vwxyz", (a, a, b, c, c), strict=True)
    ]
    assert [[f.name for f in group] for group in sharing_settings(tried)] == [
        *(["v", "w"], ["x"], ["y", "z"])
    ]


def test_the_clock_gives_every_training_its_share_and_the_last_two() -> None:
    told: list[Stage] = []
    clock = Clock(told.append, 2)
    for what in ("first", "second", "last"):
        step = clock.sub(what)
        step(Progress(1, 2, 1, 0.0, 0.0, 0.0))
    clock.finish()
    assert [(s.what, s.share) for s in told] == [
        *(("first", 0.0), ("first", 0.125), ("second", 0.25), ("second", 0.375)),
        *(("last", 0.5), ("last", 0.625), ("done", 1.0)),
    ]


def test_cross_validation_never_learns_from_the_block_it_judges(
    twin: twins.Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage in a held-back block changes what is judged there, not what is trained."""
    seen: list[np.ndarray] = []
    keep = referee._held_back_squares

    def spy(members, *rest):  # type: ignore[no-untyped-def]
        seen.append(np.concatenate([np.ravel(v) for m in members for v in m.weights.values()]))
        return keep(members, *rest)

    monkeypatch.setattr(referee, "_held_back_squares", spy)
    tried = families(TINY, (twin.estimation,))[:2]
    block = slice(100, 200)
    for garbage in (0.0, 5.0):
        y = np.array(twin.estimation.y)
        y[block] += garbage
        record = replace(twin.estimation, y=y)
        referee._fold(tried, (record,), [block], TINY, lambda p: None, None)
    clean, dirty = seen[:2], seen[2:]  # two families each
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(one, other)


def test_records_too_short_for_everything_say_so() -> None:
    rng = np.random.default_rng(0)
    record = Record(u=rng.standard_normal(12), y=rng.standard_normal(12))
    with pytest.raises(DataError, match="has 12 rows, but the lags need more than 20"):
        identify(record, Options(effort="quick", input_lags=20, output_lags=20))
