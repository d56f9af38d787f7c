"""Inputs from before a record: against the closed form of a linear Gaussian model."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from occamid import Record, Settings, ensemble_of, train
from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.initial import _conditional, _search, _solved, past_inputs
from occamid.bands.posterior import Posterior
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms, all_terms
from occamid.networks import MLP, Observer
from occamid.training.model import Model
from tests.support.banded import banded


def fir(rng: np.random.Generator, lags: int) -> tuple[MLP, np.ndarray, np.ndarray]:
    """A linear response to past inputs as an MLP, its flat weights, and its coefficients."""
    network = MLP(lags + 1, (1,), 1, "identity", bias=False, skip=True)
    taps = rng.standard_normal(lags + 1)
    flat = np.concatenate([np.zeros(lags + 1), np.zeros(1), taps])
    return network, flat, taps


def test_the_past_is_the_posterior_mean_of_a_linear_model(rng: np.random.Generator) -> None:
    lags, n = 6, 4
    network, flat, taps = fir(rng, lags)
    u = rng.standard_normal((80, 1))
    record = Record(u=u, y=u)
    terms = all_terms(record, lags, 0)
    y = rng.standard_normal((n, 1))
    sigma = 0.3
    with jax.enable_x64(True):
        found = past_inputs(network, terms, flat[None], np.full((1, 1), sigma), u, y, np.ones(1))
    # y = A v + B u + e with v ~ N(m, C): the posterior mean in closed form
    mean, root = _conditional(u[:, 0], lags)
    C = root @ root.T
    A, known = np.zeros((n, lags)), np.zeros(n)
    for t in range(n):
        for k, (_, lag) in enumerate(terms.inputs):
            if t - lag < 0:
                A[t, lags + t - lag] += taps[k]
            else:
                known[t] += taps[k] * u[t - lag, 0]
    gain = C @ A.T @ np.linalg.inv(A @ C @ A.T + sigma**2 * np.eye(n))
    expected = mean + gain @ (y[:, 0] - known - A @ mean)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


def test_linear_members_of_several_channels_are_solved_for_as_others_are_searched_for(
    rng: np.random.Generator,
) -> None:
    """The closed form against the search that models with units get."""
    network = MLP(2 * 5 + 2 * 2, (0,), 2, "identity", bias=True, skip=True)
    weights = 0.3 * rng.standard_normal((3, 2 * 14 + 2))
    u, y = rng.standard_normal((60, 2)), rng.standard_normal((9, 2))
    terms, sigma = all_terms(Record(u=u, y=u), 4, 2), np.full((3, 2), 0.4)
    laws = [_conditional(u[:, c], 2) for c in range(2)]
    mean, roots = np.stack([m for m, _ in laws], axis=1), np.stack([r for _, r in laws])
    place = (network, terms, weights, sigma, u[:9], y, mean, roots)
    with jax.enable_x64(True):
        expected = np.asarray(_search(*place, np.zeros((1, 2, 2))))
    np.testing.assert_allclose(_solved(*place), expected, atol=1e-6)
    assert np.abs(expected - mean).max() > 0.05


def test_the_statistics_of_the_past_are_those_of_the_record() -> None:
    """An autoregressive input: the sample before the record is a times the first, on average."""
    rng = np.random.default_rng(1)
    u = np.zeros(4000)
    for t in range(1, len(u)):
        u[t] = 0.9 * u[t - 1] + rng.standard_normal()
    u = u[int(np.argmax(u[:1000])) :]  # begins far from the mean
    mean, root = _conditional(u, 3)
    assert mean[-1] - u.mean() == pytest.approx(0.9 * (u[0] - u.mean()), rel=0.1)
    variance = root @ root.T
    assert variance[-1, -1] == pytest.approx(1.0, rel=0.15)  # of the innovation
    assert variance[0, 0] > variance[-1, -1]  # the farther back, the less is known


def test_a_free_run_may_start_before_the_lags_are_filled(rng: np.random.Generator) -> None:
    taps = 0.6 ** np.arange(12)
    u = rng.standard_normal((260, 1))
    y = np.convolve(u[:, 0], taps)[: len(u), None] + 0.01 * rng.standard_normal((len(u), 1))
    settings = Settings(
        activation="identity", hidden=(1,), skip=True, bias=False, input_lags=11, output_lags=0
    ).replace(restarts=1, cycles=2, epochs=300, lam=(1e-4,))
    estimation, test = Record(u=u, y=y)[:200], Record(u=u[200:], y=y[200:])
    ensemble = ensemble_of(train(estimation, settings), estimation, count=1)
    full = ensemble.free_run(test.u, test.y[:11])
    early = ensemble.free_run(test.u, test.y[:4])
    assert early.shape == full.shape
    np.testing.assert_array_equal(early[:4], test.y[:4])
    np.testing.assert_allclose(early[11:], full[11:], atol=1e-9)  # once the lags are filled
    naive = np.sqrt(np.mean((test.y[4:11] - test.y.mean()) ** 2))
    assert np.sqrt(np.mean((early[4:11] - test.y[4:11]) ** 2)) < 0.5 * naive
    for samples in (None, 50):
        run = ensemble.simulate(test, 4, samples=samples)
        assert run.n_init == 4
        np.testing.assert_allclose(run.mean, early, atol=1e-8)
        found = banded(run)
        assert found.quantiles.shape == (7, *test.y.shape)
        for part in (found.std, found.epistemic_std, found.aleatoric_std):
            assert part.shape == test.y.shape
            assert not part[:4].any()
        assert np.all(found.std[4:] > 0)


SCALING = Scaling(*(np.array([v]) for v in (1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0)))


def waiting(dead: int) -> Ensemble:
    """A state-space model of one state whose input acts after so many rows."""
    network = Observer(2, (1, 0), 1)
    weights = {
        "state.W_x": [[0.8]], "state.W_u": [[0.5]], "state.W_h": np.zeros((1, 0)),
        "state.b": [0.0], "unit.W_x": np.zeros((0, 1)), "unit.W_u": np.zeros((0, 1)), "unit.b": [],
        "out.W_x": [[1.0]], "out.W_u": [[0.0]], "out.W_h": np.zeros((1, 0)), "out.b": [0.0],
        "filter.x": [0.0], "filter.P": [[1.0]], "filter.Q": [[0.0]], "filter.R": [1e-8],
    }  # fmt: skip
    terms = Terms(((0, 0),), ((0, 1),), ("u",), ("y",))
    arrays = {name: np.array(value, dtype=float) for name, value in weights.items()}
    model = Model(network, terms, SCALING, arrays, start=1, prior_widths={}).later((dead,))
    none = np.zeros((1, 1))
    posterior = Posterior(model, "full", np.array([0]), none, none[0] + 1, none[0] + 1, 1, 0)
    return combine([posterior], feedback="none")


def answer(v: np.ndarray, rows: int) -> np.ndarray:
    """Outputs of that process to scaled inputs, each of which acts in its row."""
    x, y = 0.7, []
    for t in range(rows):
        y.append(x)
        x = 0.8 * x + 0.5 * v[t]
    return SCALING.undo_y(np.array(y)[:, None])


def test_past_inputs_of_a_filter_are_the_most_probable() -> None:
    """A state-space model whose input acts after ten rows, started from four outputs."""
    ensemble = waiting(10)
    u = np.random.default_rng(2).normal(size=(50, 1)).cumsum(axis=0)
    past = _conditional(SCALING.apply_u(u)[:, 0], 10)[0]
    truth = answer(np.concatenate([past, SCALING.apply_u(u)[:, 0]]), 50)  # row t acts in t + 10
    assert ensemble.fewest_known == 1
    np.testing.assert_allclose(ensemble.free_run(u, truth[:4]), truth, rtol=1e-5)
    run = ensemble.simulate(Record(u=u, y=truth), 4)
    np.testing.assert_allclose(run.mean, truth, rtol=1e-5)


def test_a_filter_needs_no_past_where_enough_is_known_behind_its_dead_time() -> None:
    """Inputs before the record are white noise: whatever is said of them is wrong."""
    rng, ensemble = np.random.default_rng(3), waiting(20)
    v = rng.normal(size=100)  # the first twenty act in the record and are not in it
    truth = answer(v, 100)
    u = np.concatenate([v[20:, None], np.zeros((20, 1))]) * SCALING.u_scale + SCALING.u_offset
    assert ensemble.window == 25
    for known in (25, 60):
        np.testing.assert_allclose(ensemble.free_run(u, truth[:known]), truth, rtol=1e-6)
    record = Record(u=u, y=truth)
    np.testing.assert_allclose(ensemble.simulate(record).mean, truth, rtol=1e-6)
    fewer = ensemble.free_run(u, truth[:22])  # five rows with three invented inputs
    assert np.abs(fewer - truth)[22:].max() < 0.7 * truth.std()
