"""Refinement in free run against dense autodiff, NumPy loops and closed forms."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import DataError, Record, train
from occamid.bands.posterior import refined_posterior
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms, all_terms, windows
from occamid.networks import MLP, Recurrent, is_matrix
from occamid.networks.flat import flatten, unflatten
from occamid.networks.simulate import free_run
from occamid.training.free_run import PRUNED, Refined, collapse, groups, refine
from occamid.training.linear import fit_arx
from occamid.training.model import Model
from tests.support.oracles import Array
from tests.support.small import SMALL, small_record


def unscaled(nu: int, ny: int) -> Scaling:
    zeros, ones = np.zeros, np.ones
    about = zeros(nu), ones(nu), zeros(ny), ones(ny)
    return Scaling(*about, *about)


def model_of(
    network: MLP | Recurrent, regressors: Terms, weights: dict[str, Array], start: int
) -> Model:
    nu, ny = len(regressors.input_names), len(regressors.output_names)
    return Model(network, regressors, unscaled(nu, ny), weights, start)


def random_weights(network: MLP, seed: int, scale: float) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: scale * rng.normal(size=spec.shape) for n, spec in network.specs().items()}


def rmse(model: Model, record: Record, clean: Array | None = None) -> float:
    """Free-run error from the first predicted sample on."""
    run = model.free_run(record.u, record.y[: model.start])
    target = record.y if clean is None else clean.reshape(record.y.shape)
    return float(np.sqrt(np.mean((run - target)[model.start :] ** 2)))


def test_groups_are_columns_of_what_reads_regressors_and_whole_arrays_else() -> None:
    number, count = groups(MLP(3, (2,), 2, "tanh", True, True))
    assert count == 3 + 1 + 1 + 1 + 3
    assert number.tolist() == [
        *(0, 1, 2, 0, 1, 2),  # layer0.W, a group for each regressor
        *(3, 3),  # layer0.b
        *(4, 4, 4, 4),  # layer1.W
        *(5, 5),  # layer1.b
        *(6, 7, 8, 6, 7, 8),  # skip.W, groups of its own
    ]
    number, count = groups(Recurrent("rnn", 2, (3,), 1, "tanh", True))
    parts = unflatten(Recurrent("rnn", 2, (3,), 1, "tanh", True), number)
    assert parts["rnn0.W_i"].tolist() == [[parts["rnn0.W_i"][0, 0], parts["rnn0.W_i"][0, 1]]] * 3
    assert [len(np.unique(parts[n])) for n in ("rnn0.W_i", "rnn0.W_h", "out.W")] == [2, 1, 1]
    assert count == len(np.unique(number))


# --- the linear case: MacKay's fixed point and the closed-form evidence -------------------------


def fir(ny: int, useless: bool = False) -> tuple[Model, list[Record]]:
    """A linear model without feedback: all hidden units pruned, the direct path left.

    ``useless``: the oldest lag has no effect on the data that count, not even by chance.
    """
    rng = np.random.default_rng(3)
    taps = np.array([[0.3, -0.5, 0.9], [-0.7, 0.2, 0.4]])[:ny]
    records = []
    for n in (70, 50):
        u = rng.normal(size=n)
        window = np.stack([np.roll(u, lag) for lag in (2, 1, 0)], axis=1)
        y = 0.6 + window @ taps.T + np.array([0.1, 0.3])[:ny] * rng.normal(size=(n, ny))
        records.append(Record(u=u, y=y, sampling_time=1.0))
    regressors = all_terms(records[0], 2, 0)
    network = MLP(3, (2,), ny, "tanh", True, True)
    weights = {n: np.zeros(spec.shape) for n, spec in network.specs().items()}
    weights["skip.W"] += 0.1
    model = model_of(network, regressors, weights, 2)
    if useless:
        phi, y = design(records)
        oldest = np.linalg.lstsq(phi, y, rcond=None)[0][1]
        records = [
            replace(r, y=r.y - np.outer(np.roll(r.u[:, 0], 2), oldest).reshape(r.y.shape))
            for r in records
        ]
    return model, records


def design(records: list[Record]) -> tuple[Array, Array]:
    """Rows [1, u(t-2), u(t-1), u(t)] and y(t) of all samples."""
    phi, y = [], []
    for record in records:
        for t in range(2, len(record)):
            phi.append([1.0, *record.u[t - 2 : t + 1, 0]])
            y.append(record.y[t])
    return np.array(phi), np.array(y)


def mackay(phi: Array, y: Array) -> tuple[Array, Array, Array, float]:
    """Weights (4, ny), precisions of the four groups, noise and γ: the plain fixed point."""
    n, ny = y.shape
    alpha, variance = np.ones(4), np.var(y, axis=0)
    for _ in range(3000):
        A = [phi.T @ phi / variance[k] + np.diag(alpha) for k in range(ny)]
        w = np.stack(
            [np.linalg.solve(A[k], phi.T @ y[:, k] / variance[k]) for k in range(ny)], axis=1
        )
        gamma = np.stack([1 - alpha * np.diag(np.linalg.inv(A[k])) for k in range(ny)], axis=1)
        alpha = gamma.sum(axis=1) / np.sum(w**2, axis=1)
        variance = np.sum((y - phi @ w) ** 2, axis=0) / (n - gamma.sum() / ny)
    return w, alpha, variance, float(gamma.sum())


def log_marginal(phi: Array, y: Array, alpha: Array, variance: Array) -> float:
    """``Σ_k log N(y_k | 0, σ_k² I + Φ diag(1/α) Φᵀ)``."""
    total = 0.0
    for k in range(y.shape[1]):
        cov = variance[k] * np.eye(len(y)) + (phi / alpha) @ phi.T
        log_det = np.linalg.slogdet(2 * np.pi * cov)[1]
        total -= 0.5 * (log_det + y[:, k] @ np.linalg.solve(cov, y[:, k]))
    return total


@pytest.mark.parametrize("ny", [1, 2])
def test_a_linear_model_reaches_mackays_fixed_point(ny: int) -> None:
    model, records = fir(ny)
    (found,) = refine([model], records, iterations=600)
    phi, y = design(records)
    w, alpha, variance, gamma = mackay(phi, y)
    np.testing.assert_allclose(found.model.weights["layer1.b"], w[0], rtol=1e-6)
    np.testing.assert_allclose(found.model.weights["skip.W"], w[1:].T, rtol=1e-6)
    np.testing.assert_allclose(found.noise_variance, variance, rtol=1e-6)
    np.testing.assert_allclose(found.effective, gamma, rtol=1e-6)
    order = [0] * ny + [1, 2, 3] * ny  # biases, then the rows of the direct path
    np.testing.assert_allclose(found.widths, 1 / alpha[order], rtol=1e-5)
    expected = log_marginal(phi, y, alpha, variance)
    assert found.log_evidence == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("iterations", [7, 60])
def test_the_evidence_of_a_linear_model_is_exact_where_it_stops(iterations: int) -> None:
    """At its own α and σ² the evidence is the closed form, converged or not (up to the mean)."""
    model, records = fir(1)
    (found,) = refine([model], records, iterations=iterations)
    phi, y = design(records)
    expected = log_marginal(phi, y, 1 / found.widths, found.noise_variance)
    assert found.log_evidence == pytest.approx(expected, abs=1e-3)


def test_a_useless_regressor_is_pruned() -> None:
    model, records = fir(2, useless=True)
    (found,) = refine([model], records)
    assert found.model.regressors == ("u[t-1]", "u[t]")
    assert found.model.max_lag == 1
    phi, y = design(records)
    phi = phi[:, [0, 2, 3]]
    plain = np.linalg.lstsq(phi, y, rcond=None)[0]
    np.testing.assert_allclose(found.model.weights["skip.W"], plain[1:].T, atol=5e-3)
    expected = log_marginal(phi, y, 1 / found.widths[[0, 2, 3]], found.noise_variance)
    assert found.log_evidence == pytest.approx(expected, abs=1e-3)


def test_a_pruned_bias_is_certain() -> None:
    model, records = fir(1)
    phi, y = design(records)
    level = np.linalg.lstsq(phi, y, rcond=None)[0][0]
    (found,) = refine([model], [replace(r, y=r.y - level) for r in records])
    assert found.model.weights["layer1.b"] == 0
    assert np.all(refined_posterior(found).standard_errors["layer1.b"] < 1e-3)


@pytest.mark.parametrize(("bias", "skip"), [(True, True), (True, False), (False, True)])
def test_a_linear_network_becomes_one_matrix(bias: bool, skip: bool) -> None:
    record = small_record(40)
    regressors = all_terms(record, 2, 2)
    network = MLP(len(regressors), (3, 2), 1, "identity", bias, skip)
    model = model_of(network, regressors, random_weights(network, 0, 0.4), 2)
    flat = collapse(model)
    assert set(np.flatnonzero(flat.weights["layer0.W"])) == set()
    np.testing.assert_allclose(
        flat.free_run(record.u, record.y[:2]), model.free_run(record.u, record.y[:2]), rtol=1e-10
    )
    curved = replace(model, network=replace(network, activation="tanh"))
    assert collapse(curved) is curved


# --- the nonlinear case -------------------------------------------------------------------------


def check_covariance(found: Refined, record: Record) -> None:
    """Against ``(Σ JᵀJ/σ² + Ψ⁻¹)⁻¹``, J by forward autodiff of the compact model's free run."""
    model = found.model
    with jax.enable_x64(True):
        data = windows([record], model.terms, model.start)
        experiment = jax.tree.map(lambda x: x[0], data)

        def run(v: jax.Array) -> jax.Array:
            weights = unflatten(model.network, v)
            return free_run(model.network, model.terms, weights, experiment, 0)

        w = jnp.asarray(flatten(model.network, model.weights))
        J = np.asarray(jax.jit(jax.jacfwd(run))(w)).reshape(-1, w.size)
    matrices = np.concatenate([np.full(v.size, is_matrix(n)) for n, v in model.weights.items()])
    assert set(np.flatnonzero(matrices & (flatten(model.network, model.weights) != 0))) <= set(
        found.positions
    )
    sure = found.widths > 1 / PRUNED  # a bias may be pruned, too
    J = J[:, found.positions[sure]]
    precision = J.T @ J / found.noise_variance + np.diag(1 / found.widths[sure])
    covariance = np.linalg.inv(found.precision)[np.ix_(sure, sure)]
    size = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    np.testing.assert_allclose(np.linalg.inv(precision) / size, covariance / size, atol=1e-6)


