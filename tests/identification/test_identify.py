"""The automatic mode: what is tried, what is chosen, and that nothing else is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from occamid import DataError, Fit, Options, Record, SettingsError, identify, load
from occamid.data import twins
from occamid.identification.assemble import Workshop
from occamid.identification.families import Family, families
from occamid.identification.identify import _Bench
from occamid.identification.options import BUDGETS, Budget
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import Judgement, judge
from occamid.identification.thinning import thin
from occamid.reporting.content import show
from occamid.training.settings import Settings
from occamid.training.train import Progress
from tests.support.small import small_record

TINY = Options(effort="quick", restarts=2, cycles=2, epochs=20, input_lags=3, output_lags=2)
ROWS = 240  # of all records that TINY is used on: one shape for all
pytestmark = pytest.mark.usefixtures("two_folds")


def settings_of(found: list[Family]) -> list[Settings]:
    """Of the families that are trained."""
    return [f.settings for f in found if f.settings is not None]


@pytest.mark.parametrize(
    ("fails", "chosen", "said"),
    [
        ({("linear", False)}, "linear", "linear could not be trained on all data (wild); it was"),
        ({("linear", False), ("linear", True)}, "curved", "(wild); curved is next"),
    ],
)
def test_what_fails_on_all_data_gives_way(
    monkeypatch: pytest.MonkeyPatch, fails: set[tuple[str, bool]], chosen: str, said: str
) -> None:
    """The family as it was in the folds, or the next best one, and the report says so."""
    inner = Workshop.model

    def model(shop: Workshop, family: Family, progress: Any = None) -> Any:
        all_rows = sum(np.sum(seen) for _, seen in shop.lesson.blanked) == ROWS
        if all_rows and (family.name, shop.budget.compared) in fails:
            raise DataError("wild.")
        return inner(shop, family, progress)

    def judged(*args: Any, **told: Any) -> Judgement:
        found = judge(*args, **told)
        heard = {name: found.hearings[name] for name in ("linear", "curved")}
        return replace(found, chosen="linear", hearings=heard)

    monkeypatch.setattr(Workshop, "model", model)
    monkeypatch.setattr("occamid.identification.identify.judge", judged)
    fit = identify(small_record(ROWS), TINY)
    assert fit.family.name == chosen
    assert said in fit.grounds
    assert set(fit.shares) <= {"linear", "curved"} - ({"linear"} if chosen == "curved" else set())


@pytest.mark.parametrize(
    ("own", "chosen", "said"),
    [
        ([1.4], "linear", ""),
        ([2.0, 1.0], "linear", "held-back data; it was trained as in the folds"),
        ([2.0, 2.0, 1.0], "curved", "held-back data; curved is next"),
        ([2.5, 2.6, 2.55], "linear", "linear is taken all the same, for no other promises less"),
        ([2.0, 2.0, 2.1], "linear", "linear is taken all the same, for no other promises less"),
        ([1.7, 1.7], "linear", "linear is taken all the same, for no other promises less"),
    ],
)
def test_a_model_worse_on_its_own_data_than_on_held_back_ones_is_doubted(
    monkeypatch: pytest.MonkeyPatch, own: list[float], chosen: str, said: str
) -> None:
    """Another takes its place that errs less there and promises less: linear 1, curved 1.8."""

    def judged(*args: Any, **told: Any) -> Judgement:
        found = judge(*args, **told)
        heard = {name: found.hearings[name] for name in ("linear", "curved")}
        return replace(found, chosen="linear", hearings=heard)

    errs = iter(own)
    monkeypatch.setattr("occamid.identification.identify.judge", judged)
    monkeypatch.setattr(_Bench, "heard", lambda *told: {"linear": 1.0, "curved": 1.8}[told[-1]])
    monkeypatch.setattr(_Bench, "own", lambda *_: next(errs))
    fit = identify(small_record(ROWS), TINY, single=True)
    assert not list(errs)
    assert fit.family.name == chosen
    assert said in fit.grounds
    assert ("errs more on data it learned from" in fit.grounds) == bool(said)


def test_errors_on_own_data_are_counted_in_spreads_of_what_was_measured() -> None:
    """Of all outputs together; outputs before a record are not the plant's."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(100, 2)) * [2.0, 5.0]
    record = Record(u=rng.normal(size=100), y=np.concatenate([y[:1]] * 30 + [y[30:]]), lead=30)
    bench = _Bench((record,), (record,), TINY, None, Clock(None), (0,))
    spread = np.std(y[30:], axis=0)
    assert bench.in_spreads(3 * spread) == pytest.approx(3.0)
    assert bench.in_spreads(np.array([spread[0], 0.0])) == pytest.approx(0.5**0.5)


