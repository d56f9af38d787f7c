"""Free run and k-step prediction against plain Python loops; compaction; energy."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from occamid import DataError, Model, Record, SettingsError
from occamid.data.scaling import fit_scaling
from occamid.data.twins import mass_spring_damper
from occamid.data.windows import all_terms, windows
from occamid.networks import MLP, Network, Recurrent, is_matrix
from occamid.networks.simulate import free_run
from tests.support import oracles
from tests.support.small import small_record
from tests.support.trained import batch_of

KINDS: dict[str, Network] = {
    "mlp": MLP(6, (4,), 1, "tanh", True),
    "deep": MLP(6, (4, 3), 1, "relu", True),
    "lstm": Recurrent("lstm", 6, (3, 2), 1),
    "rnn": Recurrent("rnn", 6, (4,), 1, "tanh", False),
}


def made(network: Network, record: Record, density: float = 0.8, seed: int = 0) -> Model:
    """A model with random weights, pruned at random, of three lags of the inputs and two."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, spec in network.specs().items():
        value = rng.normal(size=spec.shape) / np.sqrt(spec.fan_in)
        kept = rng.random(spec.shape) < density if is_matrix(name) else 1.0
        weights[name] = value * kept
    scaling, terms = fit_scaling([record], "standardize"), all_terms(record, 3, 2)
    return Model(network, terms, scaling, weights, 3, record.sampling_time)


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Model:
    return made(KINDS[request.param], small_record())


def python_free_run(model: Model, record: Record, n_init: int, start: int) -> np.ndarray:
    """The free run as a NumPy loop in scaled units."""
    scaled = model.scaling.apply(record)
    step, state = oracles.step_of(model.network, dict(model.weights))
    terms = (model.terms.inputs, model.terms.outputs)
    y = oracles.free_run(step, state, scaled.u, scaled.y[:n_init], terms, start)
    return model.scaling.undo_y(y)


@pytest.mark.parametrize("n_init", [3, 11])
def test_free_run_equals_a_python_loop(model: Model, n_init: int, x64: None) -> None:
    record = small_record(40, seed=3)
    expected = python_free_run(model, record, n_init, model.start)
    found = model.free_run(record.u, record.y[:n_init])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_run_that_ends_early_is_the_beginning_of_a_whole_one(model: Model, x64: None) -> None:
    record = model.scaling.apply(small_record(40, seed=3))
    data = jax.tree.map(lambda x: x[0], windows([record], model.terms, model.start))
    params = jax.device_put(dict(model.weights))
    whole = free_run(model.network, model.terms, params, data, 5)
    part = free_run(model.network, model.terms, params, data, 5, 13)
    np.testing.assert_allclose(part[:13], whole[:13], rtol=1e-12)
    assert np.all(np.asarray(part[13:]) == 0)
    assert np.all(np.asarray(whole[13:]) != 0)


def test_one_step_uses_measured_outputs_only(model: Model, x64: None) -> None:
    """ŷ(t|t-1) from a free run started at each t on measured data before it."""
    record = small_record(40, seed=3)
    found = model.predict(record).mean
    for t in (3, 10, 39):
        expected = python_free_run(model, record[: t + 1], t, model.start)[t]
        np.testing.assert_allclose(found[t], expected, rtol=1e-9)


@pytest.mark.parametrize("horizon", [2, 5])
def test_k_step_equals_short_free_runs(model: Model, horizon: int, x64: None) -> None:
    record = small_record(40, seed=3)
    found = model.predict(record, horizon=horizon).mean
    np.testing.assert_array_equal(found[: model.start], record.y[: model.start])
    for t in range(model.start, len(record)):
        known = max(model.start, t - horizon + 1)
        expected = python_free_run(model, record[: t + 1], known, model.start)[t]
        np.testing.assert_allclose(found[t], expected, rtol=1e-9)


def test_prediction_leaves_no_state(model: Model) -> None:
    record = small_record(40, seed=4)
    first = model.predict(record, horizon=3).mean
    model.free_run(record.u, record.y[:5])
    np.testing.assert_array_equal(model.predict(record, horizon=3).mean, first)


def test_a_run_of_a_record_is_the_free_run_after_its_first_outputs(model: Model) -> None:
    record = small_record(40, seed=4)
    for n_init in (None, 8):
        run, known = model.simulate(record, n_init), n_init or model.start
        assert run.n_init == known
        np.testing.assert_array_equal(run.mean, model.free_run(record.u, record.y[:known]))
        miss = (run.mean - record.y)[known:]
        np.testing.assert_allclose(run.rmse(record), np.sqrt(np.mean(miss**2, axis=0)))
    assert model.predict(record).n_init == model.start


@pytest.mark.parametrize(("kind", "seed"), [("mlp", 5), ("deep", 7), ("lstm", 44), ("rnn", 4)])
def test_compact_computes_the_same(kind: str, seed: int) -> None:
    """A regressor is read by nobody, a neuron constant or not read."""
    record = small_record(40, seed=4)
    model = made(KINDS[kind], small_record(), 0.25, seed)
    small = model.compact()
    assert small.regressors == model.regressors
    assert small.terms.names == small.regressors
    assert 0 < len(small.regressors) < len(model.terms.names)
    assert small.max_lag <= model.max_lag
    assert 0 < sum(small.network.hidden) < sum(model.network.hidden)
    for k in (1, 4):
        np.testing.assert_allclose(
            small.predict(record, horizon=k).mean,
            model.predict(record, horizon=k).mean,
            atol=1e-6,
        )
    for n_init in (3, 8):
        np.testing.assert_allclose(
            small.free_run(record.u, record.y[:n_init]),
            model.free_run(record.u, record.y[:n_init]),
            atol=1e-6,
        )
    assert small.energy(record) == pytest.approx(model.energy(record), rel=1e-9)


