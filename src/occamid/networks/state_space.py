"""A state-space network: a linear path beside a layer of units, and Lemma 2 for it.

It is a recurrent network whose state has a linear path, so the paper's groups apply: a *state* is
a column of ``state.W_x``, ``unit.W_x`` and ``out.W_x`` (and a row of the ``state`` matrices), a
*unit* is a column of ``state.W_h`` and ``out.W_h``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from occamid.networks.base import Live, Masks, Params, Spec


@dataclass(frozen=True)
class StateSpace:
    """``x⁺ = A x + B u + F h + d``, ``y = C x + D u + G h + c``, ``h = tanh(W x + V u + b)``.

    The names of the parameters: ``A B F d`` are ``state.W_x state.W_u state.W_h state.b``,
    ``W V b`` are ``unit.W_x unit.W_u unit.b`` and ``C D G c`` are ``out.W_x out.W_u out.W_h
    out.b``.  Without units the network is linear.
    """

    n_in: int
    states: int
    units: int
    n_out: int
    bias: bool = True

    @property
    def hidden(self) -> tuple[int, ...]:
        """States and units."""
        return (self.states, self.units)

    def specs(self) -> dict[str, Spec]:
        """Row by row ``[A B F d]``, ``[W V b]`` and ``[C D G c]``."""
        linear = (("x", self.states), ("u", self.n_in))
        found: dict[str, Spec] = {}
        for part, rows, sources in (
            ("state", self.states, (*linear, ("h", self.units))),
            ("unit", self.units, linear),
            ("out", self.n_out, (*linear, ("h", self.units))),
        ):
            fan_in = sum(width for _, width in sources)
            for source, width in sources:
                found[f"{part}.W_{source}"] = Spec((rows, width), fan_in)
            if self.bias:
                found[f"{part}.b"] = Spec((rows,), fan_in)
        return found

    def apply(self, params: Params, z: Float[Array, "R T nz"]) -> Float[Array, "R T ny"]:
        """Outputs along sequences from a zero state."""

        def step(x: Array, z_t: Array) -> tuple[Array, Array]:
            return self.step(params, x, z_t)

        zeros = jnp.zeros((z.shape[0], self.states), params["state.W_x"].dtype)
        return jnp.swapaxes(jax.lax.scan(step, zeros, jnp.swapaxes(z, 0, 1))[1], 0, 1)

    def initial_state(self, params: Params) -> Float[Array, " nx"]:
        """Zeros; a fitted model brings a better one."""
        return jnp.zeros(self.states, params["state.W_x"].dtype)

    def step(
        self, params: Params, state: Float[Array, "... nx"], z: Float[Array, "... nz"]
    ) -> tuple[Float[Array, "... nx"], Float[Array, "... ny"]]:
        """One time step: the next state and this time's output."""
        h = jnp.tanh(self._affine(params, "unit", state, z))
        after = self._affine(params, "state", state, z) + h @ params["state.W_h"].T
        return after, self._affine(params, "out", state, z) + h @ params["out.W_h"].T

    def _affine(self, params: Params, part: str, x: Array, z: Array) -> Array:
        value = x @ params[f"{part}.W_x"].T + z @ params[f"{part}.W_u"].T
        return value + params[f"{part}.b"] if self.bias else value

    def sweep(
        self,
        params: Params,
        z: Float[Array, "R T nz"],
        gradient: Callable[[Float[Array, "R T ny"]], Float[Array, "R T ny"]],
        curvature: Float[Array, "R T ny"],
    ) -> Params:
        """Lemma 2 with a linear path, all pairs (t, j) in one scan from T down to 1.

        With ``H⁺`` and ``g⁺`` what arrives at ``x(t+1)``::

            H_h = (G²)ᵀ H_y + (F²)ᵀ H⁺,    H_a = h'² H_h + h'' g_h
            H_x = (C²)ᵀ H_y + (A²)ᵀ H⁺ + (W²)ᵀ H_a
            Hdiag([A B F]) += H⁺ ⊗ [x u h]²,   Hdiag([W V]) += H_a ⊗ [x u]²
        """
        z = jnp.swapaxes(z, 0, 1)
        zeros = jnp.zeros((z.shape[1], self.states), params["state.W_x"].dtype)

        def forward(x: Array, z_t: Array) -> tuple[Array, tuple[Array, Array]]:
            after, y = self.step(params, x, z_t)
            return after, (x, y)

        x, y = jax.lax.scan(forward, zeros, z)[1]
        h = jnp.tanh(self._affine(params, "unit", x, z))
        g_y = jnp.swapaxes(gradient(jnp.swapaxes(y, 0, 1)), 0, 1)
        h_y = jnp.swapaxes(curvature, 0, 1)

        def back(carried: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple, tuple]:
            (g_next, h_next), (g_out, h_out, h_t) = carried, now
            first, squared = 1 - h_t**2, {name: W**2 for name, W in params.items()}
            g_h = g_out @ params["out.W_h"] + g_next @ params["state.W_h"]
            h_h = h_out @ squared["out.W_h"] + h_next @ squared["state.W_h"]
            g_a, h_a = first * g_h, first**2 * h_h - 2 * h_t * first * g_h
            g_x = (
                g_out @ params["out.W_x"] + g_next @ params["state.W_x"] + g_a @ params["unit.W_x"]
            )
            h_x = h_out @ squared["out.W_x"] + h_next @ squared["state.W_x"]
            return (g_x, h_x + h_a @ squared["unit.W_x"]), (h_next, h_a)

        h_state, h_unit = jax.lax.scan(back, (zeros, zeros), (g_y, h_y, h), reverse=True)[1]
        sources, arriving = {"x": x, "u": z, "h": h}, {"state": h_state, "unit": h_unit, "out": h_y}
        diagonal: Params = {}
        for name in self.specs():
            part, kind = name.split(".")
            into = arriving[part]
            diagonal[name] = (
                jnp.einsum("tro->o", into)
                if kind == "b"
                else jnp.einsum("tro,tri->oi", into, sources[kind[2:]] ** 2)
            )
        return diagonal

    def live(self, masks: Masks) -> Live:
        """States and units that move and reach the output, and the regressors they read.

        A state with a bias may drift from zero by itself and counts as moving; a unit that reads
        nothing that moves is a constant.
        """
        moves_x, moves_h = self._moving(masks)
        x, h = np.any(masks["out.W_x"], axis=-2), np.any(masks["out.W_h"], axis=-2)
        for _ in range(self.states + 1):  # closure: what is needed needs what it reads
            x, h = x & moves_x, h & moves_h
            x = x | _read(masks["unit.W_x"], h) | _read(masks["state.W_x"], x)
            h = h | _read(masks["state.W_h"], x & moves_x)
        x, h = x & moves_x, h & moves_h
        u = _read(masks["state.W_u"], x) | _read(masks["unit.W_u"], h)
        return Live(u | np.any(masks["out.W_u"], axis=-2), (x, h))

    def _moving(self, masks: Masks) -> tuple[Bool[np.ndarray, "*b nx"], Bool[np.ndarray, "*b m"]]:
        x = np.any(masks["state.W_u"], axis=-1) | self.bias
        h = np.any(masks["unit.W_u"], axis=-1)
        for _ in range(self.states + 1):
            h = h | np.any(masks["unit.W_x"] & x[..., None, :], axis=-1)
            x = x | np.any(masks["state.W_x"] & x[..., None, :], axis=-1)
            x = x | np.any(masks["state.W_h"] & h[..., None, :], axis=-1)
        return x, h

    def select(self, tree: Mapping[str, np.ndarray], live: Live) -> dict[str, np.ndarray]:
        """Rows of live states and units, columns of what they can read."""
        x, h = live.neurons
        rows = {"state": x, "unit": h, "out": np.ones(self.n_out, bool)}
        columns = {"x": x, "u": live.regressors, "h": h}
        found = {}
        for name, value in tree.items():
            part, kind = name.split(".")
            keep = rows[part]
            found[name] = value[keep] if kind == "b" else value[np.ix_(keep, columns[kind[2:]])]
        return found

    def compact(
        self, params: dict[str, np.ndarray], live: Live
    ) -> tuple[StateSpace, dict[str, np.ndarray]]:
        """Drop what is not live; a constant unit's ``tanh(b)`` folds into the biases."""
        folded = dict(params)
        if self.bias:
            rest = np.where(live.neurons[1], 0.0, np.tanh(params["unit.b"]))
            for part in ("state", "out"):
                folded[f"{part}.b"] = params[f"{part}.b"] + params[f"{part}.W_h"] @ rest
        states, units = (int(np.sum(kept)) for kept in live.neurons)
        network = replace(self, n_in=int(np.sum(live.regressors)), states=states, units=units)
        return network, self.select(folded, live)


def _read(mask: Bool[np.ndarray, "*b out in"], needed: Bool[np.ndarray, "*b out"]) -> np.ndarray:
    """Columns that some needed row reads."""
    return np.any(mask & needed[..., :, None], axis=-2)