def test_long_records_are_thinned_to_evenly_spaced_pieces() -> None:
    n = 50_000
    record = Record(u=np.arange(n), y=np.arange(n) * 2.0, name="long")
    pieces = thin((record,), 10_000)
    assert [len(p) - p.lead for p in pieces] == [2000] * 5
    assert [len(p) - p.lead for p in thin((record,), 1000)] == [500] * 2  # not ten short ones
    assert pieces[0].u[0, 0] == 0
    assert pieces[-1].u[-1, 0] == n - 1
    assert all(np.all(np.diff(p.u[:, 0]) == 1) for p in pieces)
    short = record[:5000]
    (whole,) = thin((short,), 10_000)
    assert whole is short


def test_of_many_records_the_long_ones_are_taken() -> None:
    lengths = (700, 40, 3000, 60, 50, 800, 30, 2000)
    records = tuple(
        Record(u=np.arange(n) % 7.0, y=np.arange(n), name=f"r{k}") for k, n in enumerate(lengths)
    )
    pieces = thin(records, 1000)
    assert [p.name.split()[0] for p in pieces] == ["r2", "r7"]
    assert [len(p) - p.lead for p in pieces] == [500, 500]
    many = thin(records, 4000)
    assert 3500 <= sum(len(p) - p.lead for p in many) <= 4000
    assert min(len(p) - p.lead for p in many) >= 500


def test_families_go_from_simple_to_flexible_and_take_what_is_fixed() -> None:
    twin = twins.make("hairdryer-twin", 0)
    found = families(Options(), (twin.estimation,), given=1000)
    kinds = ["linear"] * 12 + ["response"] + ["curved"] * 2 + ["state-space"]
    assert [f.kind for f in found] == kinds
    plain = [f.name for f in found if f.settings is None]
    classical = ["arx", "output-error", "fading-arx", "fading-response", "subspace"]
    resting = ["arx-zero", "fading-arx-zero", "fading-response-zero", "subspace-zero"]
    assert plain == [*classical, *resting, "state-space-linear", "state-space"]
    assert all(s.seed == 0 for s in settings_of(found))
    assert found[4].search is not None
    assert found[4].search.projected
    hidden = {f.name: f.search.told for f in found if f.search and not f.search.projected}
    assert hidden == {"state-space-linear": True, "state-space": False}
    (named,) = families(Options(network="state-space"), (twin.estimation,))
    assert named.search is not None
    assert named.search.told  # whoever names it wants to know its order
    (given,) = (f for f in families(Options(order=5), (twin.estimation,)) if f.name == "subspace")
    assert given.search is not None
    assert given.search.orders == (5,)
    fixed = families(Options(input_lags=4, output_lags=2, seed=3, lam=0.01), (twin.estimation,))
    assert len(settings_of(fixed)) == len(fixed)  # plain least squares takes no orders
    assert {s.input_lags for s in settings_of(fixed)} == {4}
    assert {s.lam for s in settings_of(fixed)} == {(0.01,)}
    assert {s.output_lags for s in settings_of(fixed)} == {2}  # so no family without outputs
    lstm = families(Options(network="lstm", input_lags=2, output_lags=2), (twin.estimation,))
    assert [s.network for s in settings_of(lstm)] == ["lstm"]


def test_many_channels_have_fewer_lags_each() -> None:
    """What refinement costs grows with the square of the weights."""
    rng = np.random.default_rng(0)
    many = Record(u=rng.normal(size=(900, 5)), y=rng.normal(size=(900, 5)))
    found = {f.name: f.settings for f in families(Options(), (many,)) if f.settings is not None}
    lags = {name: (s.input_lags, s.output_lags) for name, s in found.items()}
    assert lags["curved"] == lags["curved-refined"] == (4, 4)
    assert lags["response"] == (18, 0)
    one = Record(u=rng.normal(size=900), y=rng.normal(size=900))
    found = {f.name: f.settings for f in families(Options(), (one,)) if f.settings is not None}
    assert (found["curved"].output_lags, found["response"].input_lags) == (10, 50)


