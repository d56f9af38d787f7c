"""The scikit-learn regressor: its conventions, experiments, pandas, and the figures it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    parametrize_with_checks,
)

from occamid import Ensemble, Model, Posterior, Record, combine
from occamid.data.scaling import fit_scaling
from occamid.data.windows import all_terms
from occamid.errors import DataError, OccamidError
from occamid.identification import estimator as module
from occamid.identification.estimator import SparseNARX
from occamid.identification.options import BUDGETS
from occamid.networks import MLP
from tests.support.small import small_record

Array = np.ndarray
CANNOT_APPLY = {
    "check_methods_sample_order_invariance": "the order of rows is time; another is another signal",
    "check_methods_subset_invariance": "an output depends on the rows before it, not on its own",
}


IDENTIFIED = (
    *("check_fit_idempotent", "check_regressors_train", "check_regressor_multioutput"),
    *("check_fit2d_1sample", "check_fit2d_1feature", "check_estimators_pickle"),
)


def quick(**changes: Any) -> SparseNARX:
    """Settings that fit in a moment."""
    tiny = {"network": "mlp", "hidden": (3,), "input_lags": 1, "output_lags": 1, "lam": 1e-3}
    return SparseNARX(**{**tiny, "effort": "quick", "restarts": 2, "single": True, **changes})


@pytest.fixture(autouse=True, scope="module")
def compile_in_a_hurry() -> Iterator[None]:
    """Some twenty shapes of data pass here, each for a moment: compiling is all that takes time."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True, scope="module")
def hold_nothing_back() -> Iterator[None]:
    """The choice between families has its own tests; here every fit would be fitted four times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BUDGETS, "quick", replace(BUDGETS["quick"], folds=0))
        yield


def straight(records: Sequence[Record], params: dict[str, Any]) -> Ensemble:
    """Least squares at lags 0 and 1, where an identification would compile for each shape."""
    scaling, terms = fit_scaling(records, "standardize"), all_terms(records[0], 1, 1)
    rows, targets = [], []
    for u, y in ((scaled.u, scaled.y) for scaled in map(scaling.apply, records)):
        now = [u[1 - lag : len(u) - lag, c] for c, lag in terms.inputs]
        rows.append(np.column_stack([*now, *(y[:-1, c] for c, _ in terms.outputs)]))
        targets.append(y[1:])
    W = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0].T
    network = MLP(len(terms), (), len(W), "identity", False)
    model = Model(network, terms, scaling, {"layer0.W": W}, 1, records[0].sampling_time)
    flat, noise = np.full(W.size, 0.01), np.full(len(W), 0.1)
    places = np.arange(W.size)
    return combine([Posterior(model, "diagonal", places, flat, 100 * flat, noise, 1.0, 0.0)])


@parametrize_with_checks(
    [quick()], expected_failed_checks=lambda estimator: CANNOT_APPLY, xfail_strict=True
)
def test_scikit_learn(
    estimator: SparseNARX,
    check: Callable[[SparseNARX], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most look at what goes in and comes out; some need what is really identified."""
    if check.func.__name__ not in IDENTIFIED:  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "_identify", straight)
    check(estimator)


def test_feature_names_as_scikit_learn_checks_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_identify", straight)
    check_dataframe_column_names_consistency("SparseNARX", quick())


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    record = small_record()
    return np.array(record.u), np.array(record.y[:, 0])


@pytest.fixture(scope="module")
def fitted(data: tuple[Array, Array]) -> SparseNARX:
    return quick(single=False, output_lags=2, sampling_time=0.1).fit(*data)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, fitted: SparseNARX) -> list[Record]:
    """Fits identify nothing; the records they would have used are kept here."""
    kept: list[Record] = []

    def remember(records: Sequence[Record], params: dict[str, Any]) -> Ensemble:
        kept[:] = records
        return fitted.model_

    monkeypatch.setattr(module, "_identify", remember)
    return kept