def test_compact_removes_what_is_dead_and_folds_constants() -> None:
    """By hand: a constant neuron, an unread neuron, an unused regressor."""
    model = made(MLP(6, (4,), 1, "sigmoid", True), small_record(), 1.0)
    W0, W1 = model.weights["layer0.W"].copy(), model.weights["layer1.W"].copy()
    W0[1] = 0.0  # constant: sigmoid(b) always
    W1[0, 2] = 0.0  # not read
    W0[:, [0, 4]] = 0.0  # u[t-3] and y[t-2]
    W0[[0, 2, 3], 1] = 0.7
    W1[0, [0, 1, 3]] = [0.5, -0.8, 0.9]
    model = model.with_weights({"layer0.W": W0, "layer1.W": W1})
    small = model.compact()
    assert small.network.hidden == (2,)
    assert small.neurons == model.neurons == (2,)
    assert small.max_lag == 2
    assert "u[t-3]" not in small.regressors
    assert small.weights["layer1.b"] != model.weights["layer1.b"]
    record = small_record(40, seed=2)
    np.testing.assert_allclose(small.predict(record).mean, model.predict(record).mean, atol=1e-12)
    short = small.free_run(record.u, record.y[:2])
    assert short.shape == record.y.shape


def test_compact_without_biases_keeps_constants() -> None:
    """Sigmoid neurons without input give ½; the compact net gains a bias for them."""
    model = made(MLP(6, (4,), 1, "sigmoid", False), small_record(), 1.0)
    W0 = model.weights["layer0.W"].copy()
    W0[[0, 2]] = 0.0
    model = model.with_weights({"layer0.W": W0})
    small = model.compact()
    assert small.network.hidden == (2,)
    assert "layer1.b" in small.weights
    record = small_record(40, seed=2)
    np.testing.assert_allclose(small.predict(record).mean, model.predict(record).mean, atol=1e-12)


def test_energy_is_half_the_squared_residuals(model: Model) -> None:
    a, b = small_record(40, seed=1), small_record(30, seed=2)
    residuals = [r.y[model.start :] - model.predict(r).mean[model.start :] for r in (a, b)]
    expected = 0.5 * sum(np.sum(r**2) for r in residuals)
    assert model.energy([a, b]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kind", ["mlp", "deep", "rnn"])
def test_exact_curvature_equals_second_differences_of_the_energy(kind: str) -> None:
    """In the user's units, through with_weights: no autodiff involved."""
    model, record = made(KINDS[kind], small_record(), 1.0), small_record(40, seed=1)
    diagonal = model.curvature(record, method="exact")
    name = next(iter(model.weights))
    for at in ((0, 0), (1, 2)):
        values, d = [], 1e-3
        for shift in (-d, 0.0, d):
            W = model.weights[name].copy()
            W[at] += shift
            values.append(model.with_weights({name: W}).energy(record))
        second = (values[0] - 2 * values[1] + values[2]) / d**2
        assert diagonal[name][at] == pytest.approx(second, rel=1e-3, abs=1e-4 * values[1])


@pytest.mark.parametrize("kind", ["deep", "rnn"])
def test_curvature_methods_have_one_contract(kind: str) -> None:
    model, record = made(KINDS[kind], small_record(), 1.0), small_record(40, seed=1)
    for method in ("recursive", "gauss-newton", "exact"):
        found = model.curvature(record, method=method)
        assert {k: v.shape for k, v in found.items()} == {
            k: v.shape for k, v in model.weights.items()
        }
    with pytest.raises(SettingsError, match="curvature method 'dense' is unknown; choose one of"):
        model.curvature(record, method="dense")  # type: ignore[arg-type]


def test_two_inputs_and_two_outputs() -> None:
    twin, found = mass_spring_damper(0, samples=100), batch_of("two-outputs")
    assert set(found.best.regressors) <= set(found.terms.names)
    for model in (found.best, made(Recurrent("lstm", 12, (2,), 2), twin.estimation)):
        assert model.terms.names[0] == "u1[t-3]"
        assert model.terms.names[-1] == "y2[t-1]"
        run = model.free_run(twin.test.u, twin.test.y[:5])
        expected = python_free_run(model, twin.test[:30], 5, 3)
        np.testing.assert_allclose(run[:30], expected, rtol=1e-3, atol=1e-4)


def test_messages_of_bad_calls(model: Model) -> None:
    record = small_record(30)
    for call, message in (
        (
            lambda: model.free_run(record.u, record.y[:2]),
            "y_init has 2 samples; the model needs the first 3 outputs.",
        ),
        (
            lambda: model.free_run(record.u[:5], record.y[:5]),
            "y_init has 5 samples and u has 5; nothing is left to simulate.",
        ),
        (
            lambda: model.free_run(record.u, np.ones((5, 2))),
            "y_init has 2 columns; the model has 1 outputs.",
        ),
        (
            lambda: model.predict(record, horizon=0),
            "the horizon is 0; it must be 1 or more.",
        ),
        (
            lambda: model.predict(Record(u=record.u, y=record.y, input_names=("volt",))),
            'record "record" has the channels volt, y, but the model was identified on u, y.',
        ),
        (
            lambda: model.with_weights({"W": 1}),
            f"no weight is called W; there are {', '.join(model.weights)}.",
        ),
    ):
        with pytest.raises((DataError, SettingsError)) as error:
            call()
        assert str(error.value) == message
