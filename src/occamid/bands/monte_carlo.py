"""Predictive distributions by Monte Carlo over posterior samples (Eqs. 19–22).

A mixture of models is a stack of flat parameter vectors with a factor of each covariance.  Samples
run through time together; only their outputs of a block of rows are ever held, so the memory is
bounded in both samples and steps while quantiles stay exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.assessment.run import Run
from occamid.bands.mixture import WIDEST, Feedback, Mixture
from occamid.data.windows import Terms, Windows
from occamid.networks import Network
from occamid.networks.flat import unflatten
from occamid.networks.simulate import k_step, push, read
from occamid.training.cores import cores, on_cpu
from occamid.training.programs import kept

Array = np.ndarray
BLOCK = 128  # rows whose samples are held at a time


class Sampling(NamedTuple):
    """How to sample: how many, where the noise enters, which quantiles to keep."""

    samples: int
    feedback: Feedback
    levels: tuple[float, ...]
    seed: int
    memory_mb: float


def allocate(weights: Float[Array, " K"], samples: int) -> Int[Array, " S"]:
    """The member behind each sample, in proportion to the weights (largest remainders)."""
    exact = weights / np.sum(weights) * samples
    counts = np.floor(exact).astype(int)
    short = samples - counts.sum()
    counts[np.argsort(counts - exact)[:short]] += 1
    return np.repeat(np.arange(len(weights)), counts)


@kept()
def _draw(
    mean: jax.Array, factor: jax.Array, members: jax.Array, numbers: jax.Array, seed: jax.Array
) -> Float[jax.Array, "S P"]:
    """Weight samples; a sample depends on the seed and its number, not on the chunk it is in."""

    def one(member: jax.Array, number: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), number)
        F = factor[member]
        noise = jax.random.normal(key, F.shape[-1:], mean.dtype)
        return mean[member] + (F * noise if F.ndim == 1 else F @ noise)

    return jax.vmap(one)(members, numbers)


class _Carry(NamedTuple):
    """State of one sample: without noise, and with the noise it was fed."""

    clean: Any
    noisy: Any


@kept((0, 1, 2))
def _free_block(
    network: Network,
    terms: Terms,
    feedback: Feedback,
    flat: Float[jax.Array, "S P"],
    noise_std: Float[jax.Array, "S ny"],
    keys: jax.Array,
    carry: _Carry,
    rows: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[_Carry, Float[jax.Array, "B S ny"], Float[jax.Array, "B S ny"]]:
    """A block of rows of the free run of a chunk of samples."""

    def one(
        vector: jax.Array, std: jax.Array, key: jax.Array, carried: _Carry
    ) -> tuple[_Carry, tuple[jax.Array, jax.Array]]:
        params = unflatten(network, vector)

        def advance(at: Any, now: Any, e: jax.Array) -> tuple[Any, jax.Array]:
            (state, register), (u_part, measured, forced) = at, now
            z = jnp.concatenate([u_part, read(register, terms)])
            state, y = network.step(params, state, z)
            return (state, push(register, jnp.where(forced, measured, y + e))), y

        def step(c: _Carry, now: Any) -> tuple[_Carry, tuple[jax.Array, jax.Array]]:
            row, now = now[0], now[1:]
            e = std * jax.random.normal(jax.random.fold_in(key, row), std.shape, std.dtype)
            clean, y = advance(c.clean, now, jnp.zeros_like(e))
            if feedback == "none":
                return _Carry(clean, c.noisy), (y, y + e)
            noisy, y_noisy = advance(c.noisy, now, e)
            return _Carry(clean, noisy), (y, y_noisy + e)

        u_part, measured, forced = rows
        numbers = jnp.arange(u_part.shape[0])
        return jax.lax.scan(step, carried, (numbers, u_part, measured, forced))

    carry, (clean, noisy) = jax.vmap(one, out_axes=(0, 1))(flat, noise_std, keys, carry)
    return carry, clean, noisy


@kept((0, 1, 2, 3))
def _ahead_block(
    network: Network,
    terms: Terms,
    feedback: Feedback,
    horizon: int,
    flat: Float[jax.Array, "S P"],
    noise_std: Float[jax.Array, "S ny"],
    keys: jax.Array,
    carry: Any,
    block: Windows,
) -> tuple[Any, Float[jax.Array, "B S ny"], Float[jax.Array, "B S ny"]]:
    """``horizon``-step predictions of a block, without and with noise, and the states before it."""

    def one(vector: jax.Array, std: jax.Array, key: jax.Array, first: Any) -> Any:
        params = unflatten(network, vector)
        T, ny = block.y.shape
        e = std * jax.random.normal(key, (horizon + 1, T, ny), std.dtype)
        run = partial(k_step, network, terms, params, block, horizon, first=first)
        clean, origins = run()
        noisy = clean if feedback == "none" or horizon == 1 else run(noise=e[1:])[0]
        return origins, clean, noisy + e[0]

    return jax.vmap(one, out_axes=(0, 1, 1))(flat, noise_std, keys, carry)


def free_run_distribution(
    network: Network,
    terms: Terms,
    mixture: Mixture,
    data: Windows,
    forced: int,
    sampling: Sampling,
) -> Run:
    """Monte Carlo through the free run of one experiment; scaled units, rows of ``data``."""
    T = data.y.shape[1]

    def block(
        first: int, stop: int, chunk: _Chunk, carried: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        inputs = data.z[0, first:stop, : len(terms.inputs)]
        flags = jnp.arange(first, stop)[:, None] < forced
        keys = jax.vmap(lambda k: jax.random.fold_in(k, first))(chunk.keys)
        if carried is None:
            start = _start(network, data, chunk)
            carried = _Carry(start, start)
        rows = (inputs, data.y[0, first:stop], flags)
        return _free_block(
            network, terms, sampling.feedback, chunk.flat, chunk.noise_std, keys, carried, rows
        )

    spans = [(a, min(a + BLOCK, T)) for a in range(0, T, BLOCK)]
    return _collect(block, spans, mixture, sampling)


def ahead_distribution(
    network: Network,
    terms: Terms,
    mixture: Mixture,
    data: Windows,
    horizon: int,
    sampling: Sampling,
) -> Run:
    """Monte Carlo of ``horizon``-step predictions of one experiment."""
    T, overlap = data.y.shape[1], max(1, horizon - 1)  # one row at least hands on its state
    experiment = jax.tree.map(lambda x: x[0], data)

    def block(
        first: int, stop: int, chunk: _Chunk, carried: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        begin = max(0, first - overlap)  # origins before the block reach into it
        part = experiment._replace(z=experiment.z[begin:stop], y=experiment.y[begin:stop])
        keys = jax.vmap(lambda k: jax.random.fold_in(k, first))(chunk.keys)
        if carried is None:
            carried = _start(network, data, chunk)
        origins, clean, noisy = _ahead_block(
            network,
            terms,
            sampling.feedback,
            horizon,
            chunk.flat,
            chunk.noise_std,
            keys,
            carried,
            part,
        )
        following = max(0, stop - overlap) - begin  # where the next block begins
        at = min(following, stop - begin - 1)
        return (
            jax.tree.map(lambda x: x[:, at], origins),
            clean[first - begin :],
            noisy[first - begin :],
        )

    step = max(BLOCK, 2 * horizon)
    spans = [(a, min(a + step, T)) for a in range(0, T, step)]
    return _collect(block, spans, mixture, sampling)


class _Chunk(NamedTuple):
    """Samples that run together."""

    flat: Float[jax.Array, "S P"]
    noise_std: Float[jax.Array, "S ny"]
    keys: jax.Array


def _start(network: Network, data: Windows, chunk: _Chunk) -> Any:
    """The state and register before the first row of every sample."""
    states = jax.vmap(lambda w: network.initial_state(unflatten(network, w)))(chunk.flat)
    history = data.history[0]
    return states, jnp.broadcast_to(history, (len(chunk.flat), *history.shape))


def _collect(
    block: Callable[[int, int, _Chunk, Any], tuple[Any, jax.Array, jax.Array]],
    spans: list[tuple[int, int]],
    mixture: Mixture,
    sampling: Sampling,
) -> Run:
    """Run all chunks through all blocks of rows and reduce each block to moments and quantiles.

    Memory: two values per sample and row of a block, and per sample its weights and state.  If
    the weights of all samples do not fit the budget they are drawn again for every block.
    """
    P = mixture.mean.shape[1]
    samples, _, levels, seed, memory_mb = sampling
    workers = cores() if on_cpu() else 1
    chunk = max(1, min(math.ceil(samples / workers), int(memory_mb * 2**18 / (4 * P * workers))))
    members = allocate(mixture.weights, samples)
    keep = samples * P * 4 < memory_mb * 2**20 / 4

    def draw(k: int) -> _Chunk:
        numbers = np.arange(k, min(k + chunk, samples))
        own = members[numbers]
        root = jax.random.fold_in(jax.random.key(seed), 2**31 - 1)
        return _Chunk(
            _draw(means, factors, own, numbers, seed),
            jnp.asarray(mixture.noise_std[own], jnp.float32),
            jax.vmap(partial(jax.random.fold_in, root))(numbers),
        )

    means, factors = (jnp.asarray(x, jnp.float32) for x in (mixture.mean, mixture.factor))
    starts = range(0, samples, chunk)
    drawn: dict[int, _Chunk] = {k: draw(k) for k in starts} if keep else {}
    carried: dict[int, Any] = dict.fromkeys(starts)
    gone = np.zeros(samples, bool)
    parts = []
    with ThreadPoolExecutor(workers) as pool:
        for first, stop in spans:

            def run(k: int, first: int = first, stop: int = stop) -> tuple[Array, Array]:
                piece = drawn.get(k) or draw(k)
                carried[k], clean, noisy = block(first, stop, piece, carried[k])
                return np.asarray(clean), np.asarray(noisy)

            runs = list(pool.map(run, starts))
            clean, noisy = (
                _held(np.concatenate([r[j] for r in runs], axis=1), mixture, gone) for j in range(2)
            )
            parts.append(_moments(clean, noisy, levels))
    return _joined(parts, levels, float(np.mean(gone)))


def _joined(parts: Sequence[tuple[Array, ...]], levels: tuple[float, ...], diverged: float) -> Run:
    """The run of all blocks, from what :func:`_moments` made of each."""
    moments = [np.concatenate([p[j] for p in parts], axis=-2) for j in range(4)]
    mean, epistemic, total, quantiles = moments
    total = np.maximum(total, epistemic)  # sampling noise may reverse them where noise is nil
    return Run(
        mean=mean,
        n_init=0,
        std=total,
        epistemic_std=epistemic,
        aleatoric_std=np.sqrt(total**2 - epistemic**2),
        levels=levels,
        quantiles=quantiles,
        diverged=diverged,
    )


def _held(
    runs: Float[Array, "B S ny"], mixture: Mixture, gone: Bool[Array, " S"]
) -> Float[Array, "B S ny"]:
    """The samples held at the edges of the range; marks in ``gone`` which have left it.

    What is no number any more stands at the upper edge in every other sample, else at the lower.
    """
    far = WIDEST * mixture.spread
    away = runs.astype(np.float64) - mixture.centre
    lost = np.where(np.arange(len(gone)) % 2, -1.0, 1.0)[None, :, None] * far
    with np.errstate(invalid="ignore"):
        gone |= ~(np.abs(away) <= far).all(axis=(0, 2))
    held = np.where(np.isnan(away), lost, np.clip(away, -far, far))
    return mixture.centre + held


def _moments(
    clean: Float[Array, "B S ny"], noisy: Float[Array, "B S ny"], levels: tuple[float, ...]
) -> tuple[Array, Array, Array, Array]:
    """Mean and spread without noise, spread and quantiles with it."""
    return (
        clean.mean(axis=1),
        clean.std(axis=1),
        noisy.std(axis=1),
        np.quantile(noisy, levels, axis=1),
    )
