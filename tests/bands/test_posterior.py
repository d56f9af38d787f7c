"""Posteriors against Bayesian linear regression, dense autodiff and scikit-learn."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct
from sklearn.linear_model import ARDRegression, Ridge

from occamid import Index, Model, Posterior, Record, SettingsError, fit_posterior, train
from occamid.bands.posterior import BIAS_WIDTH, METHODS, Method, _cholesky
from occamid.data.twins import mass_spring_damper
from occamid.errors import DataError
from tests.support import oracles
from tests.support.small import SMALL, small_record
from tests.support.trained import batch_of

KINDS = ("mlp", "no-bias", "deep", "lstm", "two-outputs")
LIVE = [0, 2, 3]  # the neurons of "mlp" that are not made constant


class Case(NamedTuple):
    """A model with holes, and two records of different length that it is fitted on."""

    kind: str
    model: Model
    records: list[Record]


@cache
def make(kind: str) -> Case:
    """An identified model with weights, a neuron and a regressor removed by hand."""
    records = [small_record(120), small_record(70, seed=1)]
    if kind == "two-outputs":
        twin = mass_spring_damper(0, samples=100)
        records = [twin.estimation, twin.test[:60]]
    if kind in ("no-bias", "deep"):
        changes: dict[str, Any] = {"hidden": (4, 3)}
        if kind == "no-bias":
            changes = {"activation": "sigmoid", "bias": False}
        batch = train(records, SMALL.replace(restarts=2, **changes))
    else:
        batch = batch_of(kind)  # of the first of these records
    model = batch.model(Index(0, 1, 1))
    if kind == "lstm":
        name = "lstm0.W_if"
        W = model.weights[name].copy()
        W[1, 2] = 0.0
        return Case(kind, model.with_weights({name: W}), records)
    W0, W1 = model.weights["layer0.W"].copy(), model.weights["layer1.W"].copy()
    W0[1] = 0.0  # constant, and not at zero where there is a bias or a sigmoid
    W0[:, 0] = 0.0
    W0[2, 3] = 0.0
    if kind == "two-outputs":
        W1[1, 2] = 0.0
    return Case(kind, model.with_weights({"layer0.W": W0, "layer1.W": W1}), records)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    return make(request.param)


@pytest.fixture(scope="module")
def mlp() -> Case:
    return make("mlp")


def rows_of(model: Model, record: Record) -> tuple[np.ndarray, np.ndarray]:
    """Terms and targets of one record in scaled units, by a loop over the terms."""
    s = model.scaling
    u, y = (record.u - s.u_offset) / s.u_scale, (record.y - s.y_offset) / s.y_scale
    z = [
        [u[t - lag, c] for c, lag in model.terms.inputs]
        + [y[t - lag, c] for c, lag in model.terms.outputs]
        for t in range(model.start, len(record))
    ]
    return np.array(z), y[model.start :]


def last_features(model: Model, z: np.ndarray) -> np.ndarray:
    """Outputs of the last hidden layer in NumPy."""
    p = model.weights
    if "lstm0.W_ii" in p:
        state, found = oracles.at_rest(dict(p), "lstm"), []
        for row in z:
            state, _ = oracles.lstm_step(dict(p), state, row)
            found.append(state[-1]["h"])
        return np.stack(found)
    act = oracles.sigmoid if model.network.activation == "sigmoid" else np.tanh  # type: ignore[attr-defined]
    for layer in range(len(model.network.hidden)):
        z = act(z @ p[f"layer{layer}.W"].T + p.get(f"layer{layer}.b", 0.0))
    return z


class Regression(NamedTuple):
    """Bayesian linear regression: design and target of each output, prior variances."""

    designs: list[np.ndarray]
    targets: list[np.ndarray]
    widths: np.ndarray
    noise: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        total = sum(D.T @ D / v for D, v in zip(self.designs, self.noise, strict=True))
        return np.linalg.inv(total + np.diag(1 / self.widths))

    @property
    def mean(self) -> np.ndarray:
        triples = zip(self.designs, self.targets, self.noise, strict=True)
        return self.covariance @ sum(D.T @ y / v for D, y, v in triples)

    @property
    def log_evidence(self) -> float:
        D, y = np.concatenate(self.designs), np.concatenate(self.targets)
        noise = np.repeat(self.noise, len(self.targets[0]))
        return multivariate_normal(cov=np.diag(noise) + (D * self.widths) @ D.T).logpdf(y)


def regression(case: Case, posterior: Posterior) -> Regression:
    """The last layer of a case as a linear regression, from the compact model's lower layers."""
    small = case.model.compact()
    pairs = [rows_of(small, r) for r in case.records]
    features = np.concatenate([last_features(small, z) for z, _ in pairs])
    targets = np.concatenate([y for _, y in pairs])
    W_name = "out.W" if case.kind == "lstm" else f"layer{len(small.network.hidden)}.W"
    W, b = small.weights[W_name], small.weights[W_name.replace("W", "b")]
    widths = case.model.prior_widths
    assert widths is not None
    neurons = {"mlp": LIVE, "no-bias": LIVE, "two-outputs": LIVE}.get(case.kind, slice(None))
    ny = len(W)
    designs = []
    for k in range(ny):
        rows = [features[:, j] * float(o == k) for o in range(ny) for j in np.flatnonzero(W[o])]
        if case.kind != "no-bias":
            rows += [np.full(len(features), float(o == k)) for o in range(ny)]
        designs.append(np.stack(rows, axis=1))
    fixed = b if case.kind == "no-bias" else np.zeros(ny)  # a constant that folded into a bias
    return Regression(
        designs,
        [targets[:, k] - fixed[k] for k in range(ny)],
        np.concatenate(
            [
                widths[W_name][:, neurons][W != 0],
                np.full(0 if case.kind == "no-bias" else ny, BIAS_WIDTH),
            ]
        ),
        posterior.noise_variance,
    )


