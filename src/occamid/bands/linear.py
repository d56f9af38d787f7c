"""Linear analysis around an operating point, with bands by the delta method.

One step of a model is ``(h⁺, y) = g(h, z_u, z_y)``: hidden states h, lagged inputs and lagged
outputs.  At an operating point ``(h, y) = g(h, u₀, y)`` its derivatives give a linear recursion

    ``h⁺ = H_h h + Σ_l H_u,l u(t−l) + Σ_l H_y,l y(t−l)``, and ``y`` likewise,

from which follow A, B, C, D (with the lags as states), step and frequency responses and the gain.
A response r of weights w with posterior covariance ``F Fᵀ`` has the variance ``‖∂r/∂w F‖²``; the
members of a mixture add the spread between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Complex, Float

from occamid.bands.ensemble import Ensemble
from occamid.data.windows import Terms
from occamid.errors import DataError, SettingsError
from occamid.networks import Network, unobserved
from occamid.networks.algebra import solve
from occamid.networks.flat import flatten, size, unflatten
from occamid.training.model import Model
from occamid.training.programs import kept

Array = np.ndarray
ITERATIONS, SETTLE = 50, 500  # Newton steps; samples of a run at rest where Newton alone fails
CLOSE = 1e-8  # largest mismatch of an operating point, scaled
NOTHING = 1e-6  # poles below are places of a pure delay


class Band(NamedTuple):
    """A curve and its standard deviation."""

    mean: Float[Array, ...]
    std: Float[Array, ...]


@dataclass(frozen=True, eq=False)
class Linear:
    """``x⁺ = A x + B (u − u₀)``, ``y = y₀ + C x + D (u − u₀)`` in the user's units."""

    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    C: Float[Array, "ny n"]
    D: Float[Array, "ny nu"]
    u0: Float[Array, " nu"]
    y0: Float[Array, " ny"]
    sampling_time: float
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @cached_property
    def poles(self) -> Complex[Array, " p"]:
        """Eigenvalues of A, the slowest first; those of pure delays (zero) are left out.

        The n-fold zero of a delay is found as a small ring: A without what only shifts has few.
        """
        found = np.linalg.eigvals(self._feedback()).astype(complex)
        found = found[np.abs(found) > NOTHING]
        return found[np.argsort(-np.abs(found), kind="stable")]

    def _feedback(self) -> Float[Array, "m m"]:
        """A without the registers of the inputs, which feed nothing back to themselves."""
        keep = np.ones(len(self.A), bool)
        while keep.any():  # a state that reads no kept state, or is read by none, has pole zero
            inner = self.A[np.ix_(keep, keep)]
            alive = np.any(inner, axis=0) & np.any(inner, axis=1)
            if alive.all():
                break
            keep[np.flatnonzero(keep)[~alive]] = False
        return self.A[np.ix_(keep, keep)]

    @property
    def stable(self) -> bool:
        """Whether all poles lie inside the unit circle."""
        return bool(np.all(np.abs(self.poles) < 1.0))

    @property
    def gain(self) -> Float[Array, "ny nu"]:
        """``D + C (I − A)⁻¹ B``, what a lasting change of an input does to the outputs."""
        return self.D + self.C @ np.linalg.solve(np.eye(len(self.A)) - self.A, self.B)

    @property
    def time_constants(self) -> Float[Array, " p"]:
        """``−T / ln|p|`` of every pole in seconds; infinite or negative where it is unstable."""
        with np.errstate(divide="ignore"):
            return -self.sampling_time / np.log(np.abs(self.poles))

    def to_control(self) -> Any:
        """The same as ``control.StateSpace`` of python-control."""
        try:
            control = import_module("control")
        except ImportError:
            raise SettingsError(
                "this needs the package control, which is not installed: "
                'pip install "occamid[export]".'
            ) from None
        return control.StateSpace(
            self.A,
            self.B,
            self.C,
            self.D,
            self.sampling_time,
            inputs=[f"u[{i}]" for i in range(len(self.u0))],
            outputs=[f"y[{i}]" for i in range(len(self.y0))],
            remove_useless_states=False,
        )


class Slopes(NamedTuple):
    """Derivatives of a step at an operating point, scaled; columns of lagged terms apart."""

    h: Float[jax.Array, "o nh"]  # rows: hidden states, then outputs
    u: Float[jax.Array, "o inputs"]
    y: Float[jax.Array, "o outputs"]
    rest: Float[jax.Array, " o"]  # hidden states and outputs at the operating point


