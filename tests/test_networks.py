"""Networks: forward pass, gradient, single steps, what is live."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import networks
from occamid.networks import MLP, Recurrent
from occamid.networks.base import derivatives
from occamid.simulate import one_step
from tests import oracles
from tests.cases import ALL, RECURRENT, params_for, windows_for

pytestmark = pytest.mark.usefixtures("x64")


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


@pytest.mark.parametrize("name", ["rnn", "lstm", "rnn-no-bias", "lstm-no-bias"])
def test_recurrent_nets_equal_a_numpy_loop(name: str) -> None:
    network = RECURRENT[name]
    params, data = params_for(network), windows_for(network, T=7)
    p = {k: np.asarray(v) for k, v in params.items()}
    z = np.asarray(data.z[0])
    rnn = network.kind == "rnn"
    expected = oracles.rnn_forward(p, z)[-1] if rnn else oracles.lstm_forward(p, z)[-1]
    np.testing.assert_allclose(jax.jit(network.apply)(params, data.z)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["mlp-deep", *RECURRENT])
def test_sequence_equals_single_steps(name: str) -> None:
    network = ALL[name]
    params, data = params_for(network), windows_for(network, T=6, R=2)
    apply, steps = jax.jit(network.apply), jax.jit(jax.vmap(partial(one_step, network), (None, 0)))
    np.testing.assert_allclose(apply(params, data.z), steps(params, data.z), rtol=1e-12)


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
def test_derivatives_equal_finite_differences(name: str) -> None:
    f = networks.ACTIVATIONS[name]
    x = jnp.linspace(-2.05, 2.05, 12)
    first, second = jax.jit(partial(derivatives, f))(x)
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