def output_error(samples: int, seed: int) -> tuple[Record, Array]:
    """A mildly nonlinear process whose noise is only in the measurement; and it without noise."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=(samples, 2)), np.zeros(samples)
    for t in range(2, samples):
        y[t] = 1.1 * y[t - 1] - 0.4 * y[t - 2] + 0.7 * np.tanh(u[t - 1, 0]) + 0.6
    measured = y + 0.3 * rng.normal(size=samples)
    return Record(u=u, y=measured, sampling_time=1.0), y


def one_step_start(record: Record, hidden: int, seed: int) -> Model:
    """Least squares one step ahead in the direct path, and small random hidden units."""
    regressors = all_terms(record, 2, 2)
    z = np.asarray(windows([record], regressors, 4).z[0], dtype=np.float64)
    network = MLP(len(regressors), (hidden,), 1, "tanh", True, True)
    weights = random_weights(network, seed, 0.2)
    columns = np.concatenate([np.ones((len(z), 1)), z], axis=1)
    found = np.linalg.lstsq(columns, record.y[4:, 0], rcond=None)[0]
    weights["layer1.b"], weights["skip.W"] = found[:1], found[None, 1:]
    weights["layer1.W"] *= 0.1
    return model_of(network, regressors, weights, 4)


@pytest.fixture(scope="module")
def refined() -> tuple[list[Model], list[Refined], Record]:
    """Three members of one family: full, with pruned weights, with pruned units and regressors."""
    record, _ = output_error(200, 9)
    models = [one_step_start(record, 3, seed) for seed in range(3)]
    second, third = ({n: v.copy() for n, v in m.weights.items()} for m in models[1:])
    second["layer0.W"][0, [2, 4]] = second["layer0.W"][2, 7] = second["skip.W"][0, 0] = 0
    third["layer0.W"][1] = third["layer1.W"][0, 1] = 0  # the unit in the middle
    third["layer0.W"][:, [0, 6]] = third["skip.W"][:, [0, 6]] = 0  # u1[t-2], y[t-2]
    models = [models[0], models[1].with_weights(second), models[2].with_weights(third)]
    return models, refine(models, record), record


def test_refinement_lowers_the_free_run_error(
    refined: tuple[list[Model], list[Refined], Record],
) -> None:
    models, found, record = refined
    fresh, clean = output_error(400, 6)
    for before, after in zip(models, found, strict=True):
        assert rmse(after.model, record) < rmse(before, record)
    for before, after in zip(models[:2], found[:2], strict=True):  # the third lacks y[t-2]
        assert rmse(after.model, fresh, clean) < 0.5 * rmse(before, fresh, clean)
        assert after.noise_variance == pytest.approx([0.09], rel=0.3)


def test_refinement_never_raises_the_error_even_from_random_weights() -> None:
    record, _ = output_error(200, 9)
    first = one_step_start(record, 3, 0)
    starts = [first.with_weights(random_weights(first.network, k, 0.25)) for k in range(10, 13)]  # type: ignore[arg-type]
    for before, after in zip(starts, refine(starts, record), strict=True):
        assert rmse(after.model, record) <= rmse(before, record)


@pytest.mark.parametrize("kind", ["lstm", "rnn"])
def test_recurrent_networks_are_refined_too(kind: str) -> None:
    """From random weights to near the noise; the precision is that of the free run's residuals."""
    record, _ = output_error(200, 9)
    regressors = all_terms(record, 1, 1)
    network = Recurrent(kind, len(regressors), (3,), 1)
    rng = np.random.default_rng(0)
    weights = {n: 0.4 * rng.normal(size=spec.shape) for n, spec in network.specs().items()}
    before = model_of(network, regressors, weights, 4)
    (found,) = refine([before], record, iterations=60)
    assert rmse(found.model, record) < 0.5 * rmse(before, record)
    assert rmse(found.model, record) ** 2 < 2 * 0.09
    at = found.model

    def run(w: Array) -> Array:
        return at.with_weights(unflatten(at.network, w)).free_run(record.u, record.y[:4])[4:, 0]

    w = flatten(at.network, at.weights)
    J = np.stack([(run(w + 1e-6 * e) - run(w - 1e-6 * e)) / 2e-6 for e in np.eye(len(w))], axis=1)
    J = J[:, found.positions]
    expected = J.T @ J / found.noise_variance[0] + np.diag(1 / found.widths)
    np.testing.assert_allclose(found.precision, expected, rtol=1e-4, atol=1e-4 * expected.max())


