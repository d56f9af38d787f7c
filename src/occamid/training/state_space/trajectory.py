"""Free runs of a state-space network, many pieces of time at once.

Records are cut into segments of equal length that run in lockstep, each from a guess of its first
state.  Where a segment ends and the next begins there is a gap; Newton's method closes all gaps
together.  With ``e_k`` the end of segment k started at ``s_k`` and ``Φ_k = ∂e_k/∂s_k``::

    s'_(k+1) = e_k + Φ_k (s'_k − s_k),      s'_k = x₀ at the first segment of a record,

a linear recursion over the segments: a scan on a CPU, an associative scan where there are many
processors.  One segment a record is the plain scan; segments of one row are Newton's method on the
whole trajectory.  Near its end the last ``Φ`` is good enough: the same recursion is then a chord
method, whose passes cost no derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

TOLERANCE = 1e-9  # the largest change of a state, in standard deviations, that ends Newton's loop
PASSES, CHORDS = 30, 8  # at most; the first from METHOD section 9
NEAR = 1e-5  # the change of a Newton pass, which squares, after which chords do


class Sizes(NamedTuple):
    """Numbers of states, inputs, outputs, units and records."""

    nx: int
    nu: int
    ny: int
    m: int
    records: int

    @property
    def features(self) -> int:
        """Entries of ``φ = [x u 1 h]``."""
        return self.nx + self.nu + 1 + self.m

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Shapes of ``[A B d F]``, ``[W V b]``, ``[C D c G]`` and the first states."""
        read = self.nx + self.nu + 1
        return (
            (self.nx, self.features),
            (self.m, read),
            (self.ny, self.features),
            (self.records, self.nx),
        )

    @property
    def total(self) -> int:
        """How many parameters there are."""
        return sum(rows * columns for rows, columns in self.parts)


class Weights(NamedTuple):
    """``x⁺ = state φ``, ``y = out φ``, ``h = tanh(unit ψ)``, ``φ = [ψ h]``, ``ψ = [x u 1]``."""

    state: Float[Any, "*batch nx phi"]
    unit: Float[Any, "*batch m psi"]
    out: Float[Any, "*batch ny phi"]
    first: Float[Any, "*batch R nx"]


def split(sizes: Sizes, w: Float[Any, "*batch P"]) -> Weights:
    """The matrices of a flat vector, NumPy's (views of it) or JAX's; leading axes stay."""
    found, offset = [], 0
    for shape in sizes.parts:
        count = shape[0] * shape[1]
        found.append(w[..., offset : offset + count].reshape(*w.shape[:-1], *shape))
        offset += count
    return Weights(*found)


class Segments(NamedTuple):
    """Records in segments of equal length, time first; padding has weight zero."""

    u: Float[Any, "L K nu"]
    y: Float[Any, "L K ny"]
    weight: Float[Any, "L K"]
    record: Int[Any, " K"]
    first: Bool[Any, " K"]


class Run(NamedTuple):
    """A trajectory: the state before every row, and how it was found."""

    x: Float[Array, "L K nx"]
    y: Float[Array, "L K ny"]
    starts: Float[Array, "K nx"]
    change: Float[Array, ""]  # of the states in the last pass
    passes: Int[Array, ""]


