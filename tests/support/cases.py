"""Tiny networks and data for the oracle tests."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

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
    """Weights as training begins, but larger, so that the nonlinearities bend."""
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(scale * rng.uniform(-1, 1, spec.shape) / np.sqrt(spec.fan_in))
        for name, spec in network.specs().items()
    }


ACTIVATIONS = ("identity", "relu", "tanh", "sigmoid", "silu", "softplus", "elu", "gelu")
ONE_HIDDEN = {
    **{f"mlp-{activation}-bias": MLP(4, (5,), 1, activation, True) for activation in ACTIVATIONS},
    "mlp-relu": MLP(4, (5,), 1, "relu", False),
    "mlp-tanh": MLP(4, (5,), 1, "tanh", False),
}
DEEP = {
    "mlp-deep": MLP(4, (5, 3), 2, "tanh", True),
    "mlp-wide-output": MLP(3, (4,), 3, "silu", False),
}
RECURRENT = {
    "rnn-no-bias": Recurrent("rnn", 3, (4,), 1, "tanh", False),
    "lstm-no-bias": Recurrent("lstm", 3, (4,), 1, bias=False),
    "lstm-two-layers": Recurrent("lstm", 3, (4, 3), 2, bias=True),
    "rnn-two-layers": Recurrent("rnn", 3, (4, 2), 2, "silu", True),
}
ALL: dict[str, Network] = {**ONE_HIDDEN, **DEEP, **RECURRENT}
