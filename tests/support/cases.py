"""Tiny networks and data for the oracle tests."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from occamid import networks
from occamid.data.windows import Windows
from occamid.networks import MLP, Network, Params, Recurrent


def windows_for(network: Network, T: int, R: int = 1, seed: int = 0) -> Windows:
    """Random regressors and targets; with several records the last one is shorter."""
    rng = np.random.default_rng(seed)
    valid = np.ones((R, T, 1))
    if R > 1:
        valid[-1, -2:] = 0
    return Windows(
        z=jnp.asarray(rng.normal(size=(R, T, network.n_in))),
        y=jnp.asarray(rng.normal(size=(R, T, network.n_out))),
        valid=jnp.asarray(valid),
        history=jnp.zeros((R, 0, network.n_out)),
        residuals=jnp.asarray(valid.sum(axis=(1, 2)) * network.n_out),
    )


def params_for(network: Network, seed: int = 0, scale: float = 1.5) -> Params:
    """Initial weights, larger than usual so that the nonlinearities bend."""
    return _params(network, seed, scale)


@partial(jax.jit, static_argnums=0)
def _params(network: Network, seed: int, scale: float) -> Params:
    return jax.tree.map(lambda x: scale * x, networks.init(network, jax.random.key(seed)))


ACTIVATIONS = ("identity", "relu", "tanh", "sigmoid", "silu", "softplus", "elu", "gelu")
ONE_HIDDEN = {
    f"mlp-{activation}{'-bias' if bias else ''}": MLP(4, (5,), 1, activation, bias)
    for activation in ACTIVATIONS
    for bias in (True, False)
}
DEEP = {
    "mlp-deep": MLP(4, (5, 3), 2, "tanh", True),
    "mlp-wide-output": MLP(3, (4,), 3, "silu", False),
}
RECURRENT = {
    "rnn": Recurrent("rnn", 3, (4,), 2, "tanh", True),
    "rnn-no-bias": Recurrent("rnn", 3, (4,), 1, "tanh", False),
    "lstm": Recurrent("lstm", 3, (4,), 2, bias=True),
    "lstm-no-bias": Recurrent("lstm", 3, (4,), 1, bias=False),
    "lstm-two-layers": Recurrent("lstm", 3, (4, 3), 1, bias=True),
    "rnn-two-layers": Recurrent("rnn", 3, (4, 2), 2, "silu", True),
}
ALL: dict[str, Network] = {**ONE_HIDDEN, **DEEP, **RECURRENT}