def test_last_layer_is_bayesian_linear_regression(case: Case) -> None:
    """Mean, covariance and evidence in closed form; the evidence as the targets' density."""
    found = fit_posterior(case.model, case.records, "last-layer", center="laplace")
    expected = regression(case, found)
    assert len(found.mean) == len(expected.widths)
    np.testing.assert_allclose(found.widths, expected.widths, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-9)
    assert found.log_evidence == pytest.approx(expected.log_evidence, rel=1e-6)
    assert np.abs(found.mean - fit_posterior(case.model, case.records, "last-layer").mean).max() > (
        1e-3
    )  # the trained weights are not the centre


def test_no_bias_case_has_a_fixed_part() -> None:
    """What the closed form subtracts from the targets there is not nothing."""
    small = make("no-bias").model.compact()
    assert abs(small.weights["layer1.b"][0]) > 0.01


def test_last_layer_equals_scikit_learn(mlp: Case) -> None:
    """Ridge for the mean, ARD for the covariance, a Gaussian process for the evidence."""
    found = fit_posterior(mlp.model, mlp.records, "last-layer", center="laplace")
    case = regression(mlp, found)
    X, y, variance = case.designs[0], case.targets[0], float(case.noise[0])
    wide = X * np.sqrt(case.widths)
    ridge = Ridge(alpha=variance, fit_intercept=False, solver="cholesky").fit(wide, y)
    np.testing.assert_allclose(found.mean, ridge.coef_ * np.sqrt(case.widths), rtol=1e-6)
    keep = np.ones(len(case.widths), bool)
    for update in ("_update_sigma", "_update_sigma_woodbury"):
        covariance = getattr(ARDRegression(), update)(X, 1 / variance, 1 / case.widths, keep)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-6, atol=1e-9)
    kernel = DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
    process = GaussianProcessRegressor(kernel, alpha=variance, optimizer=None).fit(wide, y)
    evidence = process.log_marginal_likelihood_value_
    assert found.log_evidence == pytest.approx(evidence, rel=1e-6)
    spread = process.predict(wide, return_std=True)[1]
    mine = np.sqrt(np.einsum("ti,ij,tj->t", X, found.covariance, X))
    np.testing.assert_allclose(mine, spread, rtol=1e-5)