def test_networks_too_large_for_a_dense_precision_are_refused() -> None:
    record, _ = output_error(50, 9)
    regressors = all_terms(record, 1, 1)
    network = Recurrent("lstm", len(regressors), (40,), 1)
    weights = {n: np.ones(spec.shape) for n, spec in network.specs().items()}
    with pytest.raises(DataError, match="weights are too many to be refined"):
        refine([model_of(network, regressors, weights, 4)], record)


def test_pruned_weights_stay_pruned(
    refined: tuple[list[Model], list[Refined], Record],
) -> None:
    models, found, _ = refined
    names = models[1].terms.names
    zeros = {
        (n, unit, names[j])
        for n in ("layer0.W", "skip.W")
        for unit, j in np.argwhere(models[1].weights[n] == 0).tolist()
    }
    assert len(zeros) == 4
    after = found[1].model
    assert after.network.hidden == (3,)  # so that units keep their numbers
    left = {
        (n, unit, after.terms.names[j])
        for n in ("layer0.W", "skip.W")
        for unit, j in np.argwhere(after.weights[n] != 0).tolist()
    }
    assert not zeros & left
    assert len(left) > 8
    assert not {"u1[t-2]", "y[t-2]"} & set(found[2].model.regressors)
    assert found[2].model.network.hidden == (2,)


