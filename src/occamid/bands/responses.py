"""Step response, frequency response and static gain with bands: :mod:`occamid.bands.linear`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Inexact

from occamid.bands.ensemble import Ensemble
from occamid.bands.linear import Band, Slopes, _inputs, _slopes, _spread, operating_point
from occamid.data.windows import Terms
from occamid.errors import DataError
from occamid.networks import Network, unobserved
from occamid.networks.algebra import solve
from occamid.networks.flat import size
from occamid.training.programs import kept

Array = np.ndarray
FREQUENCIES = 80


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses of a mixture around an operating point, in the user's units, with bands.

    Attributes:
        u0: inputs of the operating point.
        time: of the step response, in seconds.
        step: change of each output after a unit step of each input.
        frequencies: in Hz, up to half the sampling rate.
        magnitude: of the frequency response, in decibels.
        gain: what a lasting unit change of each input does.
        left_out: share of the members without an operating point, or unstable there.
    """

    u0: Float[Array, " nu"]
    time: Float[Array, " n"]
    step: Band
    frequencies: Float[Array, " f"]
    magnitude: Band
    gain: Band
    left_out: float


class _Curves(NamedTuple):
    step: jax.Array
    magnitude: jax.Array
    gain: jax.Array


def responses(
    ensemble: Ensemble,
    u0: Float[Array, " nu"] | None = None,
    samples: int = 100,
) -> Responses:
    """Responses around the operating point of constant inputs ``u0`` (their mean if none)."""
    like = ensemble.members.like
    u0, s = _inputs(like, u0), like.scaling
    half = 0.5 / like.sampling_time
    frequencies = np.geomspace(half / 1000, half, FREQUENCIES)
    angles = 2 * np.pi * frequencies * like.sampling_time
    found, shares = _members(ensemble, u0, (samples, angles))
    unit = s.y_scale[:, None] / s.u_scale
    step, gain = (_pool([f[k] for f in found], shares, unit) for k in (0, 2))
    magnitude = _pool([f[1] for f in found], shares, np.ones_like(unit))
    return Responses(
        u0=u0,
        time=np.arange(samples) * like.sampling_time,
        step=step,
        frequencies=frequencies,
        magnitude=Band(magnitude.mean + 20 * np.log10(unit), magnitude.std),
        gain=gain,
        left_out=float(1.0 - shares.sum()),
    )


def static_curve(
    ensemble: Ensemble, channel: int, values: Float[Array, " n"], u0: Array | None = None
) -> Band:
    """Outputs at rest over values of one input, the others at ``u0``: mean and std, (n, ny).

    Where no member has an operating point, the curve is NaN.
    """
    like = ensemble.members.like
    base, ny = _inputs(like, u0), len(like.terms.output_names)
    means, stds = [], []
    for value in values:
        at = np.array(base)
        at[channel] = value
        try:
            found, shares = _members(ensemble, at, None)
        except DataError:
            means.append(np.full(ny, np.nan))
            stds.append(np.full(ny, np.nan))
            continue
        curve = _pool([f[0] for f in found], shares, like.scaling.y_scale)
        means.append(curve.mean + like.scaling.y_offset)
        stds.append(curve.std)
    return Band(np.array(means), np.array(stds))


def _members(
    ensemble: Ensemble,
    u0: Array,
    wanted: tuple[int, Float[Array, " f"]] | None,
) -> tuple[list[tuple[tuple[Array, Array], ...]], Float[Array, " k"]]:
    """Curves and variances of the members that have an operating point, and their shares.

    ``wanted`` are the samples and angles of the responses, for which a member must be stable;
    without them only the outputs at rest are found.
    """
    like, m = ensemble.members.like, ensemble.mixture
    network, r = unobserved(like.network, like.terms)
    used = slice(0, size(network))
    v = (u0 - like.scaling.u_offset) / like.scaling.u_scale
    found, shares = [], []
    with jax.enable_x64(True):
        for w, F, share in zip(m.mean[:, used], m.factor[:, used], m.weights, strict=True):
            try:
                rest = jnp.asarray(operating_point(network, r, w, v))
            except DataError:
                continue
            factor = jnp.asarray(np.diag(F) if F.ndim == 1 else F)
            spread = _spread(like, u0)
            place = (jnp.asarray(w), factor, rest, spread)
            if wanted is None:
                pairs = zip(*_at_rest(network, r, *place), strict=True)
            else:
                radius, *both = _with_band(network, r, wanted[0], *place, jnp.asarray(wanted[1]))
                if not float(radius) < 1.0:
                    continue
                pairs = zip(*both, strict=True)
            found.append(tuple((np.asarray(a), np.asarray(b)) for a, b in pairs))
            shares.append(share)
    if not found:
        raise DataError(
            "no member of the ensemble is stable at an operating point of these inputs; choose "
            "other inputs."
        )
    return found, np.array(shares)


@kept((0, 1, 2))
def _with_band(
    network: Network,
    r: Terms,
    samples: int,
    w: jax.Array,
    factor: Float[jax.Array, "P r"],
    rest: jax.Array,
    inputs: jax.Array,
    angles: jax.Array,
) -> tuple[jax.Array, _Curves, _Curves]:
    """Largest pole, curves, and their variances ``‖∂r/∂w F‖²``."""

    def curves(x: jax.Array) -> _Curves:
        s = _slopes(network, r, x, rest, inputs)
        return _Curves(_step_response(r, s, samples), _magnitude(r, s, angles), _gain(r, s))

    radius = _radius(r, _slopes(network, r, w, rest, inputs))
    return radius, curves(w), _variances(curves, w, factor)


