"""The automatic mode: what is tried, what is chosen, and that nothing else is looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid import DataError, Record, SettingsError
from occamid.data import twins
from occamid.identification import identify as automatic
from occamid.identification.families import BUDGETS, Family, Plan, families
from occamid.identification.identify import Stage, Trial, choose, identify, thin
from occamid.training.settings import Settings

TINY = Plan(effort="quick", restarts=2, cycles=2, epochs=20, input_lags=3, output_lags=2)


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
    assert thin((record[:5000],), 10_000)[0] is not None
    assert len(thin((record[:5000],), 10_000)) == 1


def test_families_go_from_simple_to_flexible_and_take_what_is_fixed() -> None:
    twin = twins.make("hairdryer-twin", 0)
    found = families(Plan(), (twin.estimation,))
    assert [f.kind for f in found] == ["linear"] * 3 + ["response"] + ["curved"] * 2
    assert all(f.settings.seed == 0 for f in found)
    fixed = families(Plan(input_lags=4, output_lags=2, seed=3, lam=0.01), (twin.estimation,))
    assert {f.settings.input_lags for f in fixed} == {4}
    assert {f.settings.lam for f in fixed} == {(0.01,)}
    assert {f.settings.output_lags for f in fixed} == {2}  # so no family without outputs
    (lstm,) = families(Plan(network="lstm", input_lags=2, output_lags=2), (twin.estimation,))
    assert lstm.settings.network == "lstm"


def test_the_effort_says_how_much_is_tried() -> None:
    twin = twins.make("hairdryer-twin", 0)
    quick, thorough = (
        families(Plan(effort=effort), (twin.estimation,)) for effort in ("quick", "thorough")
    )
    assert quick[-1].settings.restarts == BUDGETS["quick"].restarts
    assert thorough[-1].settings.restarts == BUDGETS["thorough"].restarts
    assert quick[-1].settings.epochs < thorough[-1].settings.epochs


def test_plans_say_what_is_wrong() -> None:
    with pytest.raises(SettingsError, match="effort"):
        Plan(effort="much")
    with pytest.raises(SettingsError, match="known are effort, network"):
        Plan(speed=1)


@pytest.fixture(scope="module")
def twin() -> twins.Twin:
    return twins.make("hairdryer-twin", 0)


def test_an_identification_end_to_end(twin: twins.Twin) -> None:
    told: list[Stage] = []
    found = train(twin.estimation, TINY, progress=told.append)
    assert {t.family for t in found.trials} >= {"linear", "linear-refined", "curved-refined"}
    assert found.family.name in {t.family for t in found.trials}
    assert found.expected_rmse[0] > 0
    assert np.all(np.diff([s.share for s in told]) >= -1e-9)
    assert told[-1] == Stage("done", 1.0, told[-1].seconds)
    run = found.ensemble.free_run(twin.test.u, twin.test.y[:3])
    assert np.isfinite(run).all()
    again = train(twin.estimation, TINY)
    np.testing.assert_array_equal(run, again.ensemble.free_run(twin.test.u, twin.test.y[:3]))


def test_a_single_model_is_a_member_of_the_ensemble(twin: twins.Twin) -> None:
    many = train(twin.estimation, TINY)
    one = train(twin.estimation, TINY.model_copy(update={"single": True}))
    assert len(one.ensemble.weights) == 1
    mine = one.ensemble.members.model(0).free_run(twin.test.u, twin.test.y[:3])
    runs = [
        many.ensemble.members.model(k).free_run(twin.test.u, twin.test.y[:3])
        for k in range(len(many.ensemble.weights))
    ]
    assert min(float(np.max(np.abs(run - mine))) for run in runs) < 1e-8


def test_cross_validation_never_learns_from_the_block_it_judges(
    twin: twins.Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage in a held-back block changes what is judged there, not what is trained."""
    seen: list[np.ndarray] = []
    keep = automatic._held_back_squares

    def spy(members, *rest):  # type: ignore[no-untyped-def]
        seen.append(np.concatenate([np.ravel(v) for m in members for v in m.weights.values()]))
        return keep(members, *rest)

    monkeypatch.setattr(automatic, "_held_back_squares", spy)
    plan = TINY.model_copy(update={"network": "auto"})
    tried = families(plan, (twin.estimation,))[:2]
    block = slice(100, 200)
    for garbage in (0.0, 5.0):
        y = np.array(twin.estimation.y)
        y[block] += garbage
        record = replace(twin.estimation, y=y)
        automatic._fold(tried, (record,), [block], plan, lambda p: None, None)
    half = len(seen) // 2
    for clean, dirty in zip(seen[:half], seen[half:], strict=True):
        np.testing.assert_array_equal(clean, dirty)


def test_records_too_short_for_everything_say_so() -> None:
    rng = np.random.default_rng(0)
    record = Record(u=rng.standard_normal(12), y=rng.standard_normal(12))
    with pytest.raises(DataError):
        identify(record, Plan(effort="quick", input_lags=20, output_lags=20))