def test_members_do_not_disturb_each_other(
    refined: tuple[list[Model], list[Refined], Record],
) -> None:
    """Together, in a network with room for all of them, each is refined as if alone."""
    models, found, record = refined
    together, (alone,) = found[2], refine([models[2]], record)
    assert alone.model.regressors == together.model.regressors
    for name, value in alone.model.weights.items():
        np.testing.assert_allclose(together.model.weights[name], value, rtol=1e-4, atol=1e-5)
    assert together.log_evidence == pytest.approx(alone.log_evidence, abs=1e-3)
    np.testing.assert_array_equal(together.positions, alone.positions)
    found_together, found_alone = (refined_posterior(r).covariance for r in (together, alone))
    np.testing.assert_allclose(found_together, found_alone, rtol=1e-2, atol=1e-7)


def test_the_covariance_is_the_inverse_of_the_gauss_newton_precision(
    refined: tuple[list[Model], list[Refined], Record],
) -> None:
    _, found, record = refined
    for one in found:
        check_covariance(one, record)


def test_the_covariance_of_a_linear_model_is_the_inverse_hessian() -> None:
    model, records = fir(2)
    (found,) = refine([model], records)
    phi, y = design(records)

    def energy(v: jax.Array) -> jax.Array:
        miss = (v[:2] + phi[:, 1:] @ v[2:].reshape(2, 3).T - y) / np.sqrt(found.noise_variance)
        return 0.5 * jnp.sum(miss**2) + 0.5 * jnp.sum(v**2 / found.widths)

    posterior = refined_posterior(found)
    with jax.enable_x64(True):
        hessian = jax.hessian(energy)(jnp.asarray(posterior.mean))
        slope = jax.grad(energy)(jnp.asarray(posterior.mean))
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(hessian), rtol=1e-8, atol=1e-12)
    assert np.max(np.abs(np.linalg.solve(hessian, slope))) < 1e-5  # at the minimum


