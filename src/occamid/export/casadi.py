"""CasADi functions ``f(x, u) → x⁺, y`` with exact derivatives, for MPC and state estimation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble
from occamid.export import recursion
from occamid.export.description import Combine, Description, describe
from occamid.export.needs import load
from occamid.training.model import Model

Array = np.ndarray


class Symbols:
    """The target whose vectors are columns of CasADi expressions."""

    def __init__(self) -> None:
        self.ca = load("casadi")

    def affine(
        self, parts: Sequence[tuple[Any, Float[Array, "n _"]]], bias: Float[Array, " n"]
    ) -> Any:
        """``Σ_k M_k s_k + b`` with sparse matrices: pruned weights are not there."""
        total = self.ca.DM(bias)
        for source, M in parts:
            total = total + self.ca.mtimes(self.ca.sparsify(self.ca.DM(M)), source)
        return total

    def activate(self, source: Any, function: str) -> Any:
        """``σ(s)``."""
        ca = self.ca
        half = lambda x: 0.5 * (1 + ca.tanh(0.5 * x))  # noqa: E731
        if function == "relu":
            return ca.fmax(source, 0)
        if function == "tanh":
            return ca.tanh(source)
        if function == "sigmoid":
            return half(source)
        if function == "silu":
            return source * half(source)
        if function == "softplus":
            return ca.fmax(source, 0) + ca.log1p(ca.exp(-ca.fabs(source)))
        if function == "elu":
            return ca.if_else(source > 0, source, ca.expm1(ca.fmin(source, 0)))
        inner = np.sqrt(2 / np.pi) * (source + 0.044715 * source**3)
        return 0.5 * source * (1 + ca.tanh(inner))

    def products(self, pairs: Sequence[tuple[Any, Any]]) -> Any:
        """``Σ_k a_k ⊙ b_k``."""
        total = pairs[0][0] * pairs[0][1]
        for a, b in pairs[1:]:
            total = total + a * b
        return total

    def pick(self, parts: Sequence[tuple[Any, Sequence[int]]]) -> Any:
        """Entries of several vectors, one after the other."""
        found = [v[list(at)] for v, at in parts if len(at)]
        return self.ca.vertcat(*found) if found else self.ca.SX(0, 1)

    def scaled(self, value: Any, offset: Array, scale: Array) -> Any:
        """``(value − offset) / scale``."""
        return (value - self.ca.DM(offset)) / self.ca.DM(scale)

    def unscaled(self, value: Any, offset: Array, scale: Array) -> Any:
        """``value · scale + offset``."""
        return value * self.ca.DM(scale) + self.ca.DM(offset)

    def centre(self, values: Sequence[Any], shares: Array, combine: Combine) -> Any:
        """Weighted mean, or median: a member counts where half of the shares lie below it.

        With ``b_i`` the share below member i (ties in order), the lower end has
        ``b_i < ½ ≤ b_i + s_i`` and the upper end ``b_i ≤ ½ < b_i + s_i``.
        """
        ca = self.ca
        if combine == "mean":
            return sum(
                (s * v for s, v in zip(shares[1:], values[1:], strict=True)), shares[0] * values[0]
            )
        total = 0
        for i, value in enumerate(values):
            below = 0
            for j, other in enumerate(values):
                if i != j:
                    lower = other <= value if j < i else other < value
                    below = below + shares[j] * lower
            low, high = 0.5 - 1e-12, 0.5 + 1e-12
            first = ca.logic_and(below < low, below + shares[i] >= low)
            last = ca.logic_and(below <= high, below + shares[i] > high)
            total = total + ca.if_else(first, 0.5 * value, 0) + ca.if_else(last, 0.5 * value, 0)
        return total


class Functions(NamedTuple):
    """The recursion as CasADi functions, and the state to begin with.

    ``step(x, u) → x⁺, y``, ``correct(x, u, y_measured) → x⁺, y``, ``fill(x, u, y_measured) → x⁺``.
    """

    step: Any
    correct: Any
    fill: Any
    description: Description

    def initial_state(self, y0: Float[Array, " ny"] | None = None) -> Float[Array, " nx"]:
        """Past outputs at ``y0``, past inputs at their mean."""
        return recursion.initial_state(self.description, y0)

    def warm_state(self, u: Float[Array, "n nu"], y: Float[Array, "m ny"]) -> Float[Array, " nx"]:
        """The state after a known beginning."""
        return recursion.warm_state(self.description, u, y)


def functions(model: Model | Ensemble | Description, combine: str = "median") -> Functions:
    """CasADi functions of a model.

    ``combine="mean"`` is smooth where the median of several members has kinks: better for an
    optimiser.
    """
    d, target = describe(model, combine), Symbols()
    ca = target.ca
    x, u, y = ca.SX.sym("x", d.size), ca.SX.sym("u", d.nu), ca.SX.sym("y_measured", d.ny)
    names = (["x", "u"], ["x_next", "y"])
    free = ca.Function("step", [x, u], list(recursion.step(d, target, x, u)), *names)
    corrected = ca.Function(
        "correct",
        [x, u, y],
        list(recursion.step(d, target, x, u, y)),
        ["x", "u", "y_measured"],
        names[1],
    )
    filled = ca.Function(
        "fill",
        [x, u, y],
        [recursion.fill(d, target, x, u, y)],
        ["x", "u", "y_measured"],
        ["x_next"],
    )
    return Functions(free, corrected, filled, d)


def files(d: Description, name: str = "model") -> dict[str, str]:
    """The functions serialised by CasADi: ``casadi.Function.load("step.casadi")`` reads them."""
    found = functions(d)
    about = {
        "name": name,
        "inputs": d.input_names,
        "outputs": d.output_names,
        "state": d.state_names(),
        "initial_state": recursion.initial_state(d).tolist(),
        "start": d.start,
        "sampling_time": d.sampling_time,
    }
    return {
        f"{f.name()}.casadi": f.serialize() for f in (found.step, found.correct, found.fill)
    } | {"model.json": json.dumps(about, indent=1) + "\n"}
