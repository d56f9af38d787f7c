"""One identification cycle (Algorithm 1) for one model: epochs, curvature, prior, pruning.

``init`` and ``cycle`` are pure functions of one model; :mod:`occamid.training.train` maps them
over the batch of restarts and λ values and owns the loop over cycles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float, Int

from occamid import networks
from occamid.data.windows import Terms, Windows, roomy
from occamid.networks import MLP, Groups, Network, Params
from occamid.networks.simulate import free_run
from occamid.training import evidence
from occamid.training.curvature import CURVATURES
from occamid.training.evidence import Prior


class Program(NamedTuple):
    """What is compiled in; hashable, so that equal programs share one compilation."""

    network: Network
    terms: Terms
    groups: Groups
    loss: str
    aggregation: str
    curvature: str
    curvature_count: str


class Schedule(NamedTuple):
    """Numbers that may change without compiling again."""

    epochs: Int[Array, ""]  # in each cycle
    total: Int[Array, ""]  # over all cycles, the length of the cosine
    learning_rate: Float[Array, ""]
    prune_psi: Float[Array, ""]
    prune_weight: Float[Array, ""]


class State(NamedTuple):
    """One model in training."""

    params: Params
    mask: dict[str, Bool[Array, "out in"]]
    prior: dict[str, Prior]
    adam: Any
    epoch: Int[Array, ""]
    variance: Float[Array, ""]
    lam: Float[Array, ""]


class Info(NamedTuple):
    """What one cycle leaves behind, in scaled units."""

    one_step_mse: Float[Array, " ny"]
    free_run_mse: Float[Array, " ny"]
    free_run_peak: Float[Array, " ny"]  # largest error
    log_evidence: Float[Array, ""]
    variance: Float[Array, ""]
    effective: Float[Array, ""]


def init(program: Program, key: Array, lam: Float[Array, ""]) -> State:
    """Random weights, unit prior, nothing pruned."""
    params = networks.init(program.network, key)
    return State(
        params=params,
        mask={name: jnp.ones(params[name].shape, bool) for name, _ in program.groups},
        prior={name: evidence.initial_prior(params[name], g) for name, g in program.groups},
        adam=optax.scale_by_adam().init(params),
        epoch=jnp.zeros((), int),
        variance=jnp.ones(()),
        lam=lam,
    )


def compress(network: Network, data: Windows, samples: int | None = None) -> Windows:
    """Fewer rows with the same energy, where the network allows it.

    A network without a state needs no order of the rows, so most of the padding can go.  An
    identity network without biases sees ``[Z Y]`` only through ``‖Z w − Y‖``, so the triangular
    factor of ``[Z Y]`` can stand for all samples: loss, gradient and curvature are the same, at
    nz + ny rows instead of T.  ``samples`` is how many rows to leave room for.
    """
    linear = isinstance(network, MLP) and network.activation == "identity" and not network.bias
    rows = int(np.prod(data.z.shape[:2]))
    nz, ny = data.z.shape[-1], data.y.shape[-1]
    if not linear or rows <= nz + ny:
        return _without_padding(network, data, samples)
    both = np.concatenate([np.asarray(data.z), np.asarray(data.y)], axis=-1, dtype=np.float64)
    both = both.reshape(rows, nz + ny) * np.asarray(data.valid).reshape(rows, 1)
    R = np.asarray(np.linalg.qr(both, mode="r"))[None]
    return data._replace(
        z=jax.device_put(np.asarray(R[..., :nz], data.z.dtype)),
        y=jax.device_put(np.asarray(R[..., nz:], data.y.dtype)),
        valid=jnp.ones((1, nz + ny, 1), data.valid.dtype),
    )


def _without_padding(network: Network, data: Windows, samples: int | None) -> Windows:
    """The same samples in one row of windows, where much of the batch is padding."""
    used = np.asarray(data.valid).reshape(-1) > 0
    rows = roomy(int(used.sum()) if samples is None else samples)
    if not isinstance(network, MLP) or rows > 0.9 * used.size:
        return data
    order = np.argsort(~used, kind="stable")[:rows]  # samples first, then some padding
    packed = (
        np.asarray(x).reshape(used.size, -1)[order][None] for x in (data.z, data.y, data.valid)
    )
    z, y, valid = jax.device_put(tuple(packed))
    return data._replace(z=z, y=y, valid=valid)


def squared_errors(network: Network, params: Params, data: Windows) -> Float[Array, " ny"]:
    """``Σ r²`` of the one-step predictions, per output."""
    residual = (network.apply(params, data.z) - data.y) * data.valid
    return jnp.sum(residual**2, axis=(0, 1))


def data_term(
    loss: str,
    energy: Float[Array, ""],
    count: Float[Array, ""],
    variance: Float[Array, ""],
) -> Float[Array, ""]:
    """``rmse`` or ``Σ r²/(2σ²)`` from ``energy = ½ Σ r²``."""
    if loss == "gaussian":
        return energy / variance
    return jnp.sqrt(2 * energy / count + jnp.finfo(energy.dtype).tiny)


def curvature_factor(
    loss: str,
    energy: Float[Array, ""],
    count: Float[Array, ""],
    variance: Float[Array, ""],
) -> Float[Array, ""]:
    """From the energy's Hessian to that of the loss: ``1/σ²``, or ``1/(T rmse)``.

    The second neglects the rank-one term of the root (METHOD section 3).
    """
    if loss == "gaussian":
        return 1.0 / variance
    return 1.0 / (count * data_term(loss, energy, count, variance))


def total_loss(program: Program, params: Params, state: State, data: Windows) -> Float[Array, ""]:
    """``data term + λ Σ ρ(ω, W)``, Eq. 23."""
    energy = 0.5 * jnp.sum(squared_errors(program.network, params, data))
    penalties = (
        evidence.penalty(params[name], state.prior[name].omega, g) for name, g in program.groups
    )
    fit = data_term(program.loss, energy, jnp.sum(data.residuals), state.variance)
    return fit + state.lam * sum(penalties, jnp.zeros(()))


def train(program: Program, schedule: Schedule, state: State, data: Windows) -> State:
    """E epochs of Adam with a cosine-annealed step; pruned weights stay at zero."""
    adam = optax.scale_by_adam()

    def masked(tree: Params) -> Params:
        return {
            n: jnp.where(state.mask[n], v, 0.0) if n in state.mask else v for n, v in tree.items()
        }

    def epoch(_: Array, carried: tuple[Params, Any, Array]) -> tuple[Params, Any, Array]:
        params, moments, done = carried
        gradient = masked(jax.grad(lambda p: total_loss(program, p, state, data))(params))
        direction, moments = adam.update(gradient, moments)
        rate = 0.5 * schedule.learning_rate * (1 + jnp.cos(jnp.pi * done / schedule.total))
        params = masked({n: params[n] - rate * direction[n] for n in params})
        return params, moments, done + 1

    params, moments, done = jax.lax.fori_loop(
        0, schedule.epochs, epoch, (state.params, state.adam, state.epoch)
    )
    return state._replace(params=params, adam=moments, epoch=done)


def cycle(
    program: Program, schedule: Schedule, state: State, data: Windows, experiments: Windows
) -> tuple[State, Info]:
    """Train, measure the curvature, update the prior, prune, simulate.

    ``data`` is what is trained on (perhaps compressed), ``experiments`` what is simulated.
    """
    state = train(program, schedule, state, data)
    params, count = state.params, jnp.sum(data.residuals)
    ones = jnp.ones(data.y.shape[-1], data.y.dtype)
    energy = 0.5 * jnp.sum(squared_errors(program.network, params, data))
    hessian = CURVATURES[program.curvature](program.network, params, data, ones)
    factor = curvature_factor(program.loss, energy, count, state.variance) / state.lam

    prior, mask = {}, {}
    for name, groups in program.groups:
        times = len(groups) if program.curvature_count == "per-group" else 1
        prior[name] = evidence.update_prior(
            params[name],
            state.prior[name],
            times * factor * hessian[name],
            groups,
            program.aggregation,
        )
        small = (evidence.combined_width(prior[name].psi) < schedule.prune_psi) | (
            jnp.abs(params[name]) < schedule.prune_weight
        )
        mask[name] = state.mask[name] & ~small
    params = {n: jnp.where(mask[n], v, 0.0) if n in mask else v for n, v in params.items()}

    errors = squared_errors(program.network, params, data)
    widths = {name: evidence.combined_width(p.psi) for name, p in prior.items()}
    energy = 0.5 * jnp.sum(errors)
    noise = evidence.estimate_noise(energy, count, hessian, widths, mask)
    run = jax.vmap(lambda e: free_run(program.network, program.terms, params, e, 0))(experiments)
    run = jnp.where(experiments.valid > 0, run, experiments.y)  # nothing of the padding counts
    miss = run - experiments.y
    samples = count / data.y.shape[-1]
    info = Info(
        one_step_mse=errors / samples,
        free_run_mse=jnp.sum(miss**2, axis=(0, 1)) / samples,
        free_run_peak=jnp.max(jnp.abs(miss), axis=(0, 1)),
        log_evidence=evidence.log_evidence(
            params, energy, count, hessian, widths, mask, noise.variance
        ),
        variance=noise.variance,
        effective=noise.effective,
    )
    return state._replace(params=params, mask=mask, prior=prior, variance=noise.variance), info