def test_state_space_models_are_tried_where_there_are_rows_enough_or_if_asked_for() -> None:
    twin = twins.make("hairdryer-twin", 0).estimation
    for effort, given, tried in (
        ("quick", 1499, 0),
        ("quick", 1500, 2),
        ("standard", 99, 0),
        ("standard", 100, 2),
    ):
        found = families(Options(effort=effort), (twin,), given)
        assert sum(f.name.startswith("state-space") for f in found) == tried
    asked = Options(effort="quick", network="state-space", order=3, units=4, restarts=5, seed=7)
    (only,) = families(asked, (twin[:100],))
    assert only.search is not None
    assert (only.search.orders, only.search.units) == ((3,), 4)
    assert (only.search.restarts, only.search.seed) == (5, 7)
    assert only.search.fixed
    (free,) = families(Options(network="state-space"), (twin,))
    assert free.search is not None
    assert not free.search.fixed
    (linear,) = families(Options(network="state-space", units=0), (twin,))
    assert linear.name == "state-space-linear"
    assert linear.search is not None
    assert linear.search.orders == (1, 2, 3, 4, 5, 6, 7, 8)


def test_recurrent_networks_are_tried_thoroughly_on_long_records_or_if_asked_for() -> None:
    rng = np.random.default_rng(0)
    long = Record(u=rng.normal(size=1000), y=rng.normal(size=1000))
    for effort, record, tried in (("thorough", long, ["rnn", "lstm"]), ("thorough", long[:999], []),
                                  ("standard", long, [])):  # fmt: skip
        found = families(Options(effort=effort), (record,))
        assert [f.name for f in found if f.kind == "recurrent"] == tried
        assert all(f.refined for f in found if f.kind == "recurrent")
    (named,) = families(Options(network="rnn", refined=True), (long,))
    assert named.refined
    for wrong in ({"refined": True}, {"refined": True, "network": "state-space"}):
        with pytest.raises(SettingsError, match="named mlp, lstm or rnn"):
            families(Options(**wrong), (long,))
    with pytest.raises(SettingsError, match="named mlp"):
        families(Options(network="lstm", skip=True), (long,))


def test_a_state_space_model_from_records_to_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen order is the plant's; bands cover; a loaded model runs the same."""
    budget = BUDGETS["quick"]
    few = replace(budget.search, orders=(1, 2, 3), members=2, iterations=20)
    monkeypatch.setitem(BUDGETS, "quick", replace(budget, folds=2, search=few))
    rng = np.random.default_rng(0)
    u, x = rng.normal(size=700), np.zeros(2)
    y = np.zeros(700)
    for t in range(700):
        y[t] = x[0]
        x = np.array([1.5 * x[0] - 0.7 * x[1] + u[t], x[0]])
    y += 0.1 * y.std() * rng.normal(size=700)
    record = Record(u=u, y=y)
    fit = identify(record[:450], effort="quick", network="state-space", units=0)
    assert fit.model.network.hidden == (2, 0)
    run = fit.model.simulate(record[450:], 20)
    assert run.rmse(record[450:])[0] < 1.1 * 0.1 * y.std()
    assert 0.88 < run.coverage(record[450:])[0] < 1
    assert 0.7 < run.rmse(record[450:])[0] / fit.expected_rmse[0] < 1.4
    assert fit.coverage_of_data == "trained on 450 of 450 rows"
    fit.model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors").simulate(record[450:], 20)
    np.testing.assert_array_equal(again.std, run.std)


def test_the_effort_says_how_much_is_tried() -> None:
    twin = twins.make("hairdryer-twin", 0)
    quick, thorough = (
        settings_of(families(Options(effort=effort), (twin.estimation,)))[-1]
        for effort in ("quick", "thorough")
    )
    assert quick.restarts == BUDGETS["quick"].restarts
    assert thorough.restarts == BUDGETS["thorough"].restarts
    assert quick.epochs < thorough.epochs


def test_options_say_what_is_wrong() -> None:
    with pytest.raises(SettingsError, match="effort"):
        Options(effort="much")
    with pytest.raises(SettingsError, match="known are effort, network"):
        Options(speed=1)


