"""State-space fits: sums over time against dense autodiff, evidence, starts, first states."""

import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError
from occamid.training.state_space import (
    Plan,
    Search,
    data_of,
    fit_state_space,
    levenberg,
    search,
    start,
)
from occamid.training.state_space import trajectory as trajectories
from occamid.training.state_space.fit import Data, error, linear, nonlinear, run
from occamid.training.state_space.fitted import Fitted, as_flat, as_network, basis_changes
from occamid.training.state_space.normal_equations import FreeRuns, chunks
from occamid.training.state_space.observed import observed
from occamid.training.state_space.priors import prior_of, standardised, weights_of
from occamid.training.state_space.resizing import repacked, widened
from occamid.training.state_space.search import by_score
from occamid.training.state_space.sensitivity import Sums, sums
from occamid.training.state_space.start import excerpt
from occamid.training.state_space.trajectory import (
    Run,
    Segments,
    Sizes,
    Weights,
    arrange,
    features,
    free_run,
    split,
)

pytestmark = pytest.mark.usefixtures("x64")
SIZES = Sizes(nx=3, nu=2, ny=2, m=4, records=2)
LENGTHS = (40, 70)
VARIANCE = np.array([0.5, 2.0])
Rows = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def weights(sizes: Sizes = SIZES, seed: int = 0) -> np.ndarray:
    """Random weights with stable, slow poles."""
    rng = np.random.default_rng(seed)
    w = 0.3 * rng.normal(size=sizes.total)
    split(sizes, w).state[:, : sizes.nx] = 0.95 * np.linalg.qr(rng.normal(size=(sizes.nx,) * 2))[0]
    return w


def rows(sizes: Sizes = SIZES, seed: int = 1) -> Rows:
    """Records of different lengths; some rows of the first are held back."""
    rng = np.random.default_rng(seed)
    found = [
        (rng.normal(size=(n, sizes.nu)), rng.normal(size=(n, sizes.ny)), np.ones(n))
        for n in LENGTHS
    ]
    found[0][2][10:15] = 0.0
    return found


