"""Dead time with its probability: at which lag an input first acts on an output.

A linear model ``y(t) = Σ a_i y(t−i) + Σ_j b_j u(t−d−j) + c_j u(t−d−j)² + e(t)``, j = 0 … m−1, has a
closed-form evidence under a Gaussian prior on its coefficients.  Normalised over d it is the
probability of each delay, averaged over a few m and widths of the prior.  Squares see inputs whose
sign does not matter.

Few lags of an input that moves slowly, or in cycles, may stand for others.  So the best of these
models is set against such with earlier lags of the same input beside it: where one of them is
better, the input acts sooner than the delays say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logsumexp

from occamid.data.record import Record

Array = np.ndarray
LARGEST = 200  # samples of delay that are looked for
ORDER = 10  # past outputs
ROWS = 20_000  # that are looked at
INPUTS = 6
WIDTHS = (1.0, 0.03, 1e-3)  # prior variances of the coefficients, in scaled units
FLOOR = 1e-10  # of the variance of the output, below which nothing is noise
LENGTHS = (3, 10)  # m: lags of an input that act; past outputs carry the rest
TEMPER = 0.5  # of the likelihood: residuals of a linear model of the world are not quite white


class Delay(NamedTuple):
    """The delay of one input to one output, in samples."""

    input: str
    output: str
    probability: Float[Array, " L"]  # of each delay, given that there is an effect
    effect: float  # probability that there is one
    sooner: float = 0.0  # probability that the input acts before the interval, too

    @property
    def told(self) -> bool:
        """Whether the data tell the delay at all."""
        return self.sooner < 0.5

    @property
    def best(self) -> int:
        """The most probable delay."""
        return int(np.argmax(self.probability))

    @property
    def interval(self) -> tuple[int, int]:
        """Between which the delay is, with 90 % probability."""
        share = np.cumsum(self.probability)
        return int(np.searchsorted(share, 0.05)), int(np.searchsorted(share, 0.95 - 1e-12))

    @property
    def certainty(self) -> float:
        """The probability of the best delay."""
        return float(self.probability[self.best])


class Response(NamedTuple):
    """How an output follows its past and the inputs: products of the data, delays of the inputs."""

    output: int
    blocks: list[Record]
    normal: Normal
    delays: list[Delay]


class Normal(NamedTuple):
    """Sums of products of lagged signals: signal and lag of each column, the last is y(t)."""

    products: Float[Array, "p p"]
    signal: Array  # 0: y, 1: u1, 2: u1², 3: u2, …
    lag: Array
    rows: int


def delays(records: tuple[Record, ...]) -> list[Delay]:
    """The delay of each of the first inputs to each output."""
    return [delay for response in responses(records) for delay in response.delays]


def responses(records: tuple[Record, ...]) -> list[Response]:
    """The delays of each output, and what they were found from."""
    blocks = sample(records)
    if not blocks:
        return []
    found = []
    for k, output in enumerate(records[0].output_names):
        normal = normal_equations(blocks, k)
        if normal is not None:
            own = _of_output(normal, records[0].input_names[:INPUTS], output)
            found.append(Response(k, blocks, normal, own))
    return found


def _of_output(normal: Normal, names: tuple[str, ...], output: str) -> list[Delay]:
    """Each input by itself, then again with the others in the model at their best delays."""
    best: dict[int, int] = {}
    found: list[Delay] = []

    def others(input_: int) -> dict[int, int]:
        return {other: d for other, d in best.items() if other != input_}

    for _ in range(min(2, len(names))):
        found = [_delay(normal, j, others(j), name, output) for j, name in enumerate(names)]
        best = {j: d.best for j, d in enumerate(found) if d.effect > 0.5}
    return [d._replace(sooner=_sooner(normal, j, others(j), d)) for j, d in enumerate(found)]


def sample(records: tuple[Record, ...]) -> list[Record]:
    """Long stretches of the longest records, no more rows than needed."""
    order = sorted(records, key=len, reverse=True)
    kept: list[Record] = []
    left = ROWS
    for record in order:
        size = min(len(record), max(left, 0))
        if size < 4 * ORDER:
            break
        parts = 1 if size == len(record) else 4
        starts = np.linspace(0, len(record) - size // parts, parts).astype(int)
        kept += [record[int(s) : int(s) + size // parts] for s in starts]
        left -= size
    reach = reachable(kept) if kept else 0
    return [record for record in kept if len(record) > reach + 2 * ORDER]


def normal_equations(blocks: list[Record], output: int) -> Normal | None:
    """Products of an output, its past and the lagged inputs, in units of their spread."""
    reach = reachable(blocks)
    signals = [signals_of(r, output, blocks) for r in blocks]
    if any(s is None for s in signals):
        return None
    width = reach + 1
    count = 1 + 2 * min(INPUTS, blocks[0].u.shape[1])
    total = np.zeros((count * width, count * width))
    rows = 0
    for part in signals:
        assert part is not None
        rows += part.shape[1] - reach
        for i in range(count):
            for j in range(i, count):
                block = lag_products(part[i], part[j], width)
                total[i * width : (i + 1) * width, j * width : (j + 1) * width] += block
                if i != j:
                    total[j * width : (j + 1) * width, i * width : (i + 1) * width] += block.T
    signal, lag = np.divmod(np.arange(count * width), width)
    kept = (signal > 0) | (lag <= ORDER)
    return Normal(total[np.ix_(kept, kept)], signal[kept], lag[kept], rows)


def reachable(blocks: list[Record]) -> int:
    """The largest delay that these records can show."""
    longest = max(map(len, blocks))
    usable = [len(r) for r in blocks if len(r) >= longest // 4]
    return int(max(1, min(LARGEST, sum(usable) // 10, min(usable) // 3)))


def lag_products(a: Float[Array, " N"], b: Float[Array, " N"], width: int) -> Float[Array, "w w"]:
    """``Σ_t a(t−i) b(t−j)`` over the t at which every lag is known; each diagonal by recursion."""
    start, n = width - 1, len(a)
    if n <= start:
        return np.zeros((width, width))
    lag = np.arange(width)
    windows_a, windows_b = (np.lib.stride_tricks.sliding_window_view(x, width) for x in (a, b))
    found = np.empty((width, width))
    found[0] = (a[start:] @ windows_b)[::-1]
    found[:, 0] = (b[start:] @ windows_a)[::-1]
    head_b, tail_b = b[start - 1 - lag[:-1]], b[n - 1 - lag[:-1]]
    for i in range(width - 1):
        gain = a[start - 1 - i] * head_b - a[n - 1 - i] * tail_b
        found[i + 1, 1:] = found[i, :-1] + gain
    return found


def signals_of(record: Record, output: int, blocks: list[Record]) -> Float[Array, "s N"] | None:
    """The output, each input and its square, scaled; nothing where the output stands still."""
    y = np.concatenate([r.y[:, output] for r in blocks])
    if np.ptp(y) <= 1e-12 * np.abs(y).max():
        return None
    rows = [(record.y[:, output] - y.mean()) / y.std()]
    for j in range(min(INPUTS, record.u.shape[1])):
        u = np.concatenate([r.u[:, j] for r in blocks])
        spread = u.std() or 1.0
        v = (record.u[:, j] - u.mean()) / spread
        square = (u - u.mean()) ** 2 / spread**2
        wide = square.std()
        rows += [v, (v**2 - square.mean()) / wide if wide > 1e-6 else np.zeros(len(v))]
    return np.array(rows)


def _delay(normal: Normal, input_: int, others: dict[int, int], name: str, output: str) -> Delay:
    """Evidence of every delay of one input; the other inputs are in the model where they act."""
    base = _with_others(normal, others)
    reach = int(normal.lag.max())
    scores, nothing = [], []
    for length in LENGTHS:
        last = max(reach + 1 - length, 0)
        own = np.array([window(normal, input_, d, length) for d in range(last + 1)])
        columns = np.concatenate([np.tile(base, (len(own), 1)), own], axis=1)
        noise = _noise(normal, columns)
        score = np.full(reach + 1, -np.inf)
        score[: last + 1] = _evidence(normal, columns, noise)
        scores.append(score)
        nothing.append(_evidence(normal, base[None], noise)[0])
    score = np.append(logsumexp(scores, axis=0) - np.log(reach + 1), logsumexp(nothing))
    p = np.exp(score - score.max())
    inside = p[:-1] if p[:-1].sum() > 0 else np.ones(len(p) - 1)
    return Delay(name, output, inside / inside.sum(), float(p[:-1].sum() / p.sum()))


def _sooner(normal: Normal, input_: int, others: dict[int, int], found: Delay) -> float:
    """Probability that lags before the interval act beside those after the best delay."""
    length = min(LENGTHS)
    count = found.interval[0] - length + 1
    if count <= 0:
        return 0.0
    base = _with_others(normal, others | {input_: found.best})
    own = np.array([window(normal, input_, first, length) for first in range(count)])
    columns = np.concatenate([np.tile(base, (count, 1)), own], axis=1)
    noise = _noise(normal, columns)
    both = logsumexp(_evidence(normal, columns, noise)) - np.log(count)
    return float(expit(both - _evidence(normal, base[None], noise)[0]))


def _with_others(normal: Normal, others: dict[int, int]) -> Array:
    """Columns of past outputs and of inputs where they act."""
    past = columns_of(normal, 0, 1, ORDER)
    return np.concatenate([past, *(window(normal, j, d, max(LENGTHS)) for j, d in others.items())])


def columns_of(normal: Normal, signal: int, first: int, last: int) -> Array:
    """Columns of one signal between two lags."""
    return np.flatnonzero((normal.signal == signal) & (normal.lag >= first) & (normal.lag <= last))


def window(normal: Normal, input_: int, first: int, length: int) -> Array:
    """Columns of an input and of its square."""
    last = first + length - 1
    return np.concatenate([columns_of(normal, 2 * input_ + s, first, last) for s in (1, 2)])


def _noise(normal: Normal, columns: Array) -> float:
    """The variance that the best of these models leaves."""
    rss, _ = _residues(normal, columns, 1e-6 * normal.rows)
    return max(float(rss.min()) / normal.rows, FLOOR)


def _evidence(normal: Normal, columns: Array, noise: float) -> Float[Array, " D"]:
    """Log evidence of each model, ``−½ log|I + G/λ| − (N/2) log RSS``, over all λ = σ²/width."""
    rows, found = normal.rows, []
    for width in WIDTHS:
        rss, size = _residues(normal, columns, max(noise / width, 1e-9 * rows))
        fit = np.log(np.maximum(rss / rows, FLOOR))
        found.append(-0.5 * size - 0.5 * TEMPER * rows * fit)
    return logsumexp(found, axis=0)


def _residues(
    normal: Normal, columns: Array, ridge: float
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """What each model leaves of the output, and its log determinant."""
    target = int(np.flatnonzero((normal.signal == 0) & (normal.lag == 0))[0])
    both = np.concatenate([columns, np.full((len(columns), 1), target)], axis=1)
    G = normal.products[both[:, :, None], both[:, None, :]]
    on = np.append(np.full(columns.shape[1], ridge), 1e-12 * normal.rows)
    pivots = np.diagonal(np.linalg.cholesky(G + np.diag(on)), axis1=1, axis2=2) ** 2
    return pivots[:, -1], np.sum(np.log(pivots[:, :-1] / ridge), axis=1)