class Dense(NamedTuple):
    """All surviving parameters by automatic differentiation of the compact network."""

    positions: np.ndarray
    jacobian: np.ndarray  # (ny, T, n)
    hessian_diagonals: np.ndarray  # (ny, n), of each output's energy
    squares: np.ndarray  # (ny,)
    rows: int
    widths: np.ndarray


@cache
def dense(kind: str) -> Dense:
    """Only in double precision."""
    case = make(kind)
    small = case.model.compact()
    trained = case.model.weights
    shapes = {n: v.shape for n, v in small.weights.items()}
    flat = np.concatenate([v.ravel() for v in small.weights.values()])

    def outputs(vector: jax.Array, z: np.ndarray) -> jax.Array:
        params, at = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            params[name] = vector[at : at + size].reshape(shape)
            at += size
        return small.network.apply(params, jnp.asarray(z)[None])[0]

    pairs = [rows_of(small, r) for r in case.records]
    jacobians = [jax.jit(jax.jacrev(outputs))(jnp.asarray(flat), z) for z, _ in pairs]
    J = np.concatenate(jacobians).transpose(1, 0, 2)
    residual = np.concatenate([np.asarray(outputs(jnp.asarray(flat), z)) - y for z, y in pairs])

    def energy(vector: jax.Array, k: int) -> jax.Array:
        return sum(
            (0.5 * jnp.sum((outputs(vector, z)[:, k] - y[:, k]) ** 2) for z, y in pairs),
            start=jnp.zeros(()),
        )

    # the Hessian's cost is in its compilation: only where a test asks for it
    hessian = [
        np.diag(jax.jit(jax.hessian(energy), static_argnums=1)(jnp.asarray(flat), k))
        for k in range(len(J) if case.kind == "two-outputs" else 0)
    ]
    assert small.prior_widths is not None
    keep, widths = [], []
    for name, value in small.weights.items():
        matrix = ".W" in name
        keep.append((value != 0).ravel() if matrix else np.full(value.size, name in trained))
        prior = small.prior_widths[name] if matrix else np.full(value.shape, BIAS_WIDTH)
        widths.append(prior.ravel())
    positions = np.flatnonzero(np.concatenate(keep))
    return Dense(
        positions,
        J[:, :, positions],
        np.array(hessian).reshape(-1, flat.size)[:, positions],
        np.sum(residual**2, axis=0),
        len(residual),
        np.concatenate(widths)[positions],
    )


def test_full_covariance_is_dense_gauss_newton(case: Case, x64: None) -> None:
    found = fit_posterior(case.model, case.records, "full")
    truth = dense(case.kind)
    np.testing.assert_array_equal(found.positions, truth.positions)
    np.testing.assert_allclose(found.widths, truth.widths, rtol=1e-12)
    gram = sum(J.T @ J / v for J, v in zip(truth.jacobian, found.noise_variance, strict=True))
    expected = np.linalg.inv(gram + np.diag(1 / truth.widths))
    np.testing.assert_allclose(
        found.covariance, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max()
    )
    mean = np.concatenate([v.ravel() for v in case.model.compact().weights.values()])
    np.testing.assert_array_equal(found.mean, mean[truth.positions])
    weights = found.mean
    fit = np.sum(truth.squares / found.noise_variance)
    fit += truth.rows * np.sum(np.log(2 * np.pi * found.noise_variance))
    prior = np.sum(norm.logpdf(weights, scale=np.sqrt(truth.widths)))
    laplace = 0.5 * np.linalg.slogdet(2 * np.pi * expected)[1]
    assert found.log_evidence == pytest.approx(-0.5 * fit + prior + laplace, rel=1e-8)