@kept((0, 1))
def _at_rest(
    network: Network,
    r: Terms,
    w: jax.Array,
    factor: Float[jax.Array, "P r"],
    rest: jax.Array,
    inputs: jax.Array,
) -> tuple[tuple[jax.Array], tuple[jax.Array]]:
    """Outputs at rest, and their variances."""

    def outputs(x: jax.Array) -> tuple[jax.Array]:
        return (_slopes(network, r, x, rest, inputs).rest[-len(r.output_names) :],)

    return outputs(w), _variances(outputs, w, factor)


def _variances(curves: Callable[[jax.Array], Any], w: jax.Array, factor: jax.Array) -> Any:
    """``‖∂r/∂w F‖²`` of every curve, 32 columns of F together."""
    along = lambda f: jax.jvp(curves, (w,), (f,))[1]  # noqa: E731
    moved = jax.lax.map(along, factor.T, batch_size=32)
    return jax.tree.map(lambda x: jnp.sum(x**2, axis=0), moved)


def _sums(
    terms: tuple[tuple[int, int], ...], columns: jax.Array, n: int, z: jax.Array
) -> jax.Array:
    """``Σ_l columns_l z^(−l)`` by channel: (o, n)."""
    channels, lags = np.array(terms, dtype=int).reshape(-1, 2).T
    return (columns * z ** (-lags.astype(float))) @ np.eye(n)[channels]


def _transfer(r: Terms, s: Slopes, z: jax.Array) -> Inexact[jax.Array, "ny nu"]:
    """``y/u`` at z: hidden states and outputs solve one small linear system."""
    ny, nh = len(r.output_names), s.h.shape[1]
    by_y = _sums(r.outputs, s.y, ny, z)
    by_u = _sums(r.inputs, s.u, len(r.input_names), z)
    left = jnp.concatenate([z * jnp.eye(nh, nh + ny), jnp.eye(ny, nh + ny, nh)])
    system = left - jnp.concatenate([s.h.astype(by_y.dtype), by_y], axis=1)
    return solve(system, by_u)[nh:]


def _gain(r: Terms, s: Slopes) -> jax.Array:
    return _transfer(r, s, jnp.asarray(1.0))


def _magnitude(r: Terms, s: Slopes, angles: Float[jax.Array, " f"]) -> jax.Array:
    """``20 log₁₀ |H(e^{iω})|``, (f, ny, nu)."""
    H = jax.vmap(lambda a: _transfer(r, s, jnp.exp(1j * a)))(angles)
    return 10 * jnp.log10(H.real**2 + H.imag**2 + 1e-30)


def _step_response(r: Terms, s: Slopes, samples: int) -> Float[jax.Array, "n ny nu"]:
    """The linear recursion after a unit step of each input at time 0."""
    ny, nu, nh = len(r.output_names), len(r.input_names), s.h.shape[1]
    length = max(r.output_lag, 1)
    out_channels, out_lags = np.array(r.outputs, dtype=int).reshape(-1, 2).T
    in_channels, in_lags = np.array(r.inputs, dtype=int).reshape(-1, 2).T

    def step(carried: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[tuple, jax.Array]:
        h, past = carried  # (nh, nu), (length, ny, nu), newest first
        u = (t >= in_lags)[:, None] * jnp.eye(nu)[in_channels]
        both = s.h @ h + s.u @ u + s.y @ past[out_lags - 1, out_channels]
        return (both[:nh], jnp.concatenate([both[None, nh:], past[:-1]])), both[nh:]

    start = (jnp.zeros((nh, nu)), jnp.zeros((length, ny, nu)))
    return jax.lax.scan(step, start, jnp.arange(samples))[1]


def _radius(r: Terms, s: Slopes) -> jax.Array:
    """Largest pole by the growth of the recursion from a random start: ``‖x(t)‖^(1/t)``."""
    ny, nh = len(r.output_names), s.h.shape[1]
    length = max(r.output_lag, 1)
    channels, lags = np.array(r.outputs, dtype=int).reshape(-1, 2).T
    rng = np.random.default_rng(0)
    steps = 2000

    def step(carried: tuple, _: None) -> tuple[tuple, None]:
        h, past, size = carried
        both = s.h @ h + s.y @ past[lags - 1, channels]
        h, past = both[:nh], jnp.concatenate([both[None, nh:], past[:-1]])
        norm = jnp.sqrt(jnp.sum(h**2) + jnp.sum(past**2)) + 1e-300
        return (h / norm, past / norm, size + jnp.log(norm)), None

    start = (jnp.asarray(rng.normal(size=nh)), jnp.asarray(rng.normal(size=(length, ny))), 0.0)
    growth = jax.lax.scan(step, start, None, length=steps)[0][2]
    return jnp.exp(growth / steps)


def _pool(
    found: list[tuple[Array, Array]], shares: Float[Array, " k"], unit: Float[Array, ...]
) -> Band:
    """Mean of the members; variance within and between them."""
    weights = shares / shares.sum()
    curves = np.stack([curve for curve, _ in found])
    mean = np.tensordot(weights, curves, axes=1)
    inside = np.tensordot(weights, np.stack([variance for _, variance in found]), axes=1)
    between = np.tensordot(weights, (curves - mean) ** 2, axes=1)
    return Band(mean * unit, np.sqrt(inside + between) * unit)
