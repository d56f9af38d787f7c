"""Gradient and Gauss-Newton matrix of a free run: sums over time, in blocks and in chunks.

The sensitivities ``S(t) = ∂x(t)/∂w`` obey ``S(t+1) = J(t) S(t) + ∂f/∂w``.  The last term has
structure: what a weight of ``[A B d F]`` does at time j is to add ``φ_k(j)`` to the state i, and
one of ``[W V b]`` adds ``F h'_k(j) ψ_l(j)``.  So within a block of b rows, with
``P_r(j) = ∂r/∂x(j+1)`` the response of a result r (a state at the block's end, or an output in it),

    ``∂r/∂[A B d F]_ik = Σ_j P_r(j)_i φ_k(j)``,
    ``∂r/∂[W V b]_kl  = Σ_j (P_r(j) F)_k h'_k(j) ψ_l(j)``,

products of small matrices for all blocks at once.  Only ``S`` at the edges of the blocks is a
recursion.  The gradient needs one more response, that of ``Σ r ŷ / σ²``; the Gauss-Newton matrix
may take every ``thin``-th row only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from occamid.training.state_space.trajectory import Segments, Sizes, Weights, features, recursion

BLOCK = 16  # rows of a block


class Sums(NamedTuple):
    """What one expansion leaves."""

    squares: Float[Any, " ny"]
    gradient: Float[Any, " P"]
    normal: Float[Any, "P P"]


class Blocks(NamedTuple):
    """Rows in order of time, block by block (and, in front, chunk by chunk)."""

    x: Float[Array, "*c N b nx"]
    u: Float[Array, "*c N b nu"]
    miss: Float[Array, "*c N b ny"]  # residuals, zero where the weight is
    scale: Float[Array, "*c N b ny"]  # sqrt(weight) / σ
    new: Float[Array, "*c N"]  # one where the next block begins a record
    record: Float[Array, "*c N R"]  # the record of the next block, one-hot


class Responses(NamedTuple):
    """``P``, its start ``Q = ∂r/∂x(0)``, of end states, thinned outputs and the gradient's row."""

    P: Float[Array, "b N r nx"]
    units: Float[Array, "b N r m"]
    Q: Float[Array, "N r nx"]


def sums(
    sizes: Sizes,
    w: Weights,
    data: Segments,
    x: Float[Array, "L K nx"],
    y: Float[Array, "L K ny"],
    variance: Float[Any, " ny"],
    thin: int,
    offset: Int[Array, ""] | int,
    chunks: int,
    parallel: bool,
) -> Sums:
    """Squares, ``Σ Jᵀ r / σ²`` and ``Σ Jᵀ J / σ²`` of the residuals ``r = ŷ − y``.

    Args:
        sizes: of the network.
        w: weights.
        data: records in segments whose length is a multiple of the rows of a block.
        x: the trajectory, state before every row.
        y: its outputs.
        variance: of each output's noise.
        thin: only every thin-th row enters ``JᵀJ``, which is scaled accordingly.
        offset: the first of these rows.
        chunks: into how many pieces time is cut; memory is that of one piece.
        parallel: whether recursions are associative scans.
    """
    blocks = _in_order(sizes, data, x, y, variance, chunks)

    def one(carried: tuple, chunk: Blocks) -> tuple[tuple, None]:
        S, gradient, normal = carried
        S, rows, g = _chunk(sizes, w, chunk, thin, offset, S, parallel)
        return (S, gradient + g, normal + rows.T @ rows), None

    width = sizes.parts[0][0] * sizes.parts[0][1] + sizes.parts[1][0] * sizes.parts[1][1]
    S = jnp.zeros((sizes.nx, width + sizes.records * sizes.nx), x.dtype)
    S = S.at[:, width:].set(_identity(sizes, jax.nn.one_hot(data.record[0], sizes.records)))
    zeros = jnp.zeros(sizes.total, x.dtype), jnp.zeros((sizes.total, sizes.total), x.dtype)
    (_, gradient, normal), _ = jax.lax.scan(one, (S, *zeros), blocks)
    squares = jnp.sum(data.weight[..., None] * (y - data.y) ** 2, axis=(0, 1))
    return Sums(squares, gradient, thin * normal)