def test_a_start_that_explodes_is_brought_back() -> None:
    """``y[t] = 2 y[t-1]`` reaches 1e60 in 200 steps, ``30 y[t-1]`` overflows."""
    record, _ = output_error(200, 9)
    start, wild = one_step_start(record, 3, 0), []
    for gain in (2.0, 30.0):
        direct = start.weights["skip.W"].copy()
        direct[0, -1] = gain
        wild.append(start.with_weights({"skip.W": direct}))
    for found in refine([*wild, start], record):
        assert np.isfinite(found.log_evidence)
        assert np.all(np.isfinite(found.noise_variance))
        assert rmse(found.model, record) < 0.5  # the output has a standard deviation of 0.86


def test_units_that_vanish_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that reads only noise is pruned between two others; values and places still fit."""
    record, _ = output_error(200, 9)
    first = one_step_start(record, 3, 0)
    weights = {n: v.copy() for n, v in first.weights.items()}
    weights["layer0.W"][1, 0:3] = weights["layer0.W"][1, 6:] = 0  # only u2, which does nothing
    weights["layer0.W"][::2, 3:6] = weights["skip.W"][:, 3:6] = 0  # and nobody else reads it
    kept: list[Model] = []
    compact = Model.compact

    def spy(self: Model) -> Model:
        kept.append(self)
        return compact(self)

    monkeypatch.setattr(Model, "compact", spy)
    (found,) = refine([first.with_weights(weights)], record, iterations=300)
    whole = kept[-1]
    assert whole.network.hidden == (3,)
    assert not np.any(whole.weights["layer0.W"][1])
    assert np.all(np.any(whole.weights["layer0.W"][::2], axis=1))
    assert found.model.network.hidden == (2,)
    y_init = record.y[:4]
    np.testing.assert_allclose(
        found.model.free_run(record.u, y_init), whole.free_run(record.u, y_init), atol=1e-12
    )
    check_covariance(found, record)


def test_the_best_of_an_identification_can_be_refined() -> None:
    """The whole way, with a direct path: train, take the best, refine, simulate."""
    record = small_record()
    result = train(record, SMALL.replace(skip=True))
    assert result.params["skip.W"].shape == (1, 4, 3, 1, 6)
    models = [result.model(index) for index in result.ranking(2)]
    for before, after in zip(models, refine(models, record), strict=True):
        assert rmse(after.model, record) <= rmse(before, record)
        assert set(after.model.regressors) <= set(before.regressors)
        assert np.linalg.eigvalsh(after.precision).min() > 0


def test_more_orders_than_data_without_noise_can_tell_leave_nothing_infinite() -> None:
    """The precision of such a fit is singular but for its prior, 17 digits smaller."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal((300, 1))
    y = np.zeros((300, 1))
    for t in range(2, 300):
        y[t] = 1.2 * y[t - 1] - 0.5 * y[t - 2] + u[t - 1]
    record = Record(u=u, y=y)
    fits = [fit.model for fit in fit_arx([record]) if fit.order <= 10]
    start = max(model.start for model in fits)
    for found in refine([replace(m, start=start) for m in fits], record, shrink=False):
        assert np.isfinite(found.precision).all()
        assert np.isfinite([found.effective, found.log_evidence, *found.noise_variance]).all()
        assert 0.0 <= found.effective <= len(found.positions)
