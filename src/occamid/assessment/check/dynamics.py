"""How outputs follow inputs: delay, feedback, and whether the steps suit the dynamics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.signal import fftconvolve, welch
from scipy.stats import f as f_distribution

from occamid.assessment.check.delay import (
    LENGTHS,
    ORDER,
    Delay,
    Response,
    columns_of,
    responses,
    signals_of,
    window,
)
from occamid.assessment.check.signals import Channel, finding
from occamid.data.findings import Finding
from occamid.data.record import Record

Array = np.ndarray
CERTAIN = 0.9  # of a delay that is stated as one number
EFFECT = 0.5  # probability below which an input does not seem to act
PAST = 10  # residuals of the output that may act back on an input
FEEDS_BACK = 0.05  # of the variance of what is new in an input
AT_ONCE = 0.1  # of it, where the output acts in the same sample
SURE = 1e-8  # probability of so much by chance
QUIET = 1e-6  # share of unexplained variance below which there is nothing to feed back
TOO_FAST = 500  # samples in a period of the fastest motion that matters
SEGMENT = 16384
STATIC = 0.98  # of the explained variance that two samples of the inputs explain


def dynamics(records: tuple[Record, ...]) -> Iterator[Finding]:
    """Findings about each output and the inputs."""
    for response in responses(records):
        step = records[0].sampling_time
        yield from (_told(delay, step) for delay in response.delays if delay.effect >= EFFECT)
        yield from _without_effect([d for d in response.delays if d.effect < EFFECT])
        yield from _feedback(response, *residuals(response))
        yield from _too_slow(response)


def _told(delay: Delay, step: float) -> Finding:
    """The delay in words, no surer than it is."""
    link = f"{delay.input} to {delay.output}"
    if not delay.told:
        what = f"{delay.input} acts on {delay.output}, but after how many samples cannot be told"
        why = "it moves slowly or in cycles, so that its samples say much the same"
        return finding("delay", "note", link, (what, why, ""))
    low, high = delay.interval
    if low == high or delay.certainty >= CERTAIN:
        found = (
            f"{delay.best} samples ({delay.best * step:.4g} s, probability {delay.certainty:.0%})"
        )
    else:
        found = (
            f"{low} to {high} samples ({low * step:.4g} to {high * step:.4g} s, 90 % probability; "
            f"most likely {delay.best})"
        )
    return finding(
        "delay", "note", link, (f"{delay.input} acts on {delay.output} after {found}", "", "")
    )


def _without_effect(delays: list[Delay]) -> Iterator[Finding]:
    if delays:
        names, output = ", ".join(d.input for d in delays), delays[0].output
        most = len(delays[0].probability) - 1
        what = (
            f"no linear or quadratic effect of {names} on {output} is seen within {most} samples, "
            "a tenth of the rows at most"
        )
        why = "it may be weak, slower, or hidden by noise or by other inputs"
        yield finding("no effect", "note", f"{names} to {output}", (what, why, ""))


def residuals(
    response: Response,
) -> tuple[list[Float[Array, " N"]], list[Record], Float[Array, " nu"]]:
    """What past outputs and past inputs leave unexplained, for each block; gains of the inputs."""
    normal, blocks = response.normal, response.blocks
    picked = [columns_of(normal, 0, 1, ORDER)]
    for j, delay in enumerate(response.delays):
        picked.append(window(normal, j, max(delay.best - 1, 1), 2 * max(LENGTHS)))
    columns = np.concatenate(picked)
    target = int(np.flatnonzero((normal.signal == 0) & (normal.lag == 0))[0])
    G = normal.products[np.ix_(columns, columns)] + 1e-6 * normal.rows * np.eye(len(columns))
    weights = np.linalg.solve(G, normal.products[columns, target])
    reach = int(normal.lag[columns].max())
    found, kept = [], [block for block in blocks if len(block) > reach]
    for block in kept:
        signals = signals_of(block, response.output, blocks)
        assert signals is not None
        e = signals[0].copy()
        for s in np.unique(normal.signal[columns]):
            of = normal.signal[columns] == s
            filter_ = np.zeros(reach + 1)
            filter_[normal.lag[columns][of]] = weights[of]
            e -= fftconvolve(signals[s], filter_)[: len(e)]
        found.append(e[reach:])
    gains = [weights[normal.signal[columns] == 2 * j + 1].sum() for j in range(len(picked) - 1)]
    return found, [block[reach:] for block in kept], np.array(gains)


def _feedback(
    response: Response,
    e: list[Float[Array, " N"]],
    blocks: list[Record],
    gains: Float[Array, " nu"],
) -> Iterator[Finding]:
    """Whether what is new in an input follows what was unexpected in the output.

    Without feedback, past residuals of the output do not help to predict an input.  A controller
    that acts within the sample shows in the same sample, against the sign of the gain.
    """
    if not e or np.var(np.concatenate(e)) < QUIET:
        return
    for j, delay in enumerate(response.delays):
        pairs = [_lagged(part, block.u[:, j]) for part, block in zip(e, blocks, strict=True)]
        own, past, now, new = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        if len(new) < 10 * PAST or not new.std():
            continue
        own = np.column_stack([own, np.ones(len(own))])
        rest = new - own @ np.linalg.lstsq(own, new, rcond=None)[0]
        if rest.std() < 1e-6 * new.std():
            continue
        past = past - own @ np.linalg.lstsq(own, past, rcond=None)[0]
        left = rest - past @ np.linalg.lstsq(past, rest, rcond=None)[0]
        free = len(new) - own.shape[1] - PAST
        share = 1 - (left @ left) / (rest @ rest)
        follows = f_distribution.sf(share / PAST / ((1 - share) / free), PAST, free) < SURE
        at_once = float(np.corrcoef(rest, now)[0, 1])
        against = at_once * gains[j] < 0 and at_once**2 > AT_ONCE
        if against or (share > FEEDS_BACK and follows):
            yield finding(
                "feedback", "advice", f"{delay.output} to {delay.input}",
                (f"input {delay.input} reacts to output {delay.output} "
                 f"({max(share, at_once**2 if against else 0.0):.0%} of what is new in it)",
                 "with a controller at work, noise acts on the input, and models of the process "
                 "are biased", "excite the set point, or record in open loop"),
            )  # fmt: skip


def _lagged(e: Float[Array, " N"], u: Float[Array, " N"]) -> tuple[Array, Array, Array, Array]:
    """Past inputs, past residuals, the residual and the input of each row."""
    reach = 2 * PAST
    if len(u) <= reach:
        return np.zeros((0, reach)), np.zeros((0, PAST)), np.zeros(0), np.zeros(0)
    view = np.lib.stride_tricks.sliding_window_view
    own = view(u[:-1], reach)
    past = view(e[:-1], PAST)[reach - PAST :]
    return own, past, e[reach:], u[reach:]


def _too_slow(response: Response) -> Iterator[Finding]:
    """Two samples of the inputs explain all that can be explained: no dynamics is left to see."""
    normal = response.normal
    target = int(np.flatnonzero((normal.signal == 0) & (normal.lag == 0))[0])
    total = normal.products[target, target]

    def explained(columns: Array) -> float:
        G = normal.products[np.ix_(columns, columns)] + 1e-6 * normal.rows * np.eye(len(columns))
        g = normal.products[columns, target]
        return float(g @ np.linalg.solve(G, g) / total)

    acting = [(j, d) for j, d in enumerate(response.delays) if d.effect > EFFECT]
    if not acting or any(_held(response.blocks, j) for j, _ in acting):
        return
    short = [window(normal, j, d.best, 2) for j, d in acting]
    long = [window(normal, j, d.best, 3 * max(LENGTHS)) for j, d in acting]
    past = columns_of(normal, 0, 1, ORDER)
    few, all_ = explained(np.concatenate(short)), explained(np.concatenate([past, *long]))
    if all_ > 0.5 and few > STATIC * all_:
        name = acting[0][1].output
        yield finding(
            "too slow", "advice", name,
            (f"output {name} follows the inputs within two samples",
             "the dynamics is over before the next sample", "sample faster, or use a static model"),
        )  # fmt: skip


def _held(blocks: list[Record], j: int) -> bool:
    """Whether an input hardly moves from one sample to the next."""
    u = max(blocks, key=len).u[:, j]
    u = u - u.mean()
    return bool(u[1:] @ u[:-1] > 0.5 * (u @ u))


def fastest(x: Float[Array, " T"]) -> float | None:
    """Cycles a sample below which 99 % of a signal's power lies, white noise apart."""
    if np.ptp(x) == 0:
        return None
    f, power = welch(x - x.mean(), nperseg=min(len(x), SEGMENT), detrend="linear")
    signal = np.maximum(power - np.median(power[len(power) // 2 :]), 0)
    signal[0] = 0
    if not signal.sum():
        return None
    return max(float(f[1]), float(f[np.searchsorted(np.cumsum(signal) / signal.sum(), 0.99)]))


def too_fast(channel: Channel) -> Iterator[Finding]:
    """An output in which nothing happens for hundreds of samples, noise apart."""
    x = max(channel.parts, key=len)
    found = fastest(x) if len(x) >= 4 * TOO_FAST else None
    if found is not None and found * TOO_FAST < 1:
        yield finding(
            "too fast", "advice", channel.name,
            (f"{channel.word} hardly moves from sample to sample: its fastest motion takes "
             f"{1 / found:.0f} samples",
             "neighbours say the same, and models need long lags",
             f"keep every {max(2, int(1 / (40 * found)))}th sample with prepare"),
        )  # fmt: skip
