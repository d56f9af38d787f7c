"""Every curvature against something written independently, in double precision."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.data.windows import Windows
from occamid.networks import MLP, Network, Params, Recurrent
from occamid.training.curvature import CURVATURES
from tests.support import oracles
from tests.support.cases import ALL, DEEP, ONE_HIDDEN, RECURRENT, params_for, windows_for

pytestmark = pytest.mark.usefixtures("x64")


SKIP = {
    "tanh": MLP(4, (5,), 1, "tanh", True, skip=True),
    "silu-no-bias": MLP(4, (5,), 1, "silu", False, skip=True),
}
METHODS = {name: jax.jit(f, static_argnums=0) for name, f in CURVATURES.items()}
recursive, gauss_newton, exact = (METHODS[m] for m in ("recursive", "gauss-newton", "exact"))


def ones(network: Network) -> jax.Array:
    return jnp.ones(network.n_out)


@cache
def dense_of(name: str) -> tuple[Params, Windows, Params]:
    """Parameters and data of a case, and the diagonal of its Hessian."""
    network = ALL[name]
    params, data = params_for(network), windows_for(network, T=6, R=2)
    return params, data, oracles.dense_hessian_diagonal(network, params, data)


def relative_error(found: object, expected: object) -> float:
    a, b = np.asarray(found), np.asarray(expected)
    return float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) + 1e-300))


@pytest.mark.parametrize("name", ONE_HIDDEN)
def test_recursive_is_exact_with_one_hidden_layer_and_one_output(name: str) -> None:
    network = ONE_HIDDEN[name]
    params, data, dense = dense_of(name)
    found = recursive(network, params, data, ones(network))
    for key in params:
        assert relative_error(found[key], dense[key]) < 1e-8, key


@pytest.mark.parametrize("name", SKIP)
def test_recursive_is_exact_with_a_direct_path(name: str) -> None:
    """One hidden layer, one output; the other methods agree where they should."""
    network = SKIP[name]
    params, data = params_for(network), windows_for(network, T=7, R=2)
    dense = oracles.dense_hessian_diagonal(network, params, data)
    for method in (recursive, exact):
        found = method(network, params, data, ones(network))
        assert set(found) == set(params)
        for key in params:
            assert relative_error(found[key], dense[key]) < 1e-8, key
    linear = gauss_newton(network, params, data, ones(network))
    for key in ("skip.W", "layer1.W"):  # the output is linear in them
        assert relative_error(linear[key], dense[key]) < 1e-8, key


def test_a_direct_path_of_a_deep_net_is_exact_where_the_output_is_linear() -> None:
    """Two outputs with weights of their own: the path and the last layer are exact."""
    network = MLP(4, (5, 3), 2, "tanh", True, skip=True)
    params, data = params_for(network), windows_for(network, T=6, R=2)
    weight = jnp.asarray([1.0, 3.0])
    found, right = (f(network, params, data, weight) for f in (recursive, exact))
    for key in ("skip.W", "layer2.W", "layer2.b"):
        assert relative_error(found[key], right[key]) < 1e-8, key
    squares = jnp.sum(data.valid * data.z**2, axis=(0, 1))
    assert relative_error(found["skip.W"], weight[:, None] * squares) < 1e-12


@pytest.mark.parametrize("name", [*DEEP, *RECURRENT])
def test_recursive_is_exact_in_the_last_layer(name: str) -> None:
    network = ALL[name]
    params, data, dense = dense_of(name)
    last = "out" if isinstance(network, Recurrent) else f"layer{len(network.hidden)}"
    found = recursive(network, params, data, ones(network))
    for key in (f"{last}.W", f"{last}.b"):
        if key in params:
            assert relative_error(found[key], dense[key]) < 1e-8


@pytest.mark.parametrize("name", ["rnn-no-bias", "lstm-no-bias"])
def test_recursive_is_exact_for_one_time_step(name: str) -> None:
    network = RECURRENT[name]
    params, data = params_for(network), windows_for(network, T=1)
    found = recursive(network, params, data, ones(network))
    dense = oracles.dense_hessian_diagonal(network, params, data)
    for key in params:
        assert relative_error(found[key], dense[key]) < 1e-8, key


@pytest.mark.parametrize(
    "network",
    [
        MLP(4, (5, 3), 2, "gelu", True, skip=True),
        MLP(4, (4, 3, 2), 2, "tanh", False),
        MLP(4, (3, 2, 4, 3), 2, "silu", True),
    ],
    ids=str,
)
def test_recursive_is_lemma_1_in_every_layer(network: MLP) -> None:
    """Inner layers, where it is no exact Hessian, against loops over samples and layers."""
    params, data = params_for(network), windows_for(network, T=6)
    p = {k: np.asarray(v) for k, v in params.items()}
    weight = np.array([1.0, 3.0])
    z, y = np.asarray(data.z[0]), np.asarray(data.y[0])
    expected = oracles.mlp_curvature(p, z, y, network.activation, weight)
    found = recursive(network, params, data, jnp.asarray(weight))
    assert set(found) == set(expected)
    for key in params:
        assert relative_error(found[key], expected[key]) < 1e-8, key


def test_lemma_1_is_not_exact_in_inner_layers() -> None:
    """Guards the test above: the loops are another rule than the dense Hessian."""
    network = MLP(4, (5, 3), 2, "tanh", True)
    params, data = params_for(network), windows_for(network, T=6)
    found = recursive(network, params, data, ones(network))
    dense = oracles.dense_hessian_diagonal(network, params, data)
    assert relative_error(found["layer0.W"], dense["layer0.W"]) > 1e-2


@pytest.mark.parametrize(
    ("hidden", "bias", "tau"),
    [
        ((4,), False, 1),
        ((4,), False, 20),
        ((4,), True, None),
        ((4, 3), True, 3),
        ((3, 2, 4), True, None),
    ],
)
@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_sweep_equals_the_double_loop_over_pairs(
    kind: str, hidden: tuple[int, ...], bias: bool, tau: int | None
) -> None:
    network = Recurrent(kind, 3, hidden, 2, bias=bias, reach=tau)
    params, data = params_for(network), windows_for(network, T=9)
    oracle = {"rnn": oracles.rnn_curvature, "lstm": oracles.lstm_curvature}[kind]
    numpy_params = {k: np.asarray(v) for k, v in params.items()}
    expected = oracle(numpy_params, np.asarray(data.z[0]), np.asarray(data.y[0]), tau)
    found = recursive(network, params, data, ones(network))
    assert set(found) == set(expected)
    for key in params:
        assert relative_error(found[key], expected[key]) < 1e-8, key


def test_a_finite_reach_matters() -> None:
    """Guards the test above: short and unlimited reaches are really different sums."""
    found = []
    for tau in (1, None):
        network = Recurrent("lstm", 3, (4,), 1, bias=False, reach=tau)
        data = windows_for(network, T=9)
        found.append(recursive(network, params_for(network), data, ones(network)))
    assert relative_error(found[0]["lstm0.W_hg"], found[1]["lstm0.W_hg"]) > 1e-2


def test_records_are_swept_apart() -> None:
    """Two records together give the sum of each alone: no state crosses the border."""
    network = RECURRENT["lstm-no-bias"]
    params, data = params_for(network), windows_for(network, T=8, R=2)
    both = recursive(network, params, data, ones(network))
    alone = [
        recursive(network, params, jax.tree.map(lambda x, r=r: x[r : r + 1], data), ones(network))
        for r in range(2)
    ]
    for key in params:
        assert relative_error(both[key], alone[0][key] + alone[1][key]) < 1e-12


@pytest.mark.parametrize("name", [*DEEP, *RECURRENT, "mlp-tanh-bias", "mlp-relu"])
def test_exact_equals_the_dense_hessian(name: str) -> None:
    network = ALL[name]
    params, data, dense = dense_of(name)
    found = exact(network, params, data, ones(network))
    for key in params:
        assert relative_error(found[key], dense[key]) < 1e-8, key


@pytest.mark.parametrize("name", ["mlp-deep", "lstm-two-layers", "rnn-no-bias"])
def test_gauss_newton_equals_the_squared_jacobian(name: str) -> None:
    network = ALL[name]
    params, data = params_for(network), windows_for(network, T=5, R=2)
    weight = jnp.arange(1.0, network.n_out + 1)
    jacobian = jax.jit(jax.jacrev(lambda p: network.apply(p, data.z)))(params)
    found = gauss_newton(network, params, data, weight)
    for key in params:
        scaled = data.valid * weight
        expected = jnp.einsum(
            "rto,rto...->...", jnp.broadcast_to(scaled, data.y.shape), jacobian[key] ** 2
        )
        assert relative_error(found[key], expected) < 1e-10, key


def test_gauss_newton_is_recursive_without_residuals() -> None:
    """At zero residuals and one hidden layer the two rules are the same and never negative."""
    network = MLP(4, (5,), 1, "tanh", True)
    params, data = params_for(network), windows_for(network, T=9)
    data = data._replace(y=network.apply(params, data.z))
    a = recursive(network, params, data, ones(network))
    b = gauss_newton(network, params, data, ones(network))
    for key in params:
        assert relative_error(a[key], b[key]) < 1e-10
        assert float(jnp.min(a[key])) >= 0


@pytest.mark.parametrize("method", CURVATURES)
def test_output_weights_scale_the_energy(method: str) -> None:
    """Weight 4 on the only output is the curvature of twice the residual."""
    network = ONE_HIDDEN["mlp-tanh-bias"]
    params, data = params_for(network), windows_for(network, T=5)
    single = METHODS[method](network, params, data, jnp.ones(1))
    scaled = METHODS[method](network, params, data, 4 * jnp.ones(1))
    for key in params:
        assert relative_error(scaled[key], 4 * single[key]) < 1e-12
