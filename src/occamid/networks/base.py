"""What every network offers, and what all of them share.

Parameters are a flat dictionary: matrices (``layer0.W``, ``lstm0.W_hi``, ``out.W``) carry priors
and masks, biases (``layer0.b``) carry neither.  Everything per weight (curvature, masks, prior
widths) is a dictionary with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

Params = dict[str, Array]
Masks = Mapping[str, Bool[np.ndarray, "*batch out in"]]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
}


class Spec(NamedTuple):
    """Shape of a parameter and the fan-in that bounds its initial values."""

    shape: tuple[int, ...]
    fan_in: int


class Live(NamedTuple):
    """What still carries signal to the output: regressors, and neurons layer by layer."""

    regressors: Bool[np.ndarray, "*batch nz"]
    neurons: tuple[Bool[np.ndarray, "*batch units"], ...]


class Network(Protocol):
    """A family of maps from regressors to outputs; frozen and hashable, so it can be static."""

    @property
    def n_in(self) -> int:
        """Number of regressors."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of each hidden layer."""

    @property
    def n_out(self) -> int:
        """Number of outputs."""

    def specs(self) -> dict[str, Spec]:
        """Name, shape and fan-in of every parameter, in order."""

    def apply(self, params: Params, z: Float[Array, "R T nz"]) -> Float[Array, "R T ny"]:
        """Outputs along sequences, states starting at zero."""

    def initial_state(self, params: Params) -> Any:
        """The state before the first step of a simulation."""

    def step(
        self, params: Params, state: Any, z: Float[Array, " nz"]
    ) -> tuple[Any, Float[Array, " ny"]]:
        """One time step."""

    def sweep(
        self,
        params: Params,
        z: Float[Array, "R T nz"],
        gradient: Callable[[Float[Array, "R T ny"]], Float[Array, "R T ny"]],
        curvature: Float[Array, "R T ny"],
    ) -> Params:
        """The recursive diagonal of the Hessian (Lemmas 1 and 2), one backward sweep.

        ``gradient`` maps the outputs to the first derivative of the loss there; ``curvature`` is
        its second derivative per output.
        """

    def live(self, masks: Masks) -> Live:
        """What carries signal when the weights outside ``masks`` are zero (batch axes first)."""

    def select(self, tree: Mapping[str, np.ndarray], live: Live) -> dict[str, np.ndarray]:
        """The entries of parameter-shaped arrays that belong to what is live."""

    def compact(
        self, params: dict[str, np.ndarray], live: Live
    ) -> tuple[Network, dict[str, np.ndarray]]:
        """The smaller network without what is not live; it computes the same outputs."""


def init(network: Network, key: Array) -> Params:
    """Uniform in ±1/sqrt(fan-in), METHOD section 2.

    Each parameter has a key of its own; all are drawn by one program, as long as the largest of
    them, which compiles several times faster than one program each and gives the same numbers.
    """
    specs = network.specs()
    keys = jax.random.split(key, len(specs))
    sizes = {name: prod(spec.shape) for name, spec in specs.items()}
    most = max(sizes.values())
    drawn = jax.vmap(lambda k: jax.random.uniform(k, (most,), minval=-1.0, maxval=1.0))(keys)
    return {
        name: own[: sizes[name]].reshape(spec.shape) / np.sqrt(max(1, spec.fan_in))
        for own, (name, spec) in zip(drawn, specs.items(), strict=True)
    }


def is_matrix(name: str) -> bool:
    """Whether a parameter is a weight matrix (with prior and mask) and not a bias."""
    return name.rsplit(".", 1)[1].startswith("W")


def reads_regressors(name: str) -> bool:
    """Whether the columns of this matrix are regressors."""
    first = ("layer0.W", "skip.W", "lstm0.W_i", "rnn0.W_i", "state.W_u", "unit.W_u", "out.W_u")
    return name.startswith(first)


def matrices(params: Mapping[str, Any]) -> dict[str, Any]:
    """The weight matrices among the parameters."""
    return {name: value for name, value in params.items() if is_matrix(name)}


def derivatives(f: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """First and second derivative of an elementwise function."""
    ones = jnp.ones_like(x)

    def first(v: Array) -> Array:
        return jax.jvp(f, (v,), (ones,))[1]

    return jax.jvp(first, (x,), (ones,))
