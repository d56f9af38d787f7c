"""Predictive distributions to first order in weights and noise: one pass, no sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from scipy.stats import norm

from occamid.assessment.run import Run
from occamid.bands.mixture import WIDEST, Feedback, Mixture, together, weighted_median
from occamid.data.windows import Terms, Windows, roomy
from occamid.networks import Network, joined, parted
from occamid.networks.flat import unflatten
from occamid.networks.simulate import read, scan_first
from occamid.training.programs import kept
from occamid.training.wide import again, widen

Array = np.ndarray
ROWS = 1024  # rows are rounded up to powers of two from here on; a run ends after its own,
FEW = 64, 2  # directions to halves between them: a program is dearer to compile than to run
ORIGINS = 64  # of predictions several steps ahead that run together


def linearised(
    network: Network,
    terms: Terms,
    mixture: Mixture,
    data: Windows,
    *,
    forced: int,
    horizon: int | None,
    feedback: Feedback,
    levels: tuple[float, ...],
    doubt: Float[Array, "ny d"] | None = None,
) -> Run:
    """The mixture's moments to first order in weights and noise, in one pass; no sampling.

    Free run after ``forced`` rows, or ``horizon`` steps ahead.  ``doubt`` is D where the known
    outputs are not measured but guessed, all of them too high or too low together by
    ``N(0, D Dᵀ)``; it counts as epistemic.  The centre is the weighted median
    of the members' runs; quantiles are those of the Gaussian around it with the variance of
    all members :func:`~occamid.bands.mixture.together`.
    """
    factor = mixture.factor
    if factor.ndim == 2:
        factor = factor[:, :, None] * np.eye(factor.shape[1])
    doubt = np.zeros((mixture.noise_std.shape[1], 0)) if doubt is None else doubt
    room = roomy(factor.shape[2] + doubt.shape[1], *FEW) - factor.shape[2]
    factor = np.pad(factor, ((0, 0), (0, 0), (0, room)))
    count, rows, wide = len(factor), data.y.shape[1], widen(network, terms)
    own = (wide.spread(mixture.mean), wide.spread(factor, axis=1), mixture.noise_std)
    members = jax.device_put(tuple(x[again(count)] for x in own))
    experiment = jax.tree.map(lambda x: x[0], wide.windows(data, roomy(rows, ROWS, 1)))
    if horizon == 1:  # a run on measured outputs throughout
        horizon, forced = None, rows
    place = (wide.network, wide.terms, feedback, horizon)
    found = _linearised(*place, members, experiment, forced, rows, doubt)
    runs, epistemic, aleatoric = (np.asarray(part)[:count, :rows] for part in found)
    return _mixed(runs, epistemic, aleatoric, mixture, levels)


def _mixed(
    runs: Float[Array, "K T ny"],
    epistemic: Float[Array, "K T ny"],
    aleatoric: Float[Array, "K T ny"],
    mixture: Mixture,
    levels: tuple[float, ...],
) -> Run:
    """Moments of the mixture around its centre.

    A member whose run leaves the range counts as standing at its edge, one whose band is wider
    than the range as being as wide: what diverges widens the band and is told.
    """
    far, widest = WIDEST * mixture.spread, (WIDEST * mixture.spread) ** 2
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.nan_to_num(runs - mixture.centre, nan=np.inf)
        sane = (aleatoric >= 0) & (epistemic + aleatoric < widest)  # rounding may make it negative
        wide = ~(np.isfinite(epistemic) & sane)
        gone = float(mixture.weights[np.any((np.abs(away) > far) | wide, axis=(1, 2))].sum())
        runs = mixture.centre + np.clip(away, -far, far)
        epistemic = np.where(wide, widest, epistemic)
        aleatoric = np.where(aleatoric >= 0, np.minimum(aleatoric, widest), widest)
    centre = weighted_median(runs, mixture.weights)
    inner, noise = together(mixture.weights, runs - centre, epistemic + aleatoric, aleatoric)
    std = np.sqrt(inner + noise)
    quantiles = centre + norm.ppf(levels)[:, None, None] * std
    return Run(centre, 0, std, np.sqrt(inner), np.sqrt(noise), levels, quantiles, gone)


class _Linear(NamedTuple):
    """State, its sensitivity to what is not known, its covariance under fed-back noise.

    Not known are the whitened weights and, where the start is a guess, that.  ``carried`` is what
    neither weights nor noise move: the gain of a filter.
    """

    x: Float[jax.Array, " n"]
    S: Float[jax.Array, "n r"]
    C: Float[jax.Array, "n n"]
    carried: Any = ()


@kept((0, 1, 2, 3))
def _linearised(
    network: Network,
    terms: Terms,
    feedback: Feedback,
    horizon: int | None,
    members: tuple[jax.Array, jax.Array, jax.Array],
    experiment: Windows,
    forced: int,
    count: int,
    doubt: Float[jax.Array, "ny d"],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Predictions, epistemic and aleatoric variances of every member, (K, T, ny) each.

    Only the first ``count`` rows are filled.
    """
    T = experiment.y.shape[0]
    inputs = experiment.z[:, : len(terms.inputs)]

    def member(own: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        mean, factor, noise_std = own
        params = unflatten(network, mean)

        def begin(w: jax.Array) -> jax.Array:
            return ravel_pytree(parted(network.initial_state(unflatten(network, w)))[0])[0]

        first, carried = parted(network.initial_state(params))
        x0, restore = ravel_pytree((first, experiment.history))
        r = factor.shape[1]
        given = jnp.zeros((noise_std.size, r), x0.dtype).at[:, r - doubt.shape[1] :].set(doubt)
        step = _linear_step(network, terms, feedback, own, given, restore)
        register = jnp.tile(given, (terms.output_lag, 1))
        doubtful = (jax.jacrev(begin)(mean) @ factor).astype(x0.dtype)
        S = jnp.concatenate([doubtful, register])
        start = _Linear(x0, S, jnp.zeros((x0.size, x0.size), x0.dtype), carried)
        if horizon is None:
            flags = jnp.arange(T)[:, None] < forced
            return scan_first(step, start, (inputs, experiment.y, flags), count)
        return _ahead(step, start, inputs, experiment.y, horizon, count)

    return jax.lax.map(member, members)


def _ahead(
    step: Callable[[_Linear, Any], tuple[_Linear, Any]],
    start: _Linear,
    inputs: Float[jax.Array, "T nu"],
    y: Float[jax.Array, "T ny"],
    horizon: int,
    count: int,
) -> Any:
    """What a step says of every row from ``horizon`` rows before, or from the first row.

    Blocks of origins follow each other, so that few sensitivities are kept at a time.
    """
    T, steps = len(y), jnp.arange(horizon)

    def teach(carried: _Linear, now: Any) -> tuple[_Linear, _Linear]:
        return step(carried, (*now, True))[0], carried

    def path(at: _Linear, origin: jax.Array) -> Any:
        rows = jnp.minimum(origin + steps, T - 1)
        now = inputs[rows], y[rows], jnp.zeros((horizon, 1), bool)
        return jax.lax.scan(step, at, now)[1]

    def block(k: jax.Array, so_far: tuple[_Linear, Any]) -> tuple[_Linear, Any]:
        first = k * ORIGINS
        known = tuple(jax.lax.dynamic_slice_in_dim(x, first, ORIGINS) for x in (inputs, y))
        after, origins = jax.lax.scan(teach, so_far[0], known)
        paths = jax.vmap(path)(origins, first + jnp.arange(ORIGINS))

        def put(whole: jax.Array, new: jax.Array) -> jax.Array:
            head = jnp.where(k == 0, new[0], whole[:horizon])  # too early for an origin of its own
            at = first + horizon - 1
            return jax.lax.dynamic_update_slice_in_dim(
                whole.at[:horizon].set(head), new[:, -1], at, 0
            )

        return after, jax.tree.map(put, so_far[1], paths)

    shapes = jax.eval_shape(path, start, jnp.asarray(0))
    blank = jax.tree.map(lambda v: jnp.zeros((T + horizon, *v.shape[1:]), v.dtype), shapes)
    blocks = -(-count // ORIGINS)
    return jax.tree.map(lambda v: v[:T], jax.lax.fori_loop(0, blocks, block, (start, blank))[1])


def _linear_step(
    network: Network,
    terms: Terms,
    feedback: Feedback,
    own: tuple[Float[jax.Array, " P"], Float[jax.Array, "P r"], Float[jax.Array, " ny"]],
    given: Float[jax.Array, "ny r"],
    restore: Callable[[jax.Array], Any],
) -> Callable[[_Linear, Any], tuple[_Linear, tuple[jax.Array, jax.Array, jax.Array]]]:
    """One step of ``x' = f(x, w, e)``: ``S' = f_x S + f_w F`` and ``C' = f_x C f_xᵀ + f_e Q f_eᵀ``.

    The state x is the hidden states, then the shift register.  Only hidden states and output are
    differentiated; of the register it is known that it shifts.  ``own`` is a member's mean, factor
    and noise, ``given`` the sensitivity of known outputs: zero where they are measured.
    """
    mean, factor, noise_std = own
    ny = noise_std.size
    fed = noise_std if feedback == "process" else jnp.zeros_like(noise_std)

    def outputs(
        x: jax.Array, w: jax.Array, carried: Any, u_part: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        state, register = restore(x)
        z = jnp.concatenate([u_part, read(register, terms)])
        state, y = network.step(unflatten(network, w), joined(state, carried), z)
        moving, carried = parted(state)
        out = jnp.concatenate([ravel_pytree(moving)[0].astype(x.dtype), y])
        return out, (out, carried)

    def step(carried: _Linear, now: Any) -> Any:
        u_part, measured, forced = now
        x, S, C, gain = carried
        slopes = jax.jacrev(outputs, argnums=(0, 1), has_aux=True)
        (J, D), (out, gain) = slopes(x, mean, gain, u_part)
        S_out, JC = J @ S + D @ factor, J @ C
        V = JC @ J.T
        h, y = slice(0, out.size - ny), slice(out.size - ny, None)  # hidden states and output
        found = (out[y], jnp.sum(S_out[y] ** 2, axis=1), jnp.diag(V)[y] + noise_std**2)
        if terms.output_lag == 0:
            return _Linear(out[h], S_out[h], V[h, h], gain), found
        free = jnp.where(forced, 0.0, 1.0).astype(x.dtype)  # noise is not fed back there
        old = slice(out.size, None)  # the register without its oldest outputs
        after = _Linear(
            jnp.concatenate([out[h], x[old], jnp.where(forced, measured, out[y])]),
            jnp.concatenate([S_out[h], S[old], jnp.where(forced, given, S_out[y])]),
            jnp.block(
                [
                    [V[h, h], JC[h, old], free * V[h, y]],
                    [JC[h, old].T, C[old, old], free * JC[y, old].T],
                    [free * V[y, h], free * JC[y, old], free * (V[y, y] + jnp.diag(fed**2))],
                ]
            ),
            gain,
        )
        return after, found

    return step
