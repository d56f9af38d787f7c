"""The recursion around the networks, once for all targets that compute with values.

``x⁺, y = f(x, u)`` for a free run; the same with a measured output in the place of the model's own
(one step of correction); or only the registers filled, as before a run begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
from jaxtyping import Float

from occamid.bands.mixture import weighted_median
from occamid.export.description import Combine, Description, Member
from occamid.export.program import Target, run

Array = np.ndarray
V = TypeVar("V")


class Values(Target[V], Protocol[V]):
    """A target of :mod:`occamid.export.program` whose vectors can be picked from and joined."""

    def pick(self, parts: Sequence[tuple[V, Sequence[int]]]) -> V:
        """Entries of several vectors, one after the other."""

    def scaled(self, value: V, offset: Float[Array, " n"], scale: Float[Array, " n"]) -> V:
        """``(value − offset) / scale``."""

    def unscaled(self, value: V, offset: Float[Array, " n"], scale: Float[Array, " n"]) -> V:
        """``value · scale + offset``."""

    def centre(self, values: Sequence[V], shares: Float[Array, " K"], combine: Combine) -> V:
        """Weighted median or mean of the members' outputs."""


def step(d: Description, target: Values[V], x: V, u: V, measured: V | None = None) -> tuple[V, V]:
    """``x⁺, y = f(x, u)``, or with ``measured`` outputs fed back instead of the model's own."""
    s = d.scaling
    v = target.scaled(u, s.u_offset, s.u_scale)
    known = None if measured is None else target.scaled(measured, s.y_offset, s.y_scale)
    outputs, carried = [], []
    for k, member in enumerate(d.members):
        kept = {
            name: target.pick([(x, _range(d, "x", k, name=name))]) for name in member.step.carried
        }
        w, after = run(member.step, target, regressors(d, target, k, member, x, v), kept)
        outputs.append(w)
        carried.append(after)
    shares = np.array([member.share for member in d.members])
    y = target.unscaled(
        target.centre(outputs, shares, d.combine) if len(outputs) > 1 else outputs[0],
        s.y_offset,
        s.y_scale,
    )
    fed = outputs if known is None else [known] * len(outputs)
    return shift(d, target, x, v, fed, carried), y


def fill(d: Description, target: Values[V], x: V, u: V, measured: V) -> V:
    """Past inputs and outputs take up a sample; the networks do not run."""
    s = d.scaling
    v = target.scaled(u, s.u_offset, s.u_scale)
    known = target.scaled(measured, s.y_offset, s.y_scale)
    return shift(d, target, x, v, [known] * len(d.members), None)


def regressors(d: Description, target: Values[V], k: int, member: Member, x: V, v: V) -> V:
    """``z_k`` from the registers and, for lag 0, this sample's inputs."""
    parts: list[tuple[V, Sequence[int]]] = []
    for c, lag in member.inputs:
        parts.append((x, [d.place("u", -1, c).offset + lag - 1]) if lag else (v, [c]))
    for c, lag in member.outputs:
        parts.append((x, [d.place("y", k, c).offset + lag - 1]))
    return target.pick(parts)


def shift(
    d: Description,
    target: Values[V],
    x: V,
    v: V,
    fed: Sequence[V],
    carried: Sequence[Mapping[str, V]] | None,
) -> V:
    """The next state: registers move on by one place, what networks carry is replaced."""
    parts: list[tuple[V, Sequence[int]]] = []
    for r in d.registers:
        if r.kind == "x":
            stays = (x, range(r.offset, r.end))
            parts.append(stays if carried is None else (carried[r.member][r.name], range(r.length)))
            continue
        parts.append((v if r.kind == "u" else fed[r.member], [r.channel]))
        parts.append((x, range(r.offset, r.end - 1)))
    return target.pick(parts)


def _range(d: Description, kind: str, member: int, name: str) -> range:
    r = d.place(kind, member, name=name)
    return range(r.offset, r.end)


class Numbers:
    """The target that computes: plain NumPy, the reference for all others."""

    def affine(
        self, parts: Sequence[tuple[Array, Float[Array, "n _"]]], bias: Float[Array, " n"]
    ) -> Array:
        """``Σ_k M_k s_k + b``."""
        return sum((M @ s for s, M in parts), start=np.array(bias))

    def activate(self, source: Array, function: str) -> Array:
        """``σ(s)``."""
        return FUNCTIONS[function](source)

    def products(self, pairs: Sequence[tuple[Array, Array]]) -> Array:
        """``Σ_k a_k ⊙ b_k``."""
        return sum((a * b for a, b in pairs[1:]), start=pairs[0][0] * pairs[0][1])

    def pick(self, parts: Sequence[tuple[Array, Sequence[int]]]) -> Array:
        """Entries of several vectors, one after the other."""
        found = [np.asarray(v)[list(at)] for v, at in parts]
        return np.concatenate(found) if found else np.zeros(0)

    def scaled(self, value: Array, offset: Array, scale: Array) -> Array:
        """``(value − offset) / scale``."""
        return (np.asarray(value) - offset) / scale

    def unscaled(self, value: Array, offset: Array, scale: Array) -> Array:
        """``value · scale + offset``."""
        return value * scale + offset

    def centre(self, values: Sequence[Array], shares: Array, combine: Combine) -> Array:
        """Weighted median or mean of the members' outputs."""
        stacked = np.stack(values)
        return shares @ stacked if combine == "mean" else weighted_median(stacked, shares)


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def initial_state(d: Description, y0: Float[Array, " ny"] | None = None) -> Float[Array, " n"]:
    """Past outputs at ``y0`` (their mean if none is given), past inputs at their mean."""
    s = d.scaling
    w = Numbers().scaled(s.y_mean if y0 is None else y0, s.y_offset, s.y_scale)
    x = np.zeros(d.size)
    for r in d.registers:
        if r.kind == "u":
            x[r.offset : r.end] = s.u_centre[r.channel]
        elif r.kind == "y":
            x[r.offset : r.end] = w[r.channel]
        else:
            x[r.offset : r.end] = d.members[r.member].step.carried[r.name].initial
    return x


def warm_state(
    d: Description, u: Float[Array, "n nu"], y: Float[Array, "m ny"]
) -> Float[Array, " nx"]:
    """The state after a known beginning: filled for ``start`` samples, then corrected."""
    target, x = Numbers(), initial_state(d, y[0] if len(y) else None)
    for t in range(len(y)):
        if t < d.start:
            x = fill(d, target, x, u[t], y[t])
        else:
            x, _ = step(d, target, x, u[t], y[t])
    return x


def free_run(
    d: Description, u: Float[Array, "N nu"], y_init: Float[Array, "n ny"]
) -> Float[Array, "N ny"]:
    """The free run after known first outputs, by a plain loop."""
    x, target = warm_state(d, u, y_init), Numbers()
    found = [*y_init]
    for now in u[len(y_init) :]:
        x, y = step(d, target, x, now)
        found.append(y)
    return np.array(found)