def test_noise_is_mackays_fixed_point(case: Case, x64: None) -> None:
    """Iterated to the end; for one output also the root of its equation."""
    found = fit_posterior(case.model, case.records, "full")
    truth = dense(case.kind)
    ny = len(truth.squares)

    def gamma(variance: np.ndarray) -> float:
        gram = sum(J.T @ J / v for J, v in zip(truth.jacobian, variance, strict=True))
        covariance = np.linalg.inv(gram + np.diag(1 / truth.widths))
        return len(truth.widths) - float(np.sum(np.diag(covariance) / truth.widths))

    variance = truth.squares / truth.rows
    for _ in range(60):
        variance = truth.squares / (truth.rows - gamma(variance) / ny)
    np.testing.assert_allclose(found.noise_variance, variance, rtol=1e-5)
    assert found.effective == pytest.approx(gamma(variance), rel=1e-4)
    assert 0 < found.effective < len(truth.widths)
    assert np.all(variance > 1.01 * truth.squares / truth.rows)
    if ny == 1:
        square, rows = float(truth.squares[0]), truth.rows
        root = brentq(lambda v: v - square / (rows - gamma(np.array([v]))), square / rows, square)
        assert found.noise_variance[0] == pytest.approx(root, rel=1e-5)


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_diagonal_is_the_recursive_curvature(kind: str) -> None:
    """Against Model.curvature, which is in the user's units."""
    case = make(kind)
    found = fit_posterior(case.model, case.records, "diagonal")
    small = case.model.compact()
    assert small.prior_widths is not None
    H = small.curvature(case.records, method="recursive")
    scale = float(case.model.scaling.y_scale[0]) ** 2
    assert abs(scale - 1) > 0.5
    expected = []
    for name, value in small.weights.items():
        psi = small.prior_widths[name] if ".W" in name else np.full(value.shape, BIAS_WIDTH)
        alive = value != 0 if ".W" in name else np.ones(value.shape, bool)
        curvature = np.maximum(H[name] / scale / found.noise_variance[0], 0.0)
        expected.append((1 / (curvature + 1 / psi))[alive])
    variances = np.concatenate(expected)
    assert found.factor.ndim == 1
    np.testing.assert_allclose(found.factor**2, variances, rtol=1e-9)
    np.testing.assert_array_equal(found.covariance, np.diag(found.factor**2))
    residual = np.concatenate([(r.y - small.predict(r).mean)[small.start :] for r in case.records])
    gamma = np.sum(1 - variances / found.widths)
    assert found.noise_variance[0] == pytest.approx(
        np.sum(residual**2) / scale / (len(residual) - gamma), rel=1e-4
    )


def test_diagonal_of_two_outputs_is_the_exact_hessian(x64: None) -> None:
    """With one hidden layer the recursive diagonal is exact, output by output."""
    case = make("two-outputs")
    found = fit_posterior(case.model, case.records, "diagonal")
    truth = dense(case.kind)
    total = (1 / found.noise_variance) @ truth.hessian_diagonals
    expected = 1 / (np.maximum(total, 0.0) + 1 / truth.widths)
    np.testing.assert_allclose(found.factor**2, expected, rtol=1e-8)
    assert found.noise_variance.shape == (2,)