def two_channels(samples: int = 120) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two inputs and two outputs with names and times."""
    rng = np.random.default_rng(1)
    u = rng.normal(size=(samples, 2))
    y = np.zeros((samples, 2))
    for t in range(1, samples):
        y[t] = 0.5 * y[t - 1, ::-1] + u[t - 1] + 0.02 * rng.normal(size=2)
    index = pd.date_range("2026-01-01", periods=samples, freq="s")
    return (
        pd.DataFrame(u, index=index, columns=["valve", "heater"]),
        pd.DataFrame(y, index=index, columns=["level", "temperature"]),
    )


@pytest.fixture(scope="module")
def named() -> tuple[SparseNARX, pd.DataFrame, pd.DataFrame]:
    X, y = two_channels()
    return quick().fit(X, y), X, y


# What is fitted


def test_fitted_attributes(fitted: SparseNARX, data: tuple[Array, Array]) -> None:
    assert isinstance(fitted.model_, Ensemble)
    assert len(fitted.model_.posteriors) == 2
    assert fitted.regressors_ == fitted.model_.regressors
    assert fitted.n_features_in_ == 1
    assert fitted.n_outputs_ == 1
    assert fitted.sampling_time_ == 0.1
    lags = [int(name.split("-")[1][:-1]) for name in fitted.regressors_ if "-" in name]
    assert fitted.max_lag_ == max(lags)
    np.testing.assert_allclose(fitted.output_mean_, data[1].mean())
    assert not hasattr(fitted, "feature_names_in_")


def test_a_new_fit_forgets_the_old_one(seen: list[Record]) -> None:
    X, y = two_channels()
    model = quick().fit(X, y)
    assert model.n_outputs_ == 2
    numbers = X.to_numpy()
    model.fit([numbers[:60, :1], numbers[60:, :1]], [numbers[:60, 1], numbers[60:, 1]])
    assert model.n_outputs_ == model.n_features_in_ == 1
    assert not hasattr(model, "feature_names_in_")


def test_the_seed_decides(data: tuple[Array, Array], fitted: SparseNARX) -> None:
    again = clone(fitted).fit(*data)
    np.testing.assert_array_equal(again.predict(data[0]), fitted.predict(data[0]))
    other = clone(fitted).set_params(seed=1).fit(*data)
    assert not np.allclose(other.predict(data[0]), fitted.predict(data[0]))


# Figures


def test_simulate_is_the_free_run_of_the_ensemble(
    fitted: SparseNARX, data: tuple[Array, Array]
) -> None:
    X, y = data
    for n_init in (fitted.max_lag_, 7):
        run = fitted.simulate(X, y[:n_init])
        expected = fitted.model_.free_run(X, y[:n_init])
        np.testing.assert_array_equal(run, expected[:, 0])
        np.testing.assert_array_equal(run[:n_init], y[:n_init])


def test_simulate_with_a_standard_deviation(fitted: SparseNARX, data: tuple[Array, Array]) -> None:
    X, y = data
    run, std = fitted.simulate(X, y[:5], return_std=True)
    np.testing.assert_allclose(run, fitted.simulate(X, y[:5]), rtol=1e-9)
    record = Record(u=X, y=y, sampling_time=0.1)
    expected = fitted.model_.simulate(record, 5).spread
    np.testing.assert_allclose(std, expected[:, 0])
    assert np.all(std[:5] == 0)
    assert np.all(std[5:] > 0)


@pytest.mark.parametrize("horizon", [1, 3])
def test_predict_with_measured_outputs(
    fitted: SparseNARX, data: tuple[Array, Array], horizon: int
) -> None:
    X, y = data
    expected = fitted.model_.predict(Record(u=X, y=y, sampling_time=0.1), horizon).mean
    np.testing.assert_array_equal(fitted.predict(X, y, horizon=horizon), expected[:, 0])


def test_predict_without_outputs_starts_at_the_mean(
    fitted: SparseNARX, data: tuple[Array, Array]
) -> None:
    X, y = data
    start = np.full(fitted.max_lag_, y.mean())
    expected = fitted.model_.free_run(X, start)[:, 0]
    np.testing.assert_array_equal(fitted.predict(X), expected)
    np.testing.assert_array_equal(fitted.predict(X[:1]), [y.mean()])
    assert fitted.predict(X[: fitted.max_lag_]).shape == (fitted.max_lag_,)


def test_score_in_plain_numpy(fitted: SparseNARX) -> None:
    fresh = small_record(90, seed=5)
    n = fitted.max_lag_
    run = fitted.model_.free_run(fresh.u, fresh.y[:n])
    error, rest = (fresh.y - run)[n:], fresh.y[n:]
    expected = 1 - np.sum(error**2) / np.sum((rest - rest.mean()) ** 2)
    assert fitted.score(fresh.u, fresh.y[:, 0]) == pytest.approx(expected, rel=1e-12)
    assert expected > 0.9


def test_score_averages_outputs_and_joins_experiments(
    named: tuple[SparseNARX, pd.DataFrame, pd.DataFrame],
) -> None:
    model, X, y = named
    n = model.max_lag_
    measured, modelled = [], []
    for rows in (slice(0, 50), slice(50, None)):
        u, outputs = X.to_numpy()[rows], y.to_numpy()[rows]
        measured.append(outputs[n:])
        modelled.append(model.model_.free_run(u, outputs[:n])[n:])
    truth, run = np.concatenate(measured), np.concatenate(modelled)
    shares = np.sum((truth - run) ** 2, axis=0) / np.sum((truth - truth.mean(axis=0)) ** 2, axis=0)
    expected = pytest.approx(np.mean(1 - shares), rel=1e-12)
    assert model.score([X[:50], X[50:]], [y[:50], y[50:]]) == expected
    assert model.score(X, y, groups=np.arange(120) >= 50) == expected


def test_a_diverged_free_run_scores_minus_infinity(
    fitted: SparseNARX, data: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ensemble, "free_run", lambda self, u, y: np.full((len(u), 1), np.nan))
    assert fitted.score(*data) == -np.inf


# Experiments


def test_groups_and_lists_are_the_same_experiments(
    data: tuple[Array, Array], seen: list[Record]
) -> None:
    X, y = data
    labels = np.repeat(["b", "a", "b"], [50, 30, 40])  # a label that comes back begins anew
    pieces = [slice(0, 50), slice(50, 80), slice(80, 120)]
    for fit in (
        lambda: quick().fit(X, y, groups=labels),
        lambda: quick().fit(X, y, groups=pd.Series(labels)),
        lambda: quick().fit([X[p] for p in pieces], [y[p] for p in pieces]),
        lambda: quick().fit(tuple(X[p] for p in pieces), tuple(y[p, None] for p in pieces)),
    ):
        fit()
        assert len(seen) == 3
        for record, piece in zip(seen, pieces, strict=True):
            np.testing.assert_array_equal(record.u, X[piece])
            np.testing.assert_array_equal(record.y[:, 0], y[piece])


def test_predictions_of_experiments(fitted: SparseNARX, data: tuple[Array, Array]) -> None:
    X, y = data
    labels = np.arange(120) // 60
    halves = [X[:60], X[60:]]
    for outputs in (None, [y[:60], y[60:]]):
        found = fitted.predict(halves, outputs)
        joined = fitted.predict(X, None if outputs is None else y, groups=labels)
        assert isinstance(found, list)
        np.testing.assert_array_equal(np.concatenate(found), joined)
        alone = fitted.predict(X[60:], None if outputs is None else y[60:])
        np.testing.assert_array_equal(found[1], alone)


def test_nested_lists_of_numbers_are_one_experiment(
    data: tuple[Array, Array], seen: list[Record]
) -> None:
    X, y = data
    quick().fit(X.tolist(), y.tolist())
    assert [len(record) for record in seen] == [120]
    assert quick().fit(X, list(np.c_[y, y**2])).n_outputs_ == 2  # rows that are arrays
    assert seen[0].y.shape == (120, 2)


# pandas


def test_pandas_names_in_and_out(named: tuple[SparseNARX, pd.DataFrame, pd.DataFrame]) -> None:
    model, X, y = named
    assert list(model.feature_names_in_) == ["valve", "heater"]
    assert list(model.output_names_) == ["level", "temperature"]
    kept = {name.split("[")[0] for name in model.regressors_}
    assert kept == {"valve", "heater", "level", "temperature"}
    run, std = model.simulate(X, y[: model.max_lag_], return_std=True)
    for table in (model.predict(X), model.predict(X, y, horizon=2), run, std):
        assert isinstance(table, pd.DataFrame)
        assert table.index.equals(X.index)
        assert list(table.columns) == list(y.columns)
    expected = model.model_.free_run(X.to_numpy(), y.to_numpy()[: model.max_lag_])
    np.testing.assert_allclose(run, expected, rtol=1e-9)


def test_a_frame_of_inputs_with_a_series_of_outputs(seen: list[Record]) -> None:
    X, y = two_channels()
    model = quick().fit(X[["valve"]], y["level"])
    assert seen[0].input_names == ("valve",)
    assert seen[0].output_names == ("level",)
    found = model.predict(X[["valve"]])
    assert isinstance(found, pd.Series)
    assert found.name == "level"
    assert found.index.equals(X.index)


def test_the_index_may_come_from_the_outputs(seen: list[Record]) -> None:
    X, y = two_channels()
    numbers, level = X[["valve"]].to_numpy(), y["level"].rename(None)
    model = quick(sampling_time=0.1).fit(numbers, level)
    assert seen[0].output_names == ("y",)
    assert model.predict(numbers, level).index.equals(y.index)
    assert model.predict(numbers).index.equals(pd.RangeIndex(120))


def test_columns_of_y_must_be_the_fitted_ones(
    named: tuple[SparseNARX, pd.DataFrame, pd.DataFrame],
) -> None:
    model, X, y = named
    swapped = y[["temperature", "level"]]
    with pytest.raises(DataError, match="columns temperature, level; the model was fitted on lev"):
        model.score(X, swapped)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[["heater", "valve"]])


# scikit-learn's tools


def test_parameters_are_stored_unchanged() -> None:
    hidden = [4, 5]
    model = SparseNARX(hidden=hidden, lam=(1e-3, 1e-2), effort="nonsense")
    assert model.get_params()["hidden"] is hidden
    copy = clone(model).set_params(lam=1e-4)
    assert copy.lam == 1e-4
    assert copy.hidden == hidden
    assert set(SparseNARX().get_params()) == {
        *("network", "hidden", "input_lags", "output_lags", "lam", "restarts"),
        *("effort", "seed", "single", "sampling_time"),
    }


def test_grid_search_in_time_order_through_a_pipeline(data: tuple[Array, Array]) -> None:
    pipeline = make_pipeline(StandardScaler(), quick(output_lags=2, single=False))
    search = GridSearchCV(pipeline, {"sparsenarx__lam": [1e-3, 5e-2]}, cv=TimeSeriesSplit(2))
    search.fit(*data)
    assert np.min(search.cv_results_["mean_test_score"]) > 0.8
    assert search.best_score_ == np.max(search.cv_results_["mean_test_score"])
    assert search.score(*data) > 0.9
    assert search.predict(data[0]).shape == (120,)


def test_a_pipeline_passes_groups(data: tuple[Array, Array], seen: list[Record]) -> None:
    pipeline = make_pipeline(StandardScaler(), quick())
    pipeline.fit(*data, sparsenarx__groups=np.arange(120) // 60)
    assert [len(record) for record in seen] == [60, 60]


def test_groups_reach_the_fits_of_a_cross_validation(
    data: tuple[Array, Array], seen: list[Record]
) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(groups=True).set_score_request(groups=True)
        labels = np.arange(120) // 30
        scores = cross_val_score(model, *data, cv=GroupKFold(2), params={"groups": labels})
    assert [len(record) for record in seen] == [30, 30]
    assert scores.shape == (2,)


# What is refused, and what is left out


def test_a_constant_input_is_left_out(data: tuple[Array, Array], seen: list[Record]) -> None:
    X, y = data
    wide = np.column_stack([np.full(120, 3.0), X])
    with pytest.warns(UserWarning, match="so left out: u1"):
        model = quick().fit(wide, y)
    assert seen[0].input_names == ("u2",)
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(model.inputs_used_, [False, True])
    expected = quick().fit(X, y).predict(X)
    np.testing.assert_array_equal(model.predict(wide), expected)


BAD_FITS: list[tuple[str, dict[str, Any], Callable[[Array, Array], tuple[Any, ...]]]] = [
    ("every input is constant", {}, lambda X, y: (0 * X, y)),
    ("output y is constant", {}, lambda X, y: (X, 0 * y)),
    ("minimum of 2 is required", {}, lambda X, y: (X[:1], y[:1])),
    ("has 5 rows, but the lags need more than 9", {"input_lags": 9}, lambda X, y: (X[:5], y[:5])),
    ("Expected 2D array", {}, lambda X, y: (X[:, 0], y)),
    ("inconsistent numbers of samples", {}, lambda X, y: (X, y[:-1])),
    ("y must be a list of as many arrays", {}, lambda X, y: ([X, X], y)),
    ("y must be a list of as many arrays", {}, lambda X, y: ([X, X], [y])),
    ("y has 2 columns, but the model 1: y", {}, lambda X, y: ([X, X], [y, np.c_[y, y]])),
    ("leave groups out", {}, lambda X, y: ([X], [y], np.zeros(120))),
    ("inconsistent numbers of samples", {}, lambda X, y: (X, y, np.zeros(5))),
    ("missing labels", {}, lambda X, y: (X, y, np.full(120, np.nan))),
    (
        "setting effort: input should be 'quick', 'standard' or",
        {"effort": "no"},
        lambda X, y: (X, y),
    ),
    ("no model is usable", {"lam": 5.0, "output_lags": 2}, lambda X, y: (X, y)),
    ("setting network", {"network": "tree"}, lambda X, y: (X, y)),
    ("setting hidden: give at least one layer", {"hidden": ()}, lambda X, y: (X, y)),
    ("the sampling time is -1", {"sampling_time": -1}, lambda X, y: (X, y)),
]


@pytest.mark.parametrize(("message", "params", "spoil"), BAD_FITS)
def test_bad_fits(
    message: str,
    params: dict[str, Any],
    spoil: Callable[[Array, Array], tuple[Any, ...]],
    data: tuple[Array, Array],
) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**params).fit(*spoil(*data))


BAD_CALLS: list[tuple[str, Callable[[SparseNARX, Array, Array], Any]]] = [
    ("the horizon is 0", lambda m, X, y: m.predict(X, y, horizon=0)),
    ("the horizon is -1", lambda m, X, y: m.predict(X, y, horizon=-1)),
    ("y has 2 columns, but the model 1: y", lambda m, X, y: m.predict(X, np.c_[y, y])),
    ("y_init has 0 samples", lambda m, X, y: m.simulate(X, y[:0])),
    ("nothing is left to simulate", lambda m, X, y: m.simulate(X, y)),
    ("one experiment at a time", lambda m, X, y: m.simulate([X, X], y[:3])),
    ("rows are too few for a score", lambda m, X, y: m.score(X[:2], y[:2])),
]


@pytest.mark.parametrize(("message", "call"), BAD_CALLS)
def test_bad_calls(
    message: str,
    call: Callable[[SparseNARX, Array, Array], Any],
    fitted: SparseNARX,
    data: tuple[Array, Array],
) -> None:
    with pytest.raises(OccamidError, match=message):
        call(fitted, *data)