def in_order(values: Any, records: Rows, length: int) -> np.ndarray:
    """Rows of segments as rows of the records, one after the other."""
    flat = np.moveaxis(np.asarray(values), 1, 0).reshape(-1, values.shape[-1])
    found, at = [], 0
    for u, _, _ in records:
        found.append(flat[at : at + len(u)])
        at += -(-len(u) // length) * length
    return np.concatenate(found)


def plain(w: Any) -> jax.Array:
    """Outputs of both records by a plain scan from their first states."""
    at = split(SIZES, w)

    def one(x: jax.Array, u: np.ndarray) -> jax.Array:
        def step(x: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
            phi = features(SIZES, at, x, u)
            return at.state @ phi, at.out @ phi

        return jax.lax.scan(step, x, jnp.asarray(u))[1]

    return jnp.concatenate([one(at.first[k], u) for k, (u, _, _) in enumerate(rows())])


@cache
def dense() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, squares, gradient and Gauss-Newton matrix from a dense autodiff Jacobian."""
    with jax.enable_x64(True):
        y, J = jax.device_get(jax.jit(lambda w: (plain(w), jax.jacfwd(plain)(w)))(weights()))
    weight = np.concatenate([k for _, _, k in rows()])[:, None]
    r = (y - np.concatenate([y for _, y, _ in rows()])) * weight
    scaled = J * weight[..., None] / VARIANCE[:, None]
    return (
        y,
        np.sum(r**2, axis=0),
        np.einsum("to,top->p", r, scaled),
        np.einsum("top,toq->pq", J, scaled),
    )


def trajectory(length: int, parallel: bool) -> tuple[Segments, Run]:
    data = jax.tree.map(jnp.asarray, arrange(rows(), length))
    starts = jnp.zeros((len(data.first), SIZES.nx))
    run = jax.jit(lambda w: free_run(SIZES, split(SIZES, w), data, starts, parallel))
    return data, run(weights())


@pytest.mark.parametrize(("length", "parallel"), [(80, False), (16, False), (16, True), (1, True)])
def test_newton_over_segments_equals_a_plain_scan(length: int, parallel: bool) -> None:
    """One segment a record, short ones, single rows; scans in order and associative."""
    _, run = trajectory(length, parallel)
    np.testing.assert_allclose(in_order(run.y, rows(), length), dense()[0], rtol=0, atol=1e-8)
    assert run.change < 1e-9
    assert length < 80 or run.passes <= 2


@pytest.mark.parametrize("parallel", [False, True])
def test_chords_end_what_newton_began(monkeypatch: pytest.MonkeyPatch, parallel: bool) -> None:
    """Newton passes alone, and two of them with chords, find the same trajectory."""
    _, alone = trajectory(16, parallel)
    monkeypatch.setattr(trajectories, "PASSES", int(alone.passes) - 1)
    _, short = trajectory(16, parallel)
    assert short.change > 1e-9  # one pass less does not arrive
    monkeypatch.setattr(trajectories, "NEAR", float(short.change))
    _, both = trajectory(16, parallel)
    assert both.change < 1e-9
    assert both.passes >= alone.passes  # chords took the place of the last one
    np.testing.assert_allclose(both.x, alone.x, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("pieces", "parallel"), [(1, False), (3, False), (3, True)])
def test_sums_over_chunks_equal_dense_automatic_differentiation(
    pieces: int, parallel: bool
) -> None:
    data, run = trajectory(32, parallel)
    found: Sums = jax.jit(
        lambda w: sums(SIZES, split(SIZES, w), data, run.x, run.y, VARIANCE, 1, 0, pieces, parallel)
    )(weights())
    _, squares, gradient, normal = dense()
    np.testing.assert_allclose(found.squares, squares, rtol=1e-10)
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-8 * np.abs(gradient).max())
    np.testing.assert_allclose(found.normal, normal, atol=1e-8 * np.abs(normal).max())


@pytest.mark.parametrize("parallel", [False, True])
def test_fits_side_by_side_and_thinned_rows_add_up_to_the_whole(parallel: bool) -> None:
    problem = FreeRuns(SIZES, rows(), memory_mb=0.2, parallel=parallel, lanes=2)
    problem.thin = 4
    assert problem.way.width == (2 if parallel else 1)
    w = np.stack([weights(seed=1), weights(), weights(seed=2)])
    found = problem.expand(w, np.tile(VARIANCE, (3, 1)), problem.carry(3), exact=True)
    _, squares, gradient, normal = dense()
    np.testing.assert_allclose(found.squares[1], squares, rtol=1e-10)
    np.testing.assert_allclose(found.gradient[1], gradient, atol=1e-8 * np.abs(gradient).max())
    np.testing.assert_allclose(found.normal[1], normal, atol=1e-8 * np.abs(normal).max())
    assert chunks(SIZES, 128, 1, 4, 0.1) > chunks(SIZES, 128, 1, 4, 0.2) > 1


@pytest.mark.parametrize(("parallel", "room"), [(False, 1), (False, 5), (True, 2)])
def test_fits_are_what_they_are_alone_whatever_room_there_is(parallel: bool, room: int) -> None:
    problem = FreeRuns(SIZES, rows(), parallel=parallel, lanes=room)
    w = np.stack([weights(seed=1), weights(), weights(seed=2)])
    lanes = np.array([True, False, True])
    squares, carry = problem.trial(w, problem.carry(3), lanes)
    states, outputs = problem.outputs(w, problem.carry(3))
    for k in range(3):
        one = FreeRuns(SIZES, rows(), parallel=parallel)
        expected, own = one.trial(w[k : k + 1], one.carry(1), np.ones(1, bool))
        x, y = one.outputs(w[k : k + 1], one.carry(1))
        np.testing.assert_allclose(outputs[k], y[0], atol=1e-10)
        np.testing.assert_allclose(states[k], x[0], atol=1e-10)
        np.testing.assert_allclose(squares[k], expected[0] if lanes[k] else np.inf, rtol=1e-10)
        np.testing.assert_allclose(carry[k], own[0] * lanes[k], atol=1e-10)


def test_evidence_equals_the_marginal_likelihood_of_a_linear_problem() -> None:
    """With residuals linear in the weights Laplace is exact: ``y ~ N(Φμ, Φ Ψ Φᵀ + σ²)``."""
    rng = np.random.default_rng(0)
    phi, y, alpha, variance = rng.normal(size=(12, 3)), rng.normal(size=12), 0.7, 0.3
    mean = rng.normal(size=3)

    class Line(levenberg.Problem):
        rows = np.array([12.0])

        def expand(self, w: Any, variance: Any, carry: Any, exact: bool) -> Any:
            r = phi @ w[0] - y
            return levenberg.Expansion(
                np.array([[r @ r]]),
                (r @ phi / variance[0])[None],
                (phi.T @ phi / variance[0])[None],
            )

        def trial(self, w: Any, carry: Any, lanes: Any) -> Any:
            return np.array([[np.sum((phi @ w[0] - y) ** 2)]]), carry

        def bend(self, w: Any, *_: Any) -> Any:
            return np.zeros_like(w)

        def merge(self, kept: Any, new: Any, old: Any) -> Any:
            return new

    one = np.ones(1, bool)
    prior = levenberg.Prior(mean[None], np.zeros(3, int), one, ~one, np.zeros((1, 3), bool))
    settings = levenberg.Settings(iterations=5, first_update=100)
    state = levenberg.begin(
        Line(), np.zeros((1, 3)), np.ones((1, 3), bool), np.array([[alpha]]), None, settings
    )
    for _ in range(5):
        state = state._replace(variance=np.array([[variance]]), damping=np.array([0.0]))
        state = levenberg.step(Line(), state, prior, settings, 50)
    state = state._replace(variance=np.array([[variance]]))
    found = levenberg.finish(Line(), state, prior)
    covariance = phi @ phi.T / alpha + variance * np.eye(12)
    away = y - phi @ mean
    expected = -0.5 * (
        away @ np.linalg.solve(covariance, away)
        + np.linalg.slogdet(covariance)[1]
        + 12 * np.log(2 * np.pi)
    )
    assert abs(found.log_evidence[0] - expected) < 1e-8
    values = np.linalg.eigvalsh(phi.T @ phi / variance)
    assert abs(found.effective[0] - np.sum(values / (values + alpha))) < 1e-8


def test_a_wild_fit_does_not_stop_those_beside_it() -> None:
    """Its matrix has no numbers left; the others get their own precisions and noise."""
    rng = np.random.default_rng(0)
    phi, y, one = rng.normal(size=(12, 3)), rng.normal(size=12), np.ones(1, bool)
    prior = levenberg.Prior(np.zeros((2, 3)), np.zeros(3, int), one, ~one, np.zeros((1, 3), bool))
    state = levenberg.State(
        np.zeros((2, 3)), np.ones((2, 3), bool), np.ones((2, 1)), np.ones((2, 1)),
        np.array([[y @ y], [np.inf]]), np.ones(2), np.zeros(2, int), None,
    )  # fmt: skip
    normal = np.stack([phi.T @ phi, np.full((3, 3), np.nan)])

    problem: Any = SimpleNamespace(rows=np.array([12.0]))
    found = levenberg._update(problem, state, normal, prior, levenberg.Settings())
    gamma = 3 - np.trace(np.linalg.inv(phi.T @ phi + np.eye(3)))
    assert found.variance[0, 0] == pytest.approx(y @ y / (12 - gamma))
    np.testing.assert_array_equal(found.variance[1], 1.0)
    np.testing.assert_array_equal(found.alpha[1], 1.0)


def linear_record(poles: list[complex], T: int, noise: float, seed: int = 0) -> Any:
    """One input, two outputs, a modal system with these poles."""
    rng = np.random.default_rng(seed)
    nx = len(poles)
    A = np.zeros((nx, nx))
    k = 0
    while k < nx:
        if np.imag(poles[k]):
            a, b = np.real(poles[k]), np.imag(poles[k])
            A[k : k + 2, k : k + 2] = [[a, b], [-b, a]]
            k += 2
        else:
            A[k, k] = np.real(poles[k])
            k += 1
    model = start.Linear(
        A, rng.normal(size=(nx, 1)), rng.normal(size=(2, nx)), rng.normal(size=(2, 1))
    )
    u = rng.normal(size=(T, 1))
    x, y = rng.normal(size=nx), np.zeros((T, 2))
    for t in range(T):
        y[t] = model.C @ x + model.D @ u[t]
        x = model.A @ x + model.B @ u[t]
    return model, u, y + noise * rng.normal(size=y.shape)


OSCILLATOR = [0.9 + 0.3j, 0.9 - 0.3j, 0.7]


def test_a_linear_system_without_noise_is_recovered() -> None:
    _, u, y = linear_record(OSCILLATOR, 400, 0.0)
    fit = fit_state_space(data_of([(u, y)], [slice(200, 260)]), Plan(order=3))[0]
    assert np.all(fit.error < 1e-5)
    assert np.all(fit.held_back < 1e-5)
    found = np.linalg.eigvals(fit.weights.state[:, :3])
    for pole in OSCILLATOR:
        assert np.min(np.abs(found - pole)) < 1e-5


def test_an_integrator_is_kept() -> None:
    _, u, y = linear_record([1.0, 0.8, 0.5], 400, 0.01)
    scale = y.std(axis=0)
    response = start.responses(data_of([(u, y / scale)]).rows)[0]
    model = start.realise(response, 3)
    assert abs(np.abs(np.linalg.eigvals(model.A)).max() - 1) < 2e-3
    fit = fit_state_space(data_of([(u, y / scale)]), Plan(order=3))[0]
    assert abs(np.abs(np.linalg.eigvals(fit.weights.state[:, :3])).max() - 1) < 3e-4
    assert np.all(fit.error * scale < 0.012)


def test_poles_beyond_one_are_drawn_back_and_others_stay() -> None:
    A = np.diag([1.05, 0.5, 1.0])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    found = np.linalg.eigvals(start.within(turn @ A @ turn.T))
    np.testing.assert_allclose(np.sort(np.real(found)), [0.5, 1.0, 1.0], atol=1e-12)


def simulate(
    sizes: Sizes, w: Weights, u: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States and outputs of a free run, by a plain loop."""
    states, outputs = [], []
    for now in u:
        read = np.concatenate([x, now, [1.0]])
        phi = np.concatenate([read, np.tanh(w.unit @ read)])
        states.append(x)
        outputs.append(w.out @ phi)
        x = w.state @ phi
    return np.array(states), np.array(outputs)


def most_probable(fit: Fitted, u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The first state of a linear model: least squares with the prior of the states."""
    sizes, w = fit.sizes, fit.weights
    free = simulate(sizes, w, u, np.zeros(sizes.nx))[1]
    J = np.stack([simulate(sizes, w, u, e)[1] - free for e in np.eye(sizes.nx)], axis=-1)
    A = np.einsum("tox,toz,o->xz", J, J, 1 / fit.variance) + np.linalg.inv(fit.states.covariance)
    right = np.einsum("tox,to,o->x", J, y - free, 1 / fit.variance)
    return np.linalg.solve(A, right + np.linalg.solve(fit.states.covariance, fit.states.mean))


def bent_record(T: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A first-order system with a saturated drive."""
    rng = np.random.default_rng(seed)
    u, x = 1.5 * rng.normal(size=T), 0.0
    y = np.zeros(T)
    for t in range(T):
        y[t] = x
        x = 0.8 * x + np.tanh(1.5 * u[t])
    return u[:, None], (y + 0.02 * rng.normal(size=T))[:, None]


def test_a_nonlinear_fit_reaches_the_noise_and_masks_only_shrink() -> None:
    u, y = bent_record(500, 0)
    seen: list[int] = []
    plan = Plan(order=1, units=2, restarts=3, rounds=((8, 0.67), (25, 0.34)))
    fits = fit_state_space(data_of([(u, y)]), plan, lambda *_: seen.append(1))
    best = fits[0]
    assert len(fits) == 1
    assert best.error[0] < 0.023
    assert 1 <= best.units <= 2
    assert len(seen) > 20
    u_new, y_new = bent_record(300, 1)
    record = Record(u=u, y=y)
    model = observed(best, record, fit_scaling([record], "none")).model
    miss = (model.free_run(u_new, y_new[:10]) - y_new)[10:]
    assert np.sqrt(np.mean(miss**2)) < 0.025
    network, found = best.network()
    params: Any = found
    assert network.units == best.units
    x: Any = np.array([0.5])
    for u_t, y_t in zip(u_new[:20], simulate(best.sizes, best.weights, u_new, x)[1], strict=False):
        x, expected = network.step(params, x, u_t)
        np.testing.assert_allclose(y_t, expected, atol=1e-10)
    covariance, place = best.covariance()
    assert np.all(np.linalg.eigvalsh(covariance) > -1e-12)
    assert len(place) == best.mask.sum()


def test_pruned_groups_take_their_weights_along() -> None:
    sizes = Sizes(2, 1, 1, 3, 1)
    w = weights(sizes)[None]
    prior = prior_of(sizes, w)
    problem = FreeRuns(sizes, [rows(sizes)[0]])
    settings = levenberg.Settings()
    alpha = np.ones((1, len(prior.learned)))
    state = levenberg.begin(problem, w, np.ones(w.shape, bool), alpha, problem.carry(1), settings)
    split(sizes, w).state[..., -1] = split(sizes, w).out[..., -1] = 1e-12
    after = levenberg._update(problem, state, np.eye(sizes.total)[None], prior, settings)
    left = split(sizes, after.mask[0])
    assert left.unit.any(axis=1).tolist() == [True, True, False]
    assert not left.state[:, -1].any()
    assert not left.out[:, -1].any()
    assert np.all(after.w[~after.mask] == 0)
    assert np.all(after.mask <= state.mask)


def test_flat_weights_and_networks_are_the_same_numbers() -> None:
    w = weights()
    network, tree = as_network(SIZES, w)
    params: Any = tree
    assert {n: v.shape for n, v in params.items()} == {
        n: s.shape for n, s in network.specs().items()
    }
    np.testing.assert_array_equal(as_flat(SIZES, params, split(SIZES, w).first), w)
    u = rows()[0][0]
    x, expected = split(SIZES, w).first[0], dense()[0]
    for t in range(5):
        x, y = network.step(params, x, u[t])
        np.testing.assert_allclose(y, expected[t], rtol=1e-10)


def test_standardised_states_have_unit_variance_and_the_same_outputs() -> None:
    sizes = Sizes(3, 1, 2, 0, 1)
    model, u, _ = linear_record(OSCILLATOR, 200, 0.0)
    w = weights_of(sizes, model)
    split(sizes, w).state[:, -1] = 0.1
    x, y = simulate(sizes, split(sizes, w), u, np.ones(3))
    split(sizes, w).first[:] = 1.0
    new = split(sizes, standardised(sizes, w, x))
    x, same = simulate(sizes, new, u, new.first[0])
    np.testing.assert_allclose(same, y, atol=1e-10)
    np.testing.assert_allclose(x.std(axis=0), 1.0)
    np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=1e-12)


def stable_twin(order: int, seed: int, T: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """A linear plant whose states can all be seen, with noise of 5 %, in scaled units."""
    rng = np.random.default_rng(1000 * order + seed)
    poles = np.linspace(0.9, 0.3, order) * np.where(np.arange(order) % 2, -1, 1)
    u, x = rng.normal(size=(T, 1)), np.zeros(order)
    y = np.zeros((T, 1))
    for t in range(T):
        y[t] = x.sum()
        x = poles * x + np.sqrt(1 - poles**2) * u[t]
    y += 0.05 * y.std() * rng.normal(size=y.shape)
    return u, (y - y.mean()) / y.std()


@pytest.mark.parametrize("order", [1, 3])
def test_the_order_of_a_linear_plant_is_found(order: int) -> None:
    for seed in range(2):
        u, y = stable_twin(order, seed)
        (fit,) = search([(u, y, np.ones(len(u)))], Search((1, 2, 3, 4)))
        assert fit.network()[0].states == order
        assert np.all(fit.error < 0.055)


@pytest.mark.parametrize(("orders", "tame"), [((1, 2, 3, 4), True), ((3,), False)])
def test_what_rings_more_and_more_is_left_out_where_it_can_be(
    orders: tuple[int, ...], tame: bool
) -> None:
    """It fits a ringing of the plant's disturbance, from a first state that nobody will know."""
    u, y = stable_twin(1, 0, T=200)
    t = np.arange(len(u))[:, None]
    y = y + 2e-5 * 1.045**t * np.cos(2.7 * t)
    (fit,) = search([(u, y, np.ones(len(u)))], Search(orders, told=False))
    A = fit.weights.state[:, : fit.sizes.nx]
    assert (np.max(np.abs(np.linalg.eigvals(A))) <= 10 ** (1 / len(u))) == tame


def test_where_no_linear_model_can_be_started_from_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "responses", lambda _: [])
    u, y = stable_twin(1, 0)
    with pytest.raises(DataError, match="runs away"):
        search([(u, y, np.ones(len(u)))], Search((1,)))


def test_rows_without_weight_change_nothing_in_a_search() -> None:
    u, y = stable_twin(2, 0)
    seen = np.ones(len(u))
    seen[100:150] = 0.0
    wild = np.where(seen[:, None] > 0, y, 1e3)
    plan = Search((2,), units=3, restarts=2, members=2, screening=6, iterations=6)
    for one, other in zip(
        search([(u, y, seen)], plan), search([(u, wild, seen)], plan), strict=True
    ):
        np.testing.assert_array_equal(one.w, other.w)


# Of a record of 900 rows; tests that share it share programs.
LONG = Search((1,), units=4, restarts=2, members=1, iterations=25, rows=300, bent=False)


def test_long_records_are_screened_on_pieces_and_finished_on_all_rows() -> None:
    u, y = stable_twin(2, 1, T=900)
    few = excerpt([(u, y, np.ones(900))], 300)
    assert sum(len(part) for part, _, _ in few) == 300
    plan = replace(LONG, orders=(1, 2), units=2, screening=15, iterations=10, fixed=True)
    fits = search([(u, y, np.ones(900))], plan)
    best, *fewer = (fit.network()[0].states for fit in fits)  # whoever uses them chooses
    assert best > 1
    assert len(fewer) == 1
    assert fewer[0] < best
    assert all(fit.sizes.records == 1 for fit in fits)  # the whole record, not its pieces
    assert all(fit.sizes.m == 2 for fit in fits)  # fixed, so there are neither fewer nor more
    assert np.all(fits[0].error < 0.055)


def test_records_beside_long_ones_may_be_very_short() -> None:
    """Their pieces are left out, and where nothing else is there one lag is still tried."""
    rows = [(np.ones((n, 1)), np.ones((n, 1)), np.ones(n)) for n in (100_000, 80)]
    assert [len(u) for u, _, _ in excerpt(rows, 3000)] == [999] * 3
    assert start.usable_lags(rows) == 26
    assert start.usable_lags([(u[:2], y[:2], w[:2]) for u, y, w in rows]) == 1


def test_fits_with_more_states_start_where_those_with_fewer_are() -> None:
    """Weights keep their places; a state that was not there is neither driven nor read."""
    old, new = Sizes(2, 1, 1, 3, 1), Sizes(4, 1, 1, 3, 1)
    w = np.random.default_rng(0).normal(size=(2, old.total))
    wide = repacked(old, new, w)
    np.testing.assert_array_equal(repacked(new, old, wide), w)
    u = np.random.default_rng(1).normal(size=(40, 1))
    for small, large in zip(w, wide, strict=True):
        at = [split(s, 0.3 * v) for s, v in ((old, small), (new, large))]
        runs = [simulate(s, w, u, w.first[0])[1] for s, w in zip((old, new), at, strict=True)]
        np.testing.assert_allclose(runs[0], runs[1])


def test_changes_of_the_states_basis_move_no_output_and_leave_no_doubt() -> None:
    w, u = weights(), rows()[0][0]
    changes = basis_changes(SIZES, w)
    assert changes.shape == (SIZES.total, 3 * 3 + 3)
    assert np.linalg.matrix_rank(changes) == 12
    for change in changes.T:
        there, back = (split(SIZES, w + step * change) for step in (1e-6, -1e-6))
        for record in range(SIZES.records):
            one, other = (simulate(SIZES, v, u, v.first[record])[1] for v in (there, back))
            np.testing.assert_allclose(one, other, atol=1e-10)
    u, y = stable_twin(2, 0)
    (fit,) = search([(u, y, np.ones(len(u)))], Search((2,)))
    covariance, place = fit.covariance()
    precision = fit.precision[np.ix_(place, place)]
    d = np.sqrt(np.diag(precision))
    along = d[:, None] * basis_changes(fit.sizes, fit.w)[place]
    scaled = d[:, None] * covariance * d
    np.testing.assert_allclose(along.T @ scaled @ along, 0.0, atol=1e-6 * np.abs(along).max() ** 2)
    across = np.linalg.svd(along)[0][:, np.linalg.matrix_rank(along) :]
    inner = across.T @ (precision / d / d[:, None]) @ across
    np.testing.assert_allclose(across.T @ scaled @ across, np.linalg.inv(inner), rtol=1e-6)


def test_added_units_change_little_and_those_that_left_begin_again() -> None:
    u, y = bent_record(500, 0)
    data = data_of([(u, y)])
    straight = levenberg.Settings(bend=0.0)
    plan = Plan(order=2, units=3, restarts=2, rounds=((5, 1.0),), levenberg=straight)
    stage = nonlinear(data, linear(data, [2], plan), plan)
    old = stage.problem.sizes
    gone = split(old, np.ones((1, old.total), bool))
    gone.unit[:, 1] = gone.state[..., -2] = gone.out[..., -2] = False
    flat = np.concatenate([part.reshape(1, -1) for part in gone], axis=1)
    state = stage.state._replace(mask=stage.state.mask & flat, w=stage.state.w * flat)
    wide = widened(stage._replace(state=state), data, 5, seed=1)
    new = wide.problem.sizes
    assert new.m == 5
    before, after = split(old, state.w), split(new, wide.state.w)
    own = [0, 2]
    np.testing.assert_array_equal(after.unit[:, own], before.unit[:, own])
    np.testing.assert_array_equal(
        after.state[..., [*range(4), 4, 6]], before.state[..., [*range(4), 4, 6]]
    )
    assert np.all(after.unit[:, [1, 3, 4]] != 0)
    assert np.all(split(new, wide.state.mask).unit)
    assert np.all(np.abs(after.state[..., [5, 7, 8]]) < 1e-2)  # they begin near zero
    assert np.all(after.out[..., [5, 7, 8]] == 0)
    y_wide = wide.problem.outputs(wide.state.w, wide.state.carry)[1][0][: len(u)]
    alone = simulate(old, split(old, state.w[0]), u, before.first[0, 0])[1]
    np.testing.assert_allclose(y_wide, alone, atol=0.05)


def test_fits_at_rest_can_go_on() -> None:
    """The last round begins where growth ended, perhaps with nothing left to do."""
    u, y = stable_twin(1, 0)
    data, plan = data_of([(u, y)]), Plan(order=1)
    stage = linear(data, [1], plan)
    calm = stage.state._replace(resting=np.full(1, 99))
    found = run(stage._replace(state=calm), levenberg.Settings(12), "last round")
    np.testing.assert_allclose(error(found), error(stage), rtol=1e-3)


def test_units_are_added_while_the_error_falls_and_no_longer() -> None:
    """A wavy drive needs more units than a straight one."""
    rng = np.random.default_rng(0)
    u = rng.uniform(-2, 2, size=(900, 1))
    found = []
    for drive in (np.sin(2 * u[:, 0]), np.tanh(u[:, 0])):
        x, y = 0.0, np.zeros((900, 1))
        for t in range(900):
            y[t] = x + 0.01 * rng.normal()
            x = 0.7 * x + drive[t]
        found.append(search([(u, y, np.ones(900))], LONG)[0])
    assert [fit.sizes.m for fit in found] == [8, 2]


def test_a_state_space_model_starts_from_the_state_that_explains_its_first_outputs_best() -> None:
    u, y = stable_twin(2, 2)
    record = Record(u=u, y=y)
    scaling = fit_scaling([record], "standardize")
    scaled = scaling.apply(record)
    (fit,) = search([(scaled.u, scaled.y, np.ones(len(u)))], Search((2,)))
    model = observed(fit, record, scaling).model
    model = model.with_weights({"filter.Q": np.zeros((2, 2))})
    new = Record(u=stable_twin(2, 3)[0], y=stable_twin(2, 3)[1])
    after = scaling.apply(new)
    x = most_probable(fit, after.u[1:12], after.y[1:12])  # the filter first learns from row 1
    expected = scaling.undo_y(simulate(fit.sizes, fit.weights, after.u[1:], x)[1])
    # nearly: the filter begins there and sees the same outputs again
    np.testing.assert_allclose(model.simulate(new, 12).mean[12:], expected[11:], atol=1e-4)


class _Lanes(NamedTuple):
    """A stage that knows its orders only; ``picked`` says which of its fits were taken."""

    orders: np.ndarray
    taken: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("scores", "members", "taken"),
    [
        # of order 2 one is as good as the best, of order 6: it comes first, the others by score
        ([1.04, 1.5, 1.3, 1.0, 1.2], 4, [[0, 2], [0, 1]]),
        # a smaller order that is not as good stays where its score puts it
        ([1.06, 1.5, 1.3, 1.0, 1.2], 3, [[0, 1], [0]]),
        # what is far behind is finished, too, but not what is wild
        ([3.0, 2.1, np.inf, 1.0, 2.0], 9, [[0, 1], [1, 0]]),
    ],
)
def test_the_best_restarts_of_all_orders_are_finished(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], members: int, taken: list[list[int]]
) -> None:
    searching = sys.modules[by_score.__module__]  # the package has a function of that name
    stages: Any = [_Lanes(np.array([2, 2, 3])), _Lanes(np.array([6, 6]))]
    orders = np.concatenate([stage.orders for stage in stages])
    monkeypatch.setattr(searching, "all_scores", lambda *_: (orders, np.array(scores)))
    monkeypatch.setattr(
        searching, "picked", lambda stage, lanes: stage._replace(taken=tuple(lanes.tolist()))
    )
    found: Any = by_score(Data((), (), (), (), ()), stages, members)
    assert [list(stage.taken) for stage in found] == taken
    if scores[0] <= 1.05:
        assert found[0].orders.tolist() == [2, 2, 3]