def test_laplace_center_is_the_newton_step_of_the_diagonal(mlp: Case) -> None:
    """``−Σ ĝ`` by differences of the energy along each parameter."""
    found = fit_posterior(mlp.model, mlp.records, "diagonal", center="laplace")
    plain = fit_posterior(mlp.model, mlp.records, "diagonal")
    small = mlp.model.compact()
    scale = float(mlp.model.scaling.y_scale[0]) ** 2
    flat = np.concatenate([v.ravel() for v in small.weights.values()])

    def energy(vector: np.ndarray) -> float:
        weights, at = {}, 0
        for name, value in small.weights.items():
            weights[name] = vector[at : at + value.size].reshape(value.shape)
            at += value.size
        return small.with_weights(weights).energy(mlp.records) / scale

    for k, place in enumerate(found.positions):
        up, down = flat.copy(), flat.copy()
        up[place] += 1e-5
        down[place] -= 1e-5
        slope = (energy(up) - energy(down)) / 2e-5 / plain.noise_variance[0]
        step = -(plain.factor[k] ** 2) * (slope + flat[place] / plain.widths[k])
        assert found.mean[k] == pytest.approx(flat[place] + step, abs=1e-6)


def test_standard_errors_have_the_weights_shapes(case: Case) -> None:
    for method in METHODS:
        found = fit_posterior(case.model, case.records, method)
        errors = found.standard_errors
        assert {n: v.shape for n, v in errors.items()} == {
            n: v.shape for n, v in found.model.weights.items()
        }
        flat = np.concatenate([v.ravel() for v in errors.values()])
        np.testing.assert_allclose(
            flat[found.positions], np.sqrt(np.diag(found.covariance)), rtol=1e-12
        )
        assert np.all(flat[found.positions] > 0)
        assert not np.any(np.delete(flat, found.positions))
        last = list(found.model.weights)[-1].split(".")[0]
        certain = {n for n, v in errors.items() if not np.any(v)}
        below = {n for n in errors if not n.startswith(last)}
        assert (below <= certain) == (method == "last-layer")


def test_table_names_weights_and_regressors(mlp: Case) -> None:
    """Every surviving first-layer weight stands beside the regressor it reads in the original."""
    found = fit_posterior(mlp.model, mlp.records, "full")
    table = found.table()
    names = ("u[t-3]", "u[t-2]", "u[t-1]", "u[t]", "y[t-2]", "y[t-1]")
    assert mlp.model.terms.names == names
    W0 = mlp.model.weights["layer0.W"]
    expected = [
        (f"layer0.W[{row},{column - 1}]", names[column], W0[unit, column])
        for row, unit in enumerate(LIVE)
        for column in range(1, 6)
        if W0[unit, column] != 0
    ]
    assert len(expected) == 14
    assert [(r.name, r.regressor, r.value) for r in table[: len(expected)]] == expected
    rest = [r.name for r in table[len(expected) :]]
    assert rest == [f"layer0.b[{k}]" for k in range(3)] + [
        *(f"layer1.W[0,{k}]" for k in range(3)),
        "layer1.b[0]",
    ]
    assert {r.regressor for r in table[len(expected) :]} == {""}


def test_table_of_an_lstm_reads_regressors_in_every_gate() -> None:
    case = make("lstm")
    found = fit_posterior(case.model, case.records, "diagonal")
    names = found.model.terms.names
    for row in found.table():
        reads = row.name.startswith("lstm0.W_i")
        column = int(row.name.split(",")[-1].rstrip("]")) if "," in row.name else 0
        assert row.regressor == (names[column] if reads else "")
    assert "lstm0.W_if[1,2]" not in {r.name for r in found.table()}


@pytest.mark.parametrize("method", METHODS)
def test_evidence_of_a_weight_is_the_savage_dickey_ratio(mlp: Case, method: Method) -> None:
    found = fit_posterior(mlp.model, mlp.records, method)
    for k, row in enumerate(found.table()):
        prior = norm.logpdf(0.0, 0.0, np.sqrt(found.widths[k]))
        posterior = norm.logpdf(0.0, row.value, np.sqrt(found.covariance[k, k]))
        assert row.evidence == pytest.approx(prior - posterior, rel=1e-9, abs=1e-9)
        assert row.standard_error == pytest.approx(np.sqrt(found.covariance[k, k]))