def linearise(model: Model | Ensemble, u0: Float[Array, " nu"] | None = None) -> Linear:
    """The linear model around the operating point of constant inputs ``u0`` (their mean if none).

    Of an ensemble it is that of the member with the largest share, and among equals the one with
    most evidence; :func:`linearise_members` gives all of them.
    """
    if isinstance(model, Model):
        return _linearised(model, flatten(model.network, model.weights), u0)
    evidence = np.array([p.log_evidence for p in model.posteriors])
    best = int(np.lexsort((evidence, np.round(model.weights, 9)))[-1])
    return _linearised(model.members.like, model.members.weights[best], u0)


def linearise_members(
    ensemble: Ensemble, u0: Float[Array, " nu"] | None = None
) -> tuple[Linear, ...]:
    """The linear models of all members."""
    return tuple(_linearised(ensemble.members.like, w, u0) for w in ensemble.members.weights)


def _linearised(like: Model, weights: Float[Array, " P"], u0: Array | None) -> Linear:
    s = like.scaling
    network, r = unobserved(like.network, like.terms)
    weights = weights[: size(network)]
    u0 = _inputs(like, u0)
    with jax.enable_x64(True):
        rest = operating_point(network, r, weights, (u0 - s.u_offset) / s.u_scale)
        found = _slopes(network, r, jnp.asarray(weights), jnp.asarray(rest), _spread(like, u0))
    A, B, C, D = _matrices(r, *(np.asarray(part) for part in found[:3]))
    return Linear(
        A=A,
        B=B / s.u_scale,
        C=s.y_scale[:, None] * C,
        D=s.y_scale[:, None] * D / s.u_scale,
        u0=u0,
        y0=s.undo_y(np.asarray(found.rest)[len(rest) - len(r.output_names) :]),
        sampling_time=like.sampling_time,
        input_names=r.input_names,
        output_names=r.output_names,
    )


def _inputs(like: Model, u0: Array | None) -> Float[Array, " nu"]:
    """The inputs of the operating point, checked."""
    count = len(like.terms.input_names)
    found = like.scaling.u_mean if u0 is None else np.atleast_1d(np.asarray(u0, dtype=np.float64))
    if found.shape != (count,) or not np.isfinite(found).all():
        raise SettingsError(f"u0 has {found.size} numbers; the model has {count} inputs.")
    return np.asarray(found)


def _spread(like: Model, u0: Array) -> Float[jax.Array, " inputs"]:
    v = (u0 - like.scaling.u_offset) / like.scaling.u_scale
    channels = np.array([c for c, _ in like.terms.inputs], dtype=int)
    return jnp.asarray(v[channels])


def operating_point(
    network: Network, terms: Terms, weights: Float[Array, " P"], v: Float[Array, " nu"]
) -> Float[Array, " o"]:
    """Hidden states and outputs at rest, by Newton; scaled.

    Where Newton does not arrive from the mean of the outputs, it starts again from the end of a
    run with constant inputs.
    """
    inputs = jnp.asarray(v[np.array([c for c, _ in terms.inputs], dtype=int)])
    w = jnp.asarray(weights)
    places = _outputs(network, terms, w, None, inputs).size
    for start in (jnp.zeros(places), None):
        first = _settled(network, terms, w, inputs, places) if start is None else start
        found, miss = _newton(network, terms, w, inputs, first)
        if float(miss) < CLOSE:
            return np.asarray(found)
    raise DataError(
        "no operating point was found at these inputs: at rest the model has none, or it is too "
        "far away; choose other inputs."
    )


def _outputs(
    network: Network,
    terms: Terms,
    w: Float[jax.Array, " P"],
    rest: Float[jax.Array, " o"] | None,
    inputs: Float[jax.Array, " inputs"],
    outputs: Float[jax.Array, " outputs"] | None = None,
) -> Float[jax.Array, " o"]:
    """One step from a state at rest, or with ``outputs`` as the lagged outputs."""
    params = unflatten(network, w)
    h0, restore = ravel_pytree(network.initial_state(params))
    ny = len(terms.output_names)
    if rest is None:
        rest = jnp.zeros(h0.size + ny, w.dtype)
    channels = np.array([c for c, _ in terms.outputs], dtype=int)
    past = rest[h0.size :][channels] if outputs is None else outputs
    state = restore(rest[: h0.size].astype(h0.dtype))
    state, y = network.step(params, state, jnp.concatenate([inputs, past]))
    return jnp.concatenate([ravel_pytree(state)[0].astype(w.dtype), y])


