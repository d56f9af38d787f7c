"""The state-space network against NumPy loops; what is live; compaction keeps the outputs."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.networks import StateSpace, is_matrix, reads_regressors
from occamid.networks.simulate import one_step
from tests.support import oracles
from tests.support.cases import params_for, windows_for

pytestmark = pytest.mark.usefixtures("x64")
CASES = {
    "nonlinear": StateSpace(2, 3, 4, 2),
    "no-bias": StateSpace(2, 3, 4, 1, bias=False),
    "linear": StateSpace(3, 2, 0, 2),
}


def as_arrays(params: Any) -> dict[str, Any]:
    return {name: jnp.asarray(value) for name, value in params.items()}


def as_numpy(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in params.items()}


@pytest.mark.parametrize("name", CASES)
def test_outputs_equal_a_numpy_loop(name: str) -> None:
    network = CASES[name]
    params, data = params_for(network), windows_for(network, T=7, R=2)
    found = jax.jit(network.apply)(params, data.z)
    steps = jax.jit(jax.vmap(partial(one_step, network), (None, 0)))(params, data.z)
    for k in range(2):
        expected = oracles.state_space_forward(as_numpy(params), np.asarray(data.z[k]))[-1]
        np.testing.assert_allclose(found[k], expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(steps[k], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_sweep_equals_a_double_loop_over_pairs_of_times(name: str) -> None:
    network = CASES[name]
    params, data = params_for(network), windows_for(network, T=6)
    found = jax.jit(network.sweep, static_argnums=2)(
        params, data.z, lambda y: y - data.y, jnp.ones_like(data.y)
    )
    expected = oracles.state_space_curvature(
        as_numpy(params), np.asarray(data.z[0]), np.asarray(data.y[0])
    )
    assert set(found) == set(params)
    for key in params:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-9, atol=1e-12, err_msg=key)


def test_sweep_is_exact_where_the_outputs_are_linear_in_a_weight() -> None:
    network = CASES["nonlinear"]
    params, data = params_for(network), windows_for(network, T=6)
    found = network.sweep(params, data.z, lambda y: y - data.y, jnp.ones_like(data.y))
    dense = oracles.dense_hessian_diagonal(network, params, data)
    for key in ("out.W_x", "out.W_u", "out.W_h", "out.b"):
        np.testing.assert_allclose(found[key], dense[key], rtol=1e-9)


def test_names_say_what_is_a_matrix_and_what_reads_the_regressors() -> None:
    names = CASES["nonlinear"].specs()
    assert [n for n in names if not is_matrix(n)] == ["state.b", "unit.b", "out.b"]
    assert [n for n in names if reads_regressors(n)] == ["state.W_u", "unit.W_u", "out.W_u"]


def pruned(network: StateSpace) -> dict[str, np.ndarray]:
    """Input 1, state 2 (never read), unit 0 (reads nothing) and unit 3 (never read) are dead."""
    p = {name: value.copy() for name, value in as_numpy(params_for(network)).items()}
    for name in ("state.W_u", "unit.W_u", "out.W_u"):
        p[name][:, 1] = 0.0
    for name in ("state.W_x", "unit.W_x", "out.W_x"):
        p[name][:, 2] = 0.0
    p["unit.W_x"][0] = p["unit.W_u"][0] = 0.0
    p["state.W_h"][:, 3] = p["out.W_h"][:, 3] = 0.0
    return p


@pytest.mark.parametrize("name", ["nonlinear", "no-bias"])
def test_compaction_drops_what_is_dead_and_keeps_the_outputs(name: str) -> None:
    network = CASES[name]
    p, z = pruned(network), windows_for(network, T=8).z
    live = network.live({n: v != 0 for n, v in p.items() if is_matrix(n)})
    small, kept = network.compact(p, live)
    few, whole = as_arrays(kept), as_arrays(p)
    assert (small.n_in, small.states, small.units) == (1, 2, 2)
    assert {n: v.shape for n, v in few.items()} == {n: s.shape for n, s in small.specs().items()}
    np.testing.assert_allclose(
        small.apply(few, z[..., live.regressors]), network.apply(whole, z), rtol=1e-12, atol=1e-13
    )


def test_a_state_that_only_a_dead_unit_reads_is_dead() -> None:
    network = StateSpace(1, 2, 1, 1)
    masks = {n: np.ones(s.shape, bool) for n, s in network.specs().items() if is_matrix(n)}
    masks["out.W_x"][:, 1] = masks["state.W_x"][0, 1] = False
    masks["state.W_h"][0] = masks["out.W_h"][:] = False
    states, units = network.live(masks).neurons
    assert states.tolist() == [True, False]
    assert units.tolist() == [False]
    batch = {n: np.stack([m, np.ones_like(m)]) for n, m in masks.items()}
    assert network.live(batch).neurons[0].tolist() == [[True, False], [True, True]]