def arrange(records: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], length: int) -> Segments:
    """Cut records (inputs, outputs, weight of each row) into segments of ``length`` rows."""
    pieces: list[list[np.ndarray]] = [[], [], []]
    numbers, firsts = [], []
    for number, record in enumerate(records):
        count = -(-len(record[0]) // length)
        for into, values in zip(pieces, record, strict=True):
            filled = np.zeros((count * length, *values.shape[1:]))
            filled[: len(values)] = values
            into.append(filled.reshape(count, length, *values.shape[1:]))
        numbers += [number] * count
        firsts += [True] + [False] * (count - 1)
    u, y, weight = (np.moveaxis(np.concatenate(p), 0, 1) for p in pieces)
    return Segments(u, y, weight, np.array(numbers), np.array(firsts))


def hidden(sizes: Sizes, w: Weights, x: Array, u: Array) -> Float[Array, "... m"]:
    """``tanh(W x + V u + b)``."""
    W, V, b = jnp.split(w.unit, [sizes.nx, sizes.nx + sizes.nu], axis=1)
    return jnp.tanh(x @ W.T + u @ V.T + b[:, 0])


def features(sizes: Sizes, w: Weights, x: Array, u: Array) -> Float[Array, "... phi"]:
    """``φ = [x u 1 h]``."""
    h = hidden(sizes, w, x, u)
    return jnp.concatenate([x, u, jnp.ones_like(x[..., :1]), h], axis=-1)


def lockstep(
    sizes: Sizes, w: Weights, u: Float[Array, "L K nu"], starts: Float[Array, "K nx"], slopes: bool
) -> tuple[Float[Array, "L K nx"], Float[Array, "K nx"], Float[Array, "K nx nx"] | None]:
    """All segments from their starts: states, ends and, if asked for, ``Φ``."""
    nx, read = sizes.nx, sizes.nx + sizes.nu
    F, W = w.state[:, read + 1 :], w.unit[:, :nx]
    both = jnp.concatenate([w.state[:, : read + 1], w.unit])  # [A B d; W V b]
    given = u @ both[:, nx:read].T + both[:, read]

    def step(carried: tuple[Array, Array | None], now: Array) -> tuple[tuple, Array]:
        x, phi = carried
        linear, a = jnp.split(x @ both[:, :nx].T + now, [nx], axis=1)
        h = jnp.tanh(a)
        if phi is not None:
            through = (1 - h**2)[:, :, None] * (W @ phi)
            phi = w.state[:, :nx] @ phi + F @ through
        return (linear + h @ F.T, phi), x

    eye = jnp.broadcast_to(jnp.eye(nx, dtype=starts.dtype), (len(starts), nx, nx))
    (ends, phi), x = jax.lax.scan(step, (starts, eye if slopes else None), given)
    return x, ends, phi


def recursion(
    Q: Float[Array, "N n n"], c: Float[Array, "N n p"], start: Float[Array, "n p"], parallel: bool
) -> tuple[Float[Array, "N n p"], Float[Array, "n p"]]:
    """``s_(k+1) = Q_k s_k + c_k``: every ``s_k`` before its element, and the last one."""
    if not parallel:

        def step(s: Array, element: tuple[Array, Array]) -> tuple[Array, Array]:
            return element[0] @ s + element[1], s

        last, before = jax.lax.scan(step, start, (Q, c))
        return before, last

    def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return b[0] @ a[0], b[0] @ a[1] + b[1]

    c = c.at[0].add(Q[0] @ start)
    after = jax.lax.associative_scan(join, (Q, c))[1]
    return jnp.concatenate([start[None], after[:-1]]), after[-1]


def follow(
    data: Segments, first: Array, starts: Array, ends: Array, phi: Array, parallel: bool
) -> Float[Array, "K nx"]:
    """The starts that close all gaps to first order (the module's equation)."""
    new = jnp.roll(data.first, -1)[:, None]  # the next segment begins a record
    c = ends - jnp.einsum("kij,kj->ki", phi, starts)
    c = jnp.where(new, first[jnp.roll(data.record, -1)], c)
    Q = jnp.where(new[:, :, None], 0.0, phi)
    return recursion(Q, c[:, :, None], first[data.record[0]][:, None], parallel)[0][:, :, 0]


def free_run(
    sizes: Sizes, w: Weights, data: Segments, starts: Float[Any, "K nx"], parallel: bool
) -> Run:
    """The trajectory from guessed starts: Newton passes, then chords with the last one's ``Φ``."""
    inside = jnp.where(data.first[:, None], w.first[data.record], starts)
    blank = jnp.zeros((*data.u.shape[:2], sizes.nx), starts.dtype)
    run = Run(blank, data.y, inside, jnp.asarray(jnp.inf), jnp.asarray(0))
    phi = jnp.zeros((*inside.shape, sizes.nx), starts.dtype)

    def closed(run: Run, ends: Array, phi: Array) -> tuple[Array, Array]:
        """Starts without gaps, and how far that is from where they were."""
        starts = follow(data, w.first, run.starts, ends, phi, parallel)
        change = jnp.max(jnp.abs(starts - run.starts))
        return starts, jnp.where(jnp.all(jnp.isfinite(ends)), change, jnp.inf)

    def newton(so_far: tuple[Run, Array]) -> tuple[Run, Array]:
        x, ends, phi = lockstep(sizes, w, data.u, so_far[0].starts, True)
        assert phi is not None
        return Run(x, data.y, *closed(so_far[0], ends, phi), so_far[0].passes + 1), phi

    def chord(run: Run) -> Run:
        x, ends, _ = lockstep(sizes, w, data.u, run.starts, False)
        return Run(x, data.y, *closed(run, ends, phi), run.passes + 1)

    def going(run: Run, near: float, most: Array | int) -> Array:
        trying = (run.passes == 0) | jnp.isfinite(run.change)
        return trying & (run.change > near) & (run.passes < most)

    run, phi = jax.lax.while_loop(lambda r: going(r[0], NEAR, PASSES), newton, (run, phi))
    most = run.passes + jnp.where(run.change <= NEAR, CHORDS, 0)
    run = jax.lax.while_loop(lambda r: going(r, TOLERANCE, most), chord, run)
    return run._replace(y=features(sizes, w, run.x, data.u) @ w.out.T)