@pytest.mark.parametrize("kind", ["mlp", "lstm", "two-outputs"])
def test_evidence_of_a_regressor_is_a_ratio_of_densities(kind: str) -> None:
    """Of all its first-layer weights together, prior against posterior at zero."""
    case = make(kind)
    found = fit_posterior(case.model, case.records, "full")
    evidence = found.regressor_evidence()
    assert tuple(evidence) == case.model.regressors
    table = found.table()
    for name, value in evidence.items():
        inside = [k for k, row in enumerate(table) if row.regressor == name]
        zero = np.zeros(len(inside))
        prior = multivariate_normal.logpdf(zero, cov=np.diag(found.widths[inside]))
        block = found.covariance[np.ix_(inside, inside)]
        posterior = multivariate_normal.logpdf(zero, found.mean[inside], block, allow_singular=True)
        assert value == pytest.approx(prior - posterior, rel=1e-6)


def test_certain_regressors_have_no_evidence(mlp: Case) -> None:
    assert fit_posterior(mlp.model, mlp.records, "last-layer").regressor_evidence() == {}


def test_posterior_of_several_records_adds_up(mlp: Case) -> None:
    """Padding of the shorter record counts for nothing: precisions of the data add."""
    noise = fit_posterior(mlp.model, mlp.records, "full").noise_variance
    parts = []
    for records in (mlp.records, mlp.records[:1], mlp.records[1:]):
        found = fit_posterior(mlp.model, records, "full")
        precision = np.linalg.inv(found.covariance) - np.diag(1 / found.widths)
        parts.append(precision * found.noise_variance / noise)
    np.testing.assert_allclose(parts[0], parts[1] + parts[2], rtol=1e-5, atol=1e-4)


def test_block_structure_of_two_outputs() -> None:
    """Last layers of different outputs share nothing: their covariance is block diagonal."""
    case = make("two-outputs")
    found = fit_posterior(case.model, case.records, "last-layer")
    rows = found.table()
    output = [int(r.name.split("[")[1].rstrip("]").split(",")[0]) for r in rows]
    order = np.argsort(output, kind="stable")
    first = output.count(0)
    C = found.covariance[np.ix_(order, order)]
    np.testing.assert_allclose(C, block_diag(C[:first, :first], C[first:, first:]), atol=1e-14)
    assert 0 < first < len(rows)


def test_a_precision_that_rounding_leaves_indefinite() -> None:
    """A fit without noise: the curvature is many orders above the prior."""
    z = np.linspace(0, 1, 40)[:, None] ** np.arange(12)  # nearly dependent columns
    huge = 1e18 * (z.T @ z)
    huge -= 1e-15 * np.trace(huge) * np.eye(12)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(huge)
    lower = _cholesky(huge)
    np.testing.assert_allclose(lower @ lower.T, huge, rtol=1e-7)
    sound = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.testing.assert_array_equal(_cholesky(sound), np.linalg.cholesky(sound))
    with pytest.raises(DataError, match="cannot be computed"):
        _cholesky(-np.eye(2))


def test_messages_of_bad_calls(mlp: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as error:
        fit_posterior(mlp.model, mlp.records, "dense")  # type: ignore[arg-type]
    assert str(error.value) == (
        "posterior 'dense' is unknown; choose one of full, diagonal, last-layer."
    )
    with pytest.raises(SettingsError) as error:
        fit_posterior(replace(mlp.model, prior_widths=None), mlp.records)
    assert str(error.value) == (
        "the model has no prior widths; take it from an identification result."
    )
    monkeypatch.setattr("occamid.bands.posterior.MOST_WEIGHTS", 20)
    with pytest.raises(SettingsError) as error:
        fit_posterior(mlp.model, mlp.records, "full")
    assert str(error.value) == (
        "21 parameters survive, too many for a full covariance (20 at most); take a later cycle, "
        "a larger lam, or the diagonal posterior."
    )
    assert len(fit_posterior(mlp.model, mlp.records, "diagonal").positions) == 21
    assert len(fit_posterior(mlp.model, mlp.records, "last-layer").positions) == 4