@kept((0, 1, 4))
def _settled(
    network: Network, terms: Terms, w: jax.Array, inputs: jax.Array, size: int
) -> jax.Array:
    step = lambda _, s: jnp.clip(_outputs(network, terms, w, s, inputs), -1e3, 1e3)  # noqa: E731
    return jax.lax.fori_loop(0, SETTLE, step, jnp.zeros(size))


@kept((0, 1))
def _newton(
    network: Network, terms: Terms, w: jax.Array, inputs: jax.Array, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Newton's method on ``g(s) − s`` with step halving."""

    def mismatch(s: jax.Array) -> jax.Array:
        return _outputs(network, terms, w, s, inputs) - s

    def step(_: jax.Array, s: jax.Array) -> jax.Array:
        full = solve(jax.jacfwd(mismatch)(s), -mismatch(s))
        tries = s + full * 0.5 ** jnp.arange(8.0)[:, None]
        miss = jnp.nan_to_num(
            jnp.max(jnp.abs(jax.vmap(mismatch)(tries)), axis=1, initial=0.0), nan=jnp.inf
        )
        best = tries[jnp.argmin(miss)]
        return jnp.where(jnp.min(miss) < jnp.max(jnp.abs(mismatch(s))), best, s)

    found = jax.lax.fori_loop(0, ITERATIONS, step, start)
    return found, jnp.max(jnp.abs(mismatch(found)), initial=0.0)


@kept((0, 1))
def _slopes(
    network: Network,
    terms: Terms,
    w: Float[jax.Array, " P"],
    rest: Float[jax.Array, " o"],
    inputs: Float[jax.Array, " inputs"],
) -> Slopes:
    """Derivatives at the operating point; the point itself moves with the weights.

    One more Newton step, ``s − (g_s − I)⁻¹ (g(s) − s)``, changes nothing in value but carries the
    exact first derivative of the point with respect to the weights.
    """

    def at_rest(s: jax.Array) -> jax.Array:
        return _outputs(network, terms, w, s, inputs)

    fixed = jax.lax.stop_gradient(rest)
    J = jax.lax.stop_gradient(jax.jacfwd(at_rest)(fixed)) - jnp.eye(rest.size)
    s = fixed - solve(J, at_rest(fixed) - fixed)
    nh = rest.size - len(terms.output_names)
    channels = np.array([c for c, _ in terms.outputs], dtype=int)

    def parts(h: jax.Array, u: jax.Array, y: jax.Array) -> jax.Array:
        state = jnp.concatenate([h, s[nh:]])
        return _outputs(network, terms, w, state, u, y)

    h, u, y = jax.jacfwd(parts, argnums=(0, 1, 2))(s[:nh], inputs, s[nh:][channels])
    return Slopes(h, u, y, s)


def _matrices(r: Terms, by_h: Array, by_u: Array, by_y: Array) -> tuple[Array, Array, Array, Array]:
    """A, B, C, D with the state: past inputs, past outputs (newest first), hidden states."""
    nu, ny, nh = len(r.input_names), len(r.output_names), by_h.shape[1]
    lengths = [max((lag for c, lag in r.inputs if c == k), default=0) for k in range(nu)]
    lengths += [max((lag for c, lag in r.outputs if c == k), default=0) for k in range(ny)]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    n = int(starts[-1]) + nh
    rows, direct = np.zeros((nh + ny, n)), np.zeros((nh + ny, nu))
    for (c, lag), column in zip(r.inputs, by_u.T, strict=True):
        if lag:
            rows[:, starts[c] + lag - 1] += column
        else:
            direct[:, c] += column
    for (c, lag), column in zip(r.outputs, by_y.T, strict=True):
        rows[:, starts[nu + c] + lag - 1] += column
    rows[:, n - nh :] = by_h
    A, B = np.zeros((n, n)), np.zeros((n, nu))
    for k, (start, length) in enumerate(zip(starts, lengths, strict=False)):
        if not length:
            continue
        A[np.arange(start + 1, start + length), np.arange(start, start + length - 1)] = 1.0
        if k < nu:
            B[start, k] = 1.0
        else:
            A[start], B[start] = rows[nh + k - nu], direct[nh + k - nu]
    A[n - nh :], B[n - nh :] = rows[:nh], direct[:nh]
    return A, B, rows[nh:], direct[nh:]
