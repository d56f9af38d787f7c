"""Networks: forward pass, gradient, single steps, what is live."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import networks
from occamid.bands.posterior import fit_posterior
from occamid.data.scaling import fit_scaling
from occamid.data.windows import all_terms
from occamid.networks import MLP, Recurrent
from occamid.networks.base import derivatives
from occamid.networks.simulate import one_step
from occamid.training.model import Model
from tests.support import oracles
from tests.support.cases import ALL, RECURRENT, params_for, windows_for
from tests.support.small import small_record

pytestmark = pytest.mark.usefixtures("x64")


@partial(jax.jit, static_argnums=0)
def apply(network: networks.Network, params: networks.Params, z: jax.Array) -> jax.Array:
    return network.apply(params, z)


def test_mlp_is_matrix_products_and_activations() -> None:
    network = MLP(4, (5, 3), 2, "tanh", True)
    p = {k: np.asarray(v) for k, v in params_for(network).items()}
    z = np.asarray(windows_for(network, T=6).z[0])
    a = np.tanh(z @ p["layer0.W"].T + p["layer0.b"])
    a = np.tanh(a @ p["layer1.W"].T + p["layer1.b"])
    expected = a @ p["layer2.W"].T + p["layer2.b"]
    np.testing.assert_allclose(
        network.apply(params_for(network), jnp.asarray(z)), expected, rtol=1e-12
    )


@pytest.mark.parametrize("bias", [True, False])
def test_a_direct_path_adds_a_linear_model(bias: bool) -> None:
    """A loop over rows and entries, and the network without the path beside it."""
    network = MLP(4, (5, 3), 2, "tanh", bias, skip=True)
    params, z = params_for(network), windows_for(network, T=6, R=2).z
    p = {k: np.asarray(v) for k, v in params.items()}
    expected = np.zeros((2, 6, 2))
    for at in np.ndindex(2, 6):
        a = np.asarray(z[at])
        for layer in (0, 1):
            a = np.tanh(p[f"layer{layer}.W"] @ a + p.get(f"layer{layer}.b", 0.0))
        expected[at] = p["layer2.W"] @ a + p.get("layer2.b", 0.0)
        for o, i in np.ndindex(2, 4):
            expected[(*at, o)] += p["skip.W"][o, i] * z[(*at, i)]
    np.testing.assert_allclose(network.apply(params, z), expected, rtol=1e-12)
    without = MLP(4, (5, 3), 2, "tanh", bias)
    assert list(network.specs()) == [*without.specs(), "skip.W"]
    direct = network.apply(params, z) - without.apply(params, z)
    np.testing.assert_allclose(direct, np.asarray(z) @ p["skip.W"].T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_nets_equal_a_numpy_loop(name: str) -> None:
    network = RECURRENT[name]
    params, data = params_for(network), windows_for(network, T=6, R=2)
    p = {k: np.asarray(v) for k, v in params.items()}
    found = apply(network, params, data.z)
    for record in range(2):  # each from rest
        expected = oracles.along(network, p, np.asarray(data.z[record]))
        np.testing.assert_allclose(found[record], expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["mlp-deep", *RECURRENT])
def test_sequence_equals_single_steps(name: str) -> None:
    network = ALL[name]
    params, data = params_for(network), windows_for(network, T=6, R=2)
    steps = jax.jit(jax.vmap(partial(one_step, network), (None, 0)))
    np.testing.assert_allclose(apply(network, params, data.z), steps(params, data.z), rtol=1e-12)


@pytest.mark.parametrize("name", RECURRENT)
def test_our_gradient_equals_automatic_differentiation(name: str) -> None:
    """The backward scan of the recurrent layers against plain autodiff of single steps."""
    network = RECURRENT[name]
    params, data = params_for(network), windows_for(network, T=8, R=2)

    def energy(p: networks.Params, ours: bool) -> jax.Array:
        if ours:
            y = network.apply(p, data.z)
        else:
            y = jax.vmap(lambda z: one_step(network, p, z))(data.z)
        return jnp.sum(data.valid * (y - data.y) ** 2)

    found, expected = (
        jax.jit(jax.grad(energy), static_argnums=1)(params, ours) for ours in (True, False)
    )
    for key in params:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", networks.ACTIVATIONS)
def test_derivatives_equal_closed_forms_and_finite_differences(name: str) -> None:
    f = networks.ACTIVATIONS[name]
    x = jnp.linspace(-2.05, 2.05, 12)
    first, second = jax.jit(partial(derivatives, f))(x)
    value, slope, bow = oracles.bend(name, np.asarray(x))
    np.testing.assert_allclose(f(x), value, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(first, slope, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(second, bow, rtol=1e-10, atol=1e-14)
    d = 1e-4
    np.testing.assert_allclose(first, (f(x + d) - f(x - d)) / (2 * d), atol=1e-6)
    np.testing.assert_allclose(second, (f(x + d) - 2 * f(x) + f(x - d)) / d**2, atol=1e-5)


def test_initial_weights_are_uniform_within_the_fan_in() -> None:
    network = MLP(25, (400,), 1, "relu", True)
    params = networks.init(network, jax.random.key(0))
    W = np.asarray(params["layer0.W"])
    assert np.max(np.abs(W)) <= 1 / 5
    assert abs(np.std(W) * 5 - 1 / np.sqrt(3)) < 0.01
    assert np.max(np.abs(params["layer1.W"])) <= 1 / 20


@pytest.mark.parametrize("network", [MLP(25, (40, 3), 2), Recurrent("lstm", 6, (5,), 2)])
def test_every_parameter_is_drawn_with_a_key_of_its_own(network: networks.Network) -> None:
    key, specs = jax.random.key(3), network.specs()
    found = networks.init(network, key)
    for own, (name, spec) in zip(jax.random.split(key, len(specs)), specs.items(), strict=True):
        drawn = jax.random.uniform(own, spec.shape, minval=-1.0, maxval=1.0)
        np.testing.assert_array_equal(found[name], drawn / np.sqrt(spec.fan_in))


def test_lstm_matrices_are_separate() -> None:
    names = list(networks.matrices(Recurrent("lstm", 3, (4,), 1).specs()))
    gates = [f"lstm0.W_{s}{g}" for s in "ih" for g in "ifgo"]
    assert names == [*gates, "out.W"]


def test_live_follows_signal_through_an_mlp() -> None:
    network = MLP(3, (3, 2), 1, "tanh", True)
    masks = {
        # regressor 0 -> neuron 0; regressor 1 -> neuron 1; neuron 2 reads nothing
        "layer0.W": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]], bool),
        # neuron 0 -> unit 0; neuron 1 -> unit 1; unit 1 is not read by the output
        "layer1.W": np.array([[1, 0, 1], [0, 1, 0]], bool),
        "layer2.W": np.array([[1, 0]], bool),
    }
    live = network.live(masks)
    assert live.regressors.tolist() == [True, False, False]
    assert [n.tolist() for n in live.neurons] == [[True, False, False], [True, False]]


def test_a_direct_path_keeps_regressors_alive_but_no_neurons() -> None:
    network = MLP(4, (2,), 2, "tanh", True, skip=True)
    masks = {
        "layer0.W": np.array([[1, 0, 0, 0], [0, 1, 0, 0]], bool),
        "layer1.W": np.array([[1, 0], [0, 0]], bool),  # nobody reads neuron 1
        "skip.W": np.array([[0, 0, 0, 0], [0, 0, 1, 0]], bool),
    }
    live = network.live(masks)
    assert live.regressors.tolist() == [True, False, True, False]
    assert live.neurons[0].tolist() == [True, False]
    batch = network.live({n: np.stack([m, np.zeros_like(m)]) for n, m in masks.items()})
    assert batch.regressors.tolist() == [[True, False, True, False], [False] * 4]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_a_compact_net_with_a_direct_path_computes_the_same(activation: str, bias: bool) -> None:
    """Dead units in the middle, one of them constant; a regressor only the path reads."""
    network = MLP(5, (4, 3), 2, activation, bias, skip=True)
    p = {k: np.array(v) for k, v in params_for(network).items()}
    p["layer0.W"][1] = 0  # constant
    p["layer1.W"][:, 2] = 0  # read by nobody
    p["layer2.W"][:, 1] = 0
    p["layer0.W"][:, [2, 3]] = 0
    p["skip.W"][:, [0, 3]] = 0  # regressor 3 is read by nobody, 2 by the path alone
    p["skip.W"][0, 4] = 0
    live = network.live({n: v != 0 for n, v in p.items() if n.endswith("W")})
    assert live.regressors.tolist() == [True, True, True, False, True]
    small, weights = network.compact(p, live)
    assert (small.n_in, small.hidden, small.skip) == (4, (2, 2), True)
    assert {n: w.shape for n, w in weights.items()} == {
        n: spec.shape for n, spec in small.specs().items()
    }
    z = np.asarray(windows_for(network, T=6).z[0])
    whole = network.apply({n: jnp.asarray(v) for n, v in p.items()}, jnp.asarray(z))
    part = small.apply(
        {n: jnp.asarray(v) for n, v in weights.items()}, jnp.asarray(z[:, live.regressors])
    )
    np.testing.assert_allclose(part, whole, rtol=1e-12, atol=1e-13)


def test_only_the_direct_path_is_left() -> None:
    network = MLP(3, (4,), 1, "sigmoid", True, skip=True)
    p = {k: np.array(v) for k, v in params_for(network).items()}
    p["layer0.W"][:] = 0
    p["skip.W"][0, 1] = 0
    live = network.live({n: v != 0 for n, v in p.items() if n.endswith("W")})
    small, weights = network.compact(p, live)
    assert (small.n_in, small.hidden) == (2, (0,))
    z = np.asarray(windows_for(network, T=5).z[0])
    constant = p["layer1.b"] + p["layer1.W"] @ (1 / (1 + np.exp(-p["layer0.b"])))
    expected = z[:, [0, 2]] @ p["skip.W"][:, [0, 2]].T + constant
    found = small.apply(
        {n: jnp.asarray(v) for n, v in weights.items()}, jnp.asarray(z[:, live.regressors])
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_last_layer_of_a_posterior_is_all_the_output_is_linear_in() -> None:
    record = small_record(40)
    regressors = all_terms(record, 1, 1)
    network = MLP(3, (2,), 1, "tanh", True, skip=True)
    weights = {n: np.array(v) for n, v in params_for(network).items()}
    widths = {n: np.ones(v.shape) for n, v in weights.items() if n.endswith("W")}
    scaling = fit_scaling([record], "standardize")
    model = Model(network, regressors, scaling, weights, 1, record.sampling_time, widths)
    rows = fit_posterior(model, record, "last-layer").table()
    assert {row.name.split("[")[0] for row in rows} == {"layer1.W", "layer1.b", "skip.W"}


def test_live_follows_signal_through_an_lstm() -> None:
    network = Recurrent("lstm", 2, (3,), 1, bias=False)
    zero = np.zeros((3, 2), bool), np.zeros((3, 3), bool)
    masks = {f"lstm0.W_i{g}": zero[0].copy() for g in "ifgo"}
    masks |= {f"lstm0.W_h{g}": zero[1].copy() for g in "ifgo"}
    masks["out.W"] = np.array([[1, 0, 0]], bool)
    masks["lstm0.W_ig"][1, 0] = True  # regressor 0 drives unit 1
    masks["lstm0.W_hg"][0, 1] = True  # unit 1 drives unit 0, which is the output
    masks["lstm0.W_ii"][2, 1] = True  # unit 2 is gated by regressor 1 but never driven
    live = network.live(masks)
    assert live.regressors.tolist() == [True, False]
    assert live.neurons[0].tolist() == [True, True, False]


def test_a_perceptron_without_regressors_is_its_constant() -> None:
    network = MLP(0, (2,), 1)
    params = networks.init(network, jax.random.key(0))
    hidden = np.maximum(np.asarray(params["layer0.b"]), 0)
    constant = np.asarray(params["layer1.W"]) @ hidden + np.asarray(params["layer1.b"])
    for shape in ((3, 4, 0), (0,)):
        found = network.apply(params, jnp.zeros(shape))
        np.testing.assert_allclose(found, np.broadcast_to(constant, (*shape[:-1], 1)), rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("hidden", "activation", "skip"),
    [((4, 3), "identity", False), ((4,), "identity", True), ((0,), "tanh", True)],
)
def test_a_linear_perceptron_is_a_matrix_and_a_constant(
    hidden: tuple[int, ...], activation: str, skip: bool, bias: bool
) -> None:
    network = networks.MLP(5, hidden, 2, activation, bias, skip)
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=spec.shape) for name, spec in network.specs().items()}
    assert network.linear
    W, c = network.matrix(params)
    z = rng.normal(size=(7, 5))
    with jax.enable_x64(True):
        found = network.apply(jax.device_put(params), jnp.asarray(z))
    np.testing.assert_allclose(found, z @ W.T + c, atol=1e-12)
    both = network.matrix({name: np.stack([v, 2 * v]) for name, v in params.items()})
    np.testing.assert_allclose(both[0][0], W, atol=1e-12)
    np.testing.assert_allclose(both[1][0], c, atol=1e-12)
    assert not networks.MLP(5, (4,), 2, "tanh").linear