def _in_order(
    sizes: Sizes, data: Segments, x: Array, y: Array, variance: Array, chunks: int
) -> Blocks:
    """Blocks in order of time, padded with blocks of weight zero to equal chunks."""
    (L, K), b = data.weight.shape, BLOCK
    count = K * (L // b)
    each = -(-count // chunks)

    def blocked(values: Array) -> Array:
        found = jnp.moveaxis(values, 1, 0).reshape(count, b, *values.shape[2:])
        return cut(found)

    def cut(values: Array) -> Array:
        padding = ((0, chunks * each - count), *((0, 0),) * (values.ndim - 1))
        return jnp.pad(values, padding).reshape(chunks, each, *values.shape[1:])

    scale = jnp.sqrt(data.weight)[..., None] / jnp.sqrt(variance)
    miss = (y - data.y) * scale
    opens = jnp.zeros((K, L // b)).at[:, 0].set(data.first).ravel()
    record = jax.nn.one_hot(jnp.repeat(data.record, L // b), sizes.records, dtype=x.dtype)
    return Blocks(
        blocked(x),
        blocked(data.u),
        blocked(miss),
        blocked(scale),
        cut(jnp.roll(opens, -1)),
        cut(jnp.roll(record, -1, axis=0)),
    )


def _identity(sizes: Sizes, record: Float[Array, "... R"]) -> Float[Array, "... nx Rnx"]:
    """``∂x/∂x₀`` at the first row of a record."""
    eye = jnp.eye(sizes.nx, dtype=record.dtype)
    found = jnp.einsum("...r,ij->...irj", record, eye)
    return found.reshape(*record.shape[:-1], sizes.nx, -1)


def _picked(values: Float[Array, "N b k"], thin: int, offset: Array | int) -> Float[Array, "N q k"]:
    """Every ``thin``-th row of the blocks."""
    return values.reshape(len(values), -1, thin, values.shape[-1])[:, :, offset]


def _chunk(
    sizes: Sizes,
    w: Weights,
    blocks: Blocks,
    thin: int,
    offset: Array | int,
    S: Array,
    parallel: bool,
) -> tuple[Array, Array, Array]:
    """One chunk: ``S`` behind it, rows of J, and its share of the gradient."""
    nx, ny = sizes.nx, sizes.ny
    phi = features(sizes, w, blocks.x, blocks.u)
    pick = jax.nn.one_hot(offset + thin * np.arange(BLOCK // thin), BLOCK, dtype=phi.dtype)
    found = _responses(sizes, w, blocks, phi[..., nx + sizes.nu + 1 :], pick)
    psi = phi[..., : nx + sizes.nu + 1]
    own = jnp.concatenate([_product(found.P, phi), _product(found.units, psi)], axis=-1)
    edge = jnp.zeros((*own.shape[:2], sizes.records * nx), own.dtype)
    own = jnp.concatenate([own, edge], axis=-1)
    new = blocks.new[:, None, None]
    start = (
        own[:, :nx].at[..., own.shape[-1] - edge.shape[-1] :].add(_identity(sizes, blocks.record))
    )
    kept = jnp.where(jnp.arange(own.shape[-1]) < own.shape[-1] - edge.shape[-1], 1 - new, new)
    Q = found.Q[:, :nx]
    before, S = recursion(Q * (1 - new), start * kept, S, parallel)
    rows = own[:, nx:] + found.Q[:, nx:] @ before
    direct = _picked(phi, thin, offset)[:, :, None, None] * jnp.eye(ny)[:, :, None]
    direct = direct * _picked(blocks.scale, thin, offset)[..., None, None]
    direct = direct.reshape(len(phi) * (BLOCK // thin) * ny, -1)
    gradient = jnp.sum(rows[:, -1], axis=0)
    by_out = jnp.einsum("njo,njo,njk->ok", blocks.scale, blocks.miss, phi).ravel()
    rows = _ordered(sizes, rows[:, :-1].reshape(len(direct), -1), direct)
    return S, rows, _ordered(sizes, gradient[None], by_out[None])[0]


def _ordered(sizes: Sizes, through: Array, direct: Array) -> Array:
    """Columns in the order of the flat weights: states, units, outputs, first states."""
    at = through.shape[1] - sizes.records * sizes.nx
    return jnp.concatenate([through[:, :at], direct, through[:, at:]], axis=1)


def _product(P: Float[Array, "b N r i"], phi: Float[Array, "N b k"]) -> Float[Array, "N r ik"]:
    """``Σ_j P_r(j)_i φ_k(j)``."""
    found = jnp.einsum("jnri,njk->nrik", P, phi)
    return found.reshape(*found.shape[:2], -1)


def _responses(sizes: Sizes, w: Weights, blocks: Blocks, h: Array, pick: Array) -> Responses:
    """``P_r(j−1) = P_r(j) J(j)``, backwards through all blocks together.

    An output's response begins at its own row with ``∂y/∂x``; through ``G`` it also reaches the
    units of that row.
    """
    nx, ny, read = sizes.nx, sizes.ny, sizes.nx + sizes.nu
    A, F, W = w.state[:, :nx], w.state[:, read + 1 :], w.unit[:, :nx]
    C, G = w.out[:, :nx], w.out[:, read + 1 :]

    def back(P: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        first, scale, miss, chosen = now  # h', scale and residual of this row, rows picked
        outs = jnp.einsum("q,no,op->nqop", chosen, scale, jnp.eye(ny))
        outs = outs.reshape(len(P), -1, ny)
        # which outputs of this row each result contains
        own = jnp.concatenate([jnp.zeros((len(P), nx, ny)), outs, (scale * miss)[:, None]], axis=1)
        units = (P @ F + own @ G) * first[:, None]
        return P @ A + own @ C + units @ W, (P, units)

    count = nx + pick.shape[0] * ny + 1
    start = jnp.zeros((len(h), count, nx), h.dtype).at[:, :nx].set(jnp.eye(nx))
    by_row = (jnp.moveaxis(v, 1, 0) for v in (1 - h**2, blocks.scale, blocks.miss))
    Q, (P, units) = jax.lax.scan(back, start, (*by_row, pick.T), reverse=True)
    return Responses(P, units, Q)