@pytest.fixture(scope="module")
def twin() -> twins.Twin:
    whole = twins.make("hairdryer-twin", 0)
    return replace(whole, estimation=whole.estimation[-ROWS:])


@pytest.fixture(scope="module")
def told() -> list[Stage]:
    """What the identification below says as it goes on."""
    return []


@pytest.fixture(scope="module")
def many(twin: twins.Twin, told: list[Stage]) -> Fit:
    return identify(twin.estimation, TINY, progress=told.append)


def test_an_identification_end_to_end(twin: twins.Twin, many: Fit, told: list[Stage]) -> None:
    assert {t.family for t in many.trials} >= {"linear", "curved", "curved-refined"}
    (own,) = (t for t in many.trials if t.family == many.family.name)
    assert own.score == pytest.approx(own.rmse[0] / np.std(twin.estimation.y))
    assert own.score <= min(t.score + 2 * t.error for t in many.trials if np.isfinite(t.error))
    # all data are no worse than those of a fold, and not far better
    assert 0.4 * own.rmse[0] < many.expected_rmse[0] <= own.rmse[0]
    ((low, high),) = many.expected_interval
    assert 0 < low <= many.expected_rmse[0] < high
    assert many.family.name in many.grounds
    assert "held-back data" in many.grounds
    assert (many.records, many.options) == ((twin.estimation,), TINY)
    assert many.batch is not None
    assert many.batch.settings == many.family.settings
    assert many.model.inflation.shape == (3, 1)
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


@pytest.fixture(scope="module")
def named(twin: twins.Twin) -> Fit:
    return identify(twin.estimation, TINY, network="mlp", hidden=3)


def test_a_single_model_is_a_member_of_the_ensemble(twin: twins.Twin, named: Fit) -> None:
    one = identify(twin.estimation, named.options, single=True)
    assert len(one.model.weights) == 1
    assert len(named.model.weights) > 1
    known = twin.test.y[:3]
    mine = one.model.members.model(0).free_run(twin.test.u, known)
    runs = named.model.members.free_run(twin.test.u, known)
    assert np.abs(runs - mine).max(axis=(1, 2)).min() < 1e-8


def test_one_family_is_cross_validated_for_its_bands_and_expected_error(named: Fit) -> None:
    (trial,) = named.trials
    assert trial.family == named.family.name == "mlp"
    assert np.isfinite(named.expected_rmse).all()
    assert named.batch is not None
    assert named.batch.settings.hidden == (3,)


def test_the_clock_gives_every_training_its_share_and_the_last_two() -> None:
    told: list[Stage] = []
    clock = Clock(told.append, 4)
    clock.fewer(2)  # were given up
    first, second = clock.sub("first"), clock.sub("second")  # at the same time
    for part in (first, second, first):
        part(Progress(1, 2, 1, 0.0, 0.0, 0.0))
    first.close()
    clock.sub("last")
    clock.finish()
    assert [(s.what, s.share) for s in told] == [
        *(("first", 0.0), ("second", 0.0), ("first", 0.125), ("second", 0.25), ("first", 0.25)),
        *(("last", 0.375), ("done", 1.0)),
    ]


def test_records_too_short_for_everything_say_so() -> None:
    rng = np.random.default_rng(0)
    record = Record(u=rng.standard_normal(12), y=rng.standard_normal(12))
    with pytest.raises(DataError, match="has 12 rows, but the lags need more than 20"):
        identify(record, Options(effort="quick", input_lags=20, output_lags=20))


def test_what_a_fit_shows_of_pieces_has_outputs_throughout() -> None:
    """Pieces of a thinned record lead with inputs alone; nobody outside the training sees that."""
    record = small_record(400)
    options = Options(effort="quick", network="mlp", hidden=2, input_lags=2, output_lags=2)
    with pytest.MonkeyPatch.context() as patch:
        small = Budget(folds=0, restarts=2, members=1, iterations=2, pace=0.02, rows=200)
        patch.setitem(BUDGETS, "quick", small)
        fit = identify(record, options, cycles=1, epochs=10)
    assert [r.lead for r in fit.records] == [0, 0]
    assert [len(r) for r in fit.records] == [100, 100]
    for shown in show(fit.model, fit.records):
        assert shown.free.mean.shape == shown.record.y.shape
