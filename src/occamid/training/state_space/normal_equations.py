"""A state-space fit as a problem for Levenberg's method: compiled sums over the records' rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from occamid.training.cores import on_cpu
from occamid.training.programs import kept
from occamid.training.state_space.levenberg import Expansion
from occamid.training.state_space.sensitivity import BLOCK, Sums, sums
from occamid.training.state_space.trajectory import Run, Segments, Sizes, arrange, free_run, split

Array = np.ndarray
ACCEPTED = 1e-6  # a trajectory that moved more in its last pass is refused (METHOD section 9)
ROWS_PER_WEIGHT = 100  # rows of JᵀJ for every weight, beyond which rows are left out of it
THINNEST = 8  # at most every eighth row is used
TOGETHER = 300_000  # rows of fits that run in one program where there are many processors
SHORT, ROOM = 10_000, 8  # rows, up to which so many fits on a CPU run in one call
DIFFERENCE = 0.1  # share of a step over which its second derivative is taken (Transtrum 2012)
CACHE_MB = 16.0  # on a CPU a chunk of time stays in the cache (measured: three times faster)

Starts = Float[Array, "M K nx"]  # of the segments of every fit


class Way(NamedTuple):
    """What programs are compiled for: sizes, associative scans or not, fits at a time."""

    sizes: Sizes
    parallel: bool
    width: int


class FreeRuns:
    """Free runs over records in segments: a :class:`~.levenberg.Problem`.

    Args:
        sizes: of the network, with the number of records.
        records: inputs, outputs and weight of each row, in scaled units; weight 0 is not looked at.
        memory_mb: how much one expansion may hold; time is cut into chunks accordingly.
        parallel: associative scans, and several fits in one program; by default wherever the
            processor is not a CPU.
        lanes: how many fits there will be at most.
        seed: of the rows that are left out of ``JᵀJ``.
    """

    def __init__(
        self,
        sizes: Sizes,
        records: Sequence[tuple[Array, Array, Array]],
        *,
        memory_mb: float = 1024.0,
        parallel: bool | None = None,
        lanes: int = 1,
        seed: int = 0,
    ) -> None:
        rows = sum(len(u) for u, _, _ in records)
        self.parallel = not on_cpu() if parallel is None else parallel
        self.length = segment_length([len(u) for u, _, _ in records], self.parallel)
        self.sizes, self.memory_mb = sizes, memory_mb
        width = int(np.clip(TOGETHER // rows, 1, lanes)) if self.parallel else 1
        self.way = Way(sizes, self.parallel, width)
        self.room = ROOM if rows <= SHORT and not self.parallel else width
        self.data = jax.device_put(arrange(records, self.length))
        self.looked_at = float(sum(np.sum(weight) for _, _, weight in records))
        wanted = rows * sizes.ny / (ROWS_PER_WEIGHT * sizes.total)
        self.thin = int(2 ** np.floor(np.log2(np.clip(wanted, 1, THINNEST))))
        self._rng = np.random.default_rng(seed)

    @property
    def rows(self) -> Float[Array, " ny"]:
        """How many rows of each output are looked at."""
        return np.full(self.sizes.ny, self.looked_at)

    def carry(self, lanes: int) -> Starts:
        """Before the first run nothing is known about the starts."""
        return np.zeros((lanes, len(self.data.first), self.sizes.nx))

    def expand(
        self, w: Float[Array, "M P"], variance: Float[Array, "M ny"], carry: Starts, exact: bool
    ) -> Expansion:
        """Sums at ``w``, whose trajectory starts at ``carry``.

        ``exact`` takes every row of ``JᵀJ``: the mean over all ways to thin it.
        """
        offsets = range(self.thin) if exact else [int(self._rng.integers(self.thin))]
        pieces = self._chunks(self.thin)
        kept: list[Sums] = []
        for offset in offsets:
            program = partial(_expand, self.way, pieces, self.thin, self.data, offset)
            kept.append(self._by_lane(program, w, variance, carry))
        normal = np.mean([k.normal for k in kept], axis=0)
        first = kept[0]
        return Expansion(first.squares, first.gradient, normal)

    def trial(
        self, w: Float[Array, "M P"], carry: Starts, lanes: Bool[Array, " M"]
    ) -> tuple[Float[Array, "M ny"], Starts]:
        """Squares at ``w`` and where its segments start, for some of the fits."""
        squares, starts = np.full((len(w), self.sizes.ny), np.inf), np.array(carry)
        few = np.flatnonzero(lanes)

        def program(*args: Any) -> tuple[jax.Array, ...]:
            return _trial(self.way, self.data, *args)[:3]

        found, starts[few], change = self._by_lane(program, w[few], self.pick(carry, few))
        squares[few] = np.where(change[:, None] <= ACCEPTED, found, np.inf)
        return squares, starts

    def bend(
        self,
        w: Float[Array, "M P"],
        delta: Float[Array, "M P"],
        variance: Float[Array, "M ny"],
        carry: Starts,
        lanes: Bool[Array, " M"],
    ) -> Float[Array, "M P"]:
        """``Σ Jᵀ ŷ'' / σ²`` with ``ŷ''`` the second derivative of the outputs along ``delta``."""
        found = np.zeros_like(w)
        few = np.flatnonzero(lanes)
        pieces = self._chunks(BLOCK)
        program = partial(_bend, self.way, pieces, self.data)
        found[few] = self._by_lane(
            program, w[few], delta[few], variance[few], self.pick(carry, few)
        )
        return found

    def _chunks(self, thin: int) -> int:
        memory = self.memory_mb if self.parallel else min(self.memory_mb, CACHE_MB)
        return chunks(self.sizes, self.data.weight.size, self.way.width, thin, memory)

    def _by_lane(self, program: Callable[..., Any], *args: Any) -> Any:
        """A program over all fits, as many at a time as it has room for."""
        found = []
        for begin in range(0, len(args[0]), self.room):
            batch = jax.tree.map(lambda v, first=begin: v[first : first + self.room], args)
            count = len(batch[0])
            filled = jax.tree.map(
                lambda v, more=self.room - count: np.pad(v, ((0, more), *((0, 0),) * (v.ndim - 1))),
                batch,
            )
            result = jax.device_get(program(count, *filled))
            found.append(jax.tree.map(lambda v, n=count: v[:n], result))
        return found[0] if len(found) == 1 else jax.tree.map(lambda *v: np.concatenate(v), *found)

    def merge(self, kept: Bool[Array, " M"], new: Starts, old: Starts) -> Starts:
        """Starts of the fits whose step was kept."""
        return np.where(kept[:, None, None], new, old)

    def pick(self, carry: Starts, lanes: Array) -> Starts:
        """The memory of some of the fits."""
        return carry[lanes]

    def inside(self, weight: Sequence[Float[Array, " T"]]) -> tuple[Array, Bool[Array, " T"]]:
        """Which rows of :meth:`outputs` are rows of the records, and which of those count."""
        real = [np.arange(-(-len(k) // self.length) * self.length) < len(k) for k in weight]
        return np.concatenate(real), np.concatenate(weight) > 0

    def outputs(self, w: Float[Array, "M P"], carry: Starts) -> tuple[Array, Array]:
        """States and outputs of every fit, rows of all records one after the other."""

        def program(*args: Any) -> tuple[jax.Array, ...]:
            return _trial(self.way, self.data, *args)[3:]

        x, y = self._by_lane(program, w, carry)

        def rows(values: Array) -> Array:
            return np.moveaxis(values, 1, 2).reshape(len(w), -1, values.shape[-1])

        return rows(x), rows(y)


def segment_length(lengths: Sequence[int], parallel: bool) -> int:
    """About the root of the rows on a CPU, where a pass costs its steps and its rows alike.

    With associative scans segments are a few blocks long: as few steps as pay.
    """
    if parallel:
        return 4 * BLOCK
    blocks = max(1, round(np.sqrt(sum(lengths)) / BLOCK))
    return BLOCK * min(blocks, -(-min(lengths) // BLOCK))


def chunks(sizes: Sizes, rows: int, lanes: int, thin: int, memory_mb: float) -> int:
    """Into how many pieces time must be cut to stay within the memory."""
    nx, ny, m = sizes.nx, sizes.ny, sizes.m
    results = nx + BLOCK // thin * ny + 1
    each = 2 * results * (nx + m) + (results + 2 * nx) * sizes.total / BLOCK
    each += 2 * ny * sizes.total / thin + m * nx + nx * nx
    return max(1, int(np.ceil(8 * each * rows * lanes / (memory_mb * 2**20))))


def _run(way: Way, data: Segments, w: jax.Array, starts: jax.Array) -> Run:
    return free_run(way.sizes, split(way.sizes, w), data, starts, way.parallel)


def _of_each(one: Callable[..., Any], width: int, count: Any, *args: Any) -> Any:
    """What ``one`` says of the first ``count`` fits, ``width`` at a time, in one program.

    A call from Python for each would take about as long as a short record does.
    """
    some = jax.vmap(one)

    def batch(k: Any) -> Any:
        return jax.tree.map(lambda v: jax.lax.dynamic_slice_in_dim(v, k * width, width), args)

    def put(k: jax.Array, found: Any) -> Any:
        return jax.tree.map(
            lambda whole, new: jax.lax.dynamic_update_slice_in_dim(whole, new, k * width, 0),
            found,
            some(*batch(k)),
        )

    if len(args[0]) == width:
        return some(*args)
    shapes = jax.eval_shape(some, *batch(0))
    blank = jax.tree.map(lambda v: jnp.zeros((len(args[0]), *v.shape[1:]), v.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // width), put, blank)


@kept((0,))
def _trial(
    way: Way, data: Segments, count: int, w: Float[Any, "M P"], starts: jax.Array
) -> tuple[jax.Array, ...]:
    """Squares, starts of the segments, how much those moved in the last pass; states, outputs."""

    def one(w: jax.Array, starts: jax.Array) -> tuple[jax.Array, ...]:
        run = _run(way, data, w, starts)
        squares = jnp.sum(data.weight[..., None] * (run.y - data.y) ** 2, axis=(0, 1))
        return squares, run.starts, run.change, run.x, run.y

    found: tuple[jax.Array, ...] = _of_each(one, way.width, count, w, starts)
    return found


@kept((0, 1, 2))
def _expand(
    way: Way,
    pieces: int,
    thin: int,
    data: Segments,
    offset: int,
    count: int,
    w: jax.Array,
    variance: jax.Array,
    starts: jax.Array,
) -> Sums:
    def one(w: jax.Array, variance: jax.Array, starts: jax.Array) -> Sums:
        run, at = _run(way, data, w, starts), split(way.sizes, w)
        place = (way.sizes, at, data, run.x, run.y, variance)
        return sums(*place, thin, offset, pieces, way.parallel)

    found: Sums = _of_each(one, way.width, count, w, variance, starts)
    return found


@kept((0, 1))
def _bend(
    way: Way,
    pieces: int,
    data: Segments,
    count: int,
    w: jax.Array,
    delta: jax.Array,
    variance: jax.Array,
    starts: jax.Array,
) -> jax.Array:
    """The second derivative by central differences, then one gradient with it as the residual."""

    def one(w: jax.Array, delta: jax.Array, variance: jax.Array, starts: jax.Array) -> jax.Array:
        run, at = _run(way, data, w, starts), split(way.sizes, w)
        more = _run(way, data, w + DIFFERENCE * delta, starts)
        less = _run(way, data, w - DIFFERENCE * delta, starts)
        second = (more.y - 2 * run.y + less.y) / DIFFERENCE**2
        place = (way.sizes, at, data._replace(y=run.y - second), run.x, run.y, variance)
        found = sums(*place, BLOCK, 0, pieces, way.parallel)
        there = (more.change <= ACCEPTED) & (less.change <= ACCEPTED)
        return jnp.where(there, found.gradient, jnp.nan)

    found: jax.Array = _of_each(one, way.width, count, w, delta, variance, starts)
    return found
