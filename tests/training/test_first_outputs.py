"""A free run of a state-space model begins where its first outputs put it."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.optimize import least_squares

from occamid import Record
from occamid.data.windows import Terms, Windows, windows
from occamid.networks import MLP, Observer
from occamid.networks.flat import flatten, size, unflatten
from occamid.training.first_outputs import begun
from occamid.training.state_space.observed import DISTURBANCES, NO_BETTER, disturbance

Array = np.ndarray
NETWORK = Observer(2, (2, 2), 1)


def weights(speed: float = 0.1) -> dict[str, Array]:
    """A mass with friction that is not linear: its place is seen, its speed is not."""
    return {
        "state.W_x": np.array([[1.0, speed], [0.0, 0.9]]),
        "state.W_u": np.array([[0.0], [0.1]]),
        "state.W_h": np.array([[0.0, 0.0], [-0.3, 0.1]]),
        "state.b": np.zeros(2),
        "unit.W_x": np.array([[0.0, 2.0], [0.5, 1.0]]),
        "unit.W_u": np.zeros((2, 1)),
        "unit.b": np.array([0.0, 0.2]),
        "out.W_x": np.array([[1.0, 0.0]]),
        "out.W_u": np.zeros((1, 1)),
        "out.W_h": np.zeros((1, 2)),
        "out.b": np.zeros(1),
        "filter.x": np.array([0.1, -0.1]),
        "filter.P": np.array([[1.0, 0.2], [0.2, 0.5]]),
        "filter.Q": np.eye(2),
        "filter.R": np.array([0.01]),
    }


def data_of(u: Array, y: Array) -> Windows:
    """Rows of inputs now and outputs before, one more of each ahead of them."""
    terms = Terms(((0, 0),), ((0, 1),), ("u",), ("y",))
    record = Record(u=np.concatenate([u[:1], u]), y=np.concatenate([y[:1], y]))
    return windows([record], terms, 1)


def run(w: dict[str, Array], x: Array, u: Array) -> Array:
    """A plain loop."""
    found = []
    for now in u:
        h = np.tanh(w["unit.W_x"] @ x + w["unit.W_u"] @ now + w["unit.b"])
        found.append(w["out.W_x"] @ x + w["out.W_u"] @ now + w["out.W_h"] @ h + w["out.b"])
        x = w["state.W_x"] @ x + w["state.W_u"] @ now + w["state.W_h"] @ h + w["state.b"]
    return np.array(found)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("rows", [3, 12, 60])
def test_the_first_state_is_the_most_probable_one(rows: int) -> None:
    """Against SciPy's least squares, for two models at once."""
    rng = np.random.default_rng(rows)
    u = rng.normal(size=(rows, 1))
    y = run(weights(), np.array([-1.0, 2.0]), u) + 0.1 * rng.normal(size=(rows, 1))
    models = [weights(), weights(0.12)]
    flat = np.stack([flatten(NETWORK, w) for w in models])
    found = unflatten(NETWORK, begun(NETWORK, flat, data_of(u, y), rows))
    assert not found["filter.Q"].any()
    for w, x in zip(models, found["filter.x"], strict=True):
        root = np.linalg.cholesky(np.linalg.inv(w["filter.P"])).T

        def misses(x: Array, w: dict[str, Array] = w, root: Array = root) -> Array:
            away = root @ (x - w["filter.x"])
            return np.concatenate([10 * (run(w, x, u) - y).ravel(), away])

        expected = least_squares(misses, [-1.0, 2.0], xtol=1e-14, ftol=1e-14, gtol=1e-14).x
        np.testing.assert_allclose(x, expected, atol=1e-5)


def test_other_weights_stay_and_nothing_known_changes_no_state() -> None:
    flat = flatten(NETWORK, weights())[None]
    with jax.enable_x64(True):
        found = unflatten(NETWORK, begun(NETWORK, flat, data_of(*np.zeros((2, 5, 1))), 0))
    for name, value in weights().items():
        expected = 0 * value if name == "filter.Q" else value
        np.testing.assert_array_equal(found[name][0], expected)


def test_a_network_without_a_filter_stays_what_it_is() -> None:
    network = MLP(2, (3,), 1)
    flat = np.ones((1, size(network)))
    assert begun(network, flat, data_of(*np.zeros((2, 5, 1))), 3) is flat


def one_step_misses(w: dict[str, Array], u: Array, y: Array, share: float) -> float:
    """Mean square one step ahead of an extended Kalman filter, a plain loop."""
    x, P, gain, last = w["filter.x"], w["filter.P"], np.zeros((2, 1)), np.zeros(1)
    total = 0.0
    for now, before, seen in zip(u[1:], y[:-1], y[1:], strict=True):
        x = x + gain @ (before - last)
        h = np.tanh(w["unit.W_x"] @ x + w["unit.W_u"] @ now + w["unit.b"])
        slope = (1 - h**2)[:, None] * w["unit.W_x"]
        F, C = w["state.W_x"] + w["state.W_h"] @ slope, w["out.W_x"] + w["out.W_h"] @ slope
        last = w["out.W_x"] @ x + w["out.W_u"] @ now + w["out.W_h"] @ h + w["out.b"]
        total += float(np.sum((last - seen) ** 2))
        L = P @ C.T / (C @ P @ C.T + w["filter.R"])
        x = w["state.W_x"] @ x + w["state.W_u"] @ now + w["state.W_h"] @ h + w["state.b"]
        gain, P = F @ L, F @ (P - L @ C @ P) @ F.T + share * w["filter.Q"]
    return total / (len(u) - 1)


@pytest.mark.parametrize("disturbed", [0.0, 0.3])
def test_the_filter_trusts_the_model_as_little_as_it_can_afford(disturbed: float) -> None:
    """The largest of the shares that predict about as well as the best, against a plain loop."""
    rng = np.random.default_rng(5)
    w, x, rows = weights(), np.array([0.1, -0.1]), 150
    u, y = rng.normal(size=(rows, 1)), np.zeros((rows, 1))
    for t in range(rows):
        y[t] = run(w, x, u[t : t + 1])[0] + 0.1 * rng.normal(size=1)
        h = np.tanh(w["unit.W_x"] @ x + w["unit.b"])
        x = w["state.W_x"] @ x + w["state.W_u"] @ u[t] + w["state.W_h"] @ h
        x = x + disturbed * rng.normal(size=2)
    misses = np.array([one_step_misses(w, u, y, share) for share in DISTURBANCES])
    good = np.flatnonzero(misses <= NO_BETTER**2 * misses.min())
    found = disturbance(NETWORK, w, Record(u=u, y=y))
    assert found == DISTURBANCES[good[-1]]
    assert (found > 0.01) == (disturbed > 0)
