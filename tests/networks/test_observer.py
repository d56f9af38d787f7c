"""The filter inside a state-space network against a textbook Kalman filter and plain loops."""

import jax.numpy as jnp
import numpy as np
import pytest

from occamid.networks import Observer, is_matrix, joined, parted, unobserved
from occamid.networks.flat import flatten, size, unflatten

pytestmark = pytest.mark.usefixtures("x64")
Tree = dict[str, np.ndarray]


def network(states: int = 3, units: int = 4, nu: int = 2, ny: int = 2) -> Observer:
    return Observer(nu + ny, (states, units), ny)


def params_of(own: Observer, rng: np.random.Generator, units: bool = True) -> Tree:
    """Random weights with stable poles, and a filter."""
    tree = {name: 0.3 * rng.normal(size=spec.shape) for name, spec in own.specs().items()}
    n = own.hidden[0]
    tree["state.W_x"] = 0.9 * np.linalg.qr(rng.normal(size=(n, n)))[0]
    if not units:
        for name in ("state.W_h", "out.W_h"):
            tree[name][:] = 0.0
    for name in ("filter.P", "filter.Q"):
        root = rng.normal(size=(n, n))
        tree[name] = root @ root.T / n
    tree["filter.R"] = rng.uniform(0.1, 1.0, size=own.n_out)
    return tree


def steps(own: Observer, tree: Tree, z: np.ndarray) -> np.ndarray:
    """Outputs of ``step`` along rows of regressors."""
    params = {name: jnp.asarray(value) for name, value in tree.items()}
    state, found = own.initial_state(params), []
    for row in z:
        state, y = own.step(params, state, jnp.asarray(row))
        found.append(np.asarray(y))
    return np.stack(found)


def test_a_linear_filter_is_kalmans(rng: np.random.Generator) -> None:
    own = network()
    tree = params_of(own, rng, units=False)
    A, B, d = (tree[f"state.{k}"] for k in ("W_x", "W_u", "b"))
    C, D, c = (tree[f"out.{k}"] for k in ("W_x", "W_u", "b"))
    u, y = rng.normal(size=(2, 30, 2))
    x, P, expected = tree["filter.x"], tree["filter.P"], []
    for t in range(len(u)):
        expected.append(C @ x + D @ u[t] + c)
        S = C @ P @ C.T + np.diag(tree["filter.R"])
        K = P @ C.T @ np.linalg.inv(S)
        x = A @ (x + K @ (y[t] - expected[-1])) + B @ u[t] + d
        P = A @ (P - K @ S @ K.T) @ A.T + tree["filter.Q"]
    z = np.concatenate([u, np.concatenate([np.zeros((1, 2)), y[:-1]])], axis=1)
    np.testing.assert_allclose(steps(own, tree, z), expected, rtol=1e-9, atol=1e-10)


def test_fed_its_own_outputs_it_is_the_plain_network(rng: np.random.Generator) -> None:
    own = network()
    tree = params_of(own, rng)
    u = rng.normal(size=(25, 2))
    x, last, expected = tree["filter.x"], np.zeros(2), []
    for row in u:
        h = np.tanh(tree["unit.W_x"] @ x + tree["unit.W_u"] @ row + tree["unit.b"])
        expected.append(
            tree["out.W_x"] @ x + tree["out.W_u"] @ row + tree["out.W_h"] @ h + tree["out.b"]
        )
        x = tree["state.W_x"] @ x + tree["state.W_u"] @ row + tree["state.W_h"] @ h
        x = x + tree["state.b"]
    last = np.concatenate([np.zeros((1, 2)), expected[:-1]])
    found = steps(own, tree, np.concatenate([u, last], axis=1))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_measured_outputs_find_the_state_of_a_nonlinear_plant(rng: np.random.Generator) -> None:
    own = network()
    tree = params_of(own, rng)
    tree["filter.Q"][:] = 0.0
    tree["filter.R"][:] = 1e-8
    u = rng.normal(size=(40, 2))
    plant = dict(tree, **{"filter.x": rng.normal(size=3)})
    truth = np.zeros((40, 2))
    for t in range(40):  # fed its own outputs: a free run from another state
        last = np.concatenate([np.zeros((1, 2)), truth[:t]])
        truth[: t + 1] = steps(own, plant, np.concatenate([u[: t + 1], last], axis=1))
    last = np.concatenate([np.zeros((1, 2)), truth[:-1]])
    found = steps(own, tree, np.concatenate([u, last], axis=1))
    assert np.abs(found - truth)[0].max() > 0.1
    assert np.abs(found - truth)[-5:].max() < 1e-3


def test_compacted_it_computes_the_same(rng: np.random.Generator) -> None:
    own = network(states=4, units=3)
    tree = params_of(own, rng)
    for name in ("state.W_x", "unit.W_x", "out.W_x"):
        tree[name][:, 2] = 0.0  # a state that nobody reads
    for name in ("state.W_h", "out.W_h"):
        tree[name][:, 1] = 0.0  # and a unit
    tree["filter.P"][2] = tree["filter.P"][:, 2] = tree["filter.Q"][2] = 0.0
    tree["filter.Q"][:, 2] = 0.0
    live = own.live({name: v != 0 for name, v in tree.items() if is_matrix(name)})
    small, weights = own.compact(tree, live)
    assert (small.hidden, small.n_in) == ((3, 2), 4)
    assert {n: v.shape for n, v in weights.items()} == {
        n: s.shape for n, s in small.specs().items()
    }
    z = rng.normal(size=(20, 4))
    np.testing.assert_allclose(steps(small, weights, z), steps(own, tree, z), rtol=1e-9)


def test_parts_of_a_state_and_the_network_without_a_filter(rng: np.random.Generator) -> None:
    own = network()
    tree = params_of(own, rng)
    state = own.initial_state({n: jnp.asarray(v) for n, v in tree.items()})
    moving, carried = parted(state)
    again = joined(moving, carried)
    assert [np.shape(x) for x in moving] == [(3,), (2,)]
    assert type(again) is type(state)
    assert parted((1, 2)) == ((1, 2), ())
    from occamid.data.windows import Terms

    terms = Terms(((0, 0), (1, 0)), ((0, 1), (1, 1)), ("a", "b"), ("y", "z"))
    plain, few = unobserved(own, terms)
    assert few.outputs == ()
    flat = flatten(own, tree)[: size(plain)]
    for name, value in unflatten(plain, flat).items():
        np.testing.assert_array_equal(value, tree[name])
