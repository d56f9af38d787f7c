"""Terms: which past inputs and outputs a model sees, and the arrays made of them.

With lags ``L`` a record gives ``z(t) = [u(t-L) … u(t), y(t-L) … y(t-1)]``, oldest first, every
input channel before every output channel.  Each entry keeps its channel and lag, so that a
pruned model can say ``u[t-3]`` and drop the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jax import Array as JaxArray
from jax import device_put
from jaxtyping import Bool, Float

from occamid.data.record import Record
from occamid.errors import DataError

Array = np.ndarray
Term = tuple[int, int]  # (channel, lag)


@dataclass(frozen=True)
class Terms:
    """An ordered list of lagged channels: input terms first, then output terms."""

    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def names(self) -> tuple[str, ...]:
        """Printable names such as ``u[t]`` or ``y1[t-3]``."""
        return tuple(
            f"{names[channel]}[t-{lag}]" if lag else f"{names[channel]}[t]"
            for names, terms in ((self.input_names, self.inputs), (self.output_names, self.outputs))
            for channel, lag in terms
        )

    @property
    def max_lag(self) -> int:
        """How many past samples the model needs before its first prediction."""
        return max((lag for _, lag in self.inputs + self.outputs), default=0)

    @property
    def output_lag(self) -> int:
        """The largest lag of an output: the length of the free run's shift register."""
        return max((lag for _, lag in self.outputs), default=0)

    def later(self, delays: Sequence[int]) -> Terms:
        """The same terms of inputs that were moved by so many samples, channel by channel."""
        moved = tuple((channel, lag + delays[channel]) for channel, lag in self.inputs)
        return replace(self, inputs=moved)

    def select(self, keep: Bool[Array, " nz"]) -> Terms:
        """Only the regressors marked in ``keep``."""
        terms = [t for t, kept in zip(self.inputs + self.outputs, keep, strict=True) if kept]
        n_inputs = int(np.sum(keep[: len(self.inputs)]))
        return replace(self, inputs=tuple(terms[:n_inputs]), outputs=tuple(terms[n_inputs:]))


class Windows(NamedTuple):
    """Terms and targets of several experiments, padded at the end to one length.

    Row ``t`` is sample ``start + t`` of its record (later where outputs at its head are unknown).
    """

    z: Float[JaxArray, "R T nz"]
    y: Float[JaxArray, "R T ny"]
    valid: Float[JaxArray, "R T 1"]  # 1 for a sample, 0 for padding
    history: Float[JaxArray, "R ly ny"]  # the outputs just before the first row
    residuals: Float[JaxArray, " R"]  # number of residuals, samples x outputs


class Shape(NamedTuple):
    """What windows are padded to: so many records of so many rows, and samples in all.

    One after the other the records fit into so many ``lanes`` of these rows.
    """

    records: int
    rows: int
    samples: int
    lanes: int = 1


def all_terms(record: Record, input_lags: int, output_lags: int, delay: int = 0) -> Terms:
    """Every lag from ``delay`` to ``input_lags`` and from 1 to ``output_lags``, oldest first."""
    return Terms(
        inputs=_window(record.u.shape[1], input_lags, delay),
        outputs=_window(record.y.shape[1], output_lags, 1),
        input_names=record.input_names,
        output_names=record.output_names,
    )


def _window(channels: int, oldest: int, newest: int) -> tuple[Term, ...]:
    return tuple((c, lag) for c in range(channels) for lag in range(oldest, newest - 1, -1))


def lagged(x: Float[Array, "N n"], terms: tuple[Term, ...], start: int) -> Float[Array, "T terms"]:
    """Columns ``x[t - lag, channel]`` for ``t = start … N-1``."""
    channels, lags = np.array(terms, dtype=int).reshape(-1, 2).T
    return x[np.arange(start, len(x))[:, None] - lags, channels]


def windows(
    records: Sequence[Record],
    terms: Terms,
    start: int,
    shape: Shape | None = None,
) -> Windows:
    """Regressors and targets from sample ``start`` of each record; none crosses a border.

    With ``shape`` the batch is padded to it, so that other records of about this size share what
    was compiled for it.
    """
    firsts = [first_row(record, terms, start) for record in records]
    for record, first in zip(records, firsts, strict=True):
        if len(record) <= first:
            raise DataError(
                f'record "{record.name}" has {len(record)} rows, but the lags need more than '
                f"{first}; use a longer record or fewer lags."
            )
    z = [
        np.concatenate([lagged(r.u, terms.inputs, k), lagged(r.y, terms.outputs, k)], axis=1)
        for r, k in zip(records, firsts, strict=True)
    ]
    y = [r.y[k:] for r, k in zip(records, firsts, strict=True)]
    history = [r.y[k - terms.output_lag : k] for r, k in zip(records, firsts, strict=True)]
    size = (len(y), max(map(len, y))) if shape is None else (shape.records, shape.rows)
    valid = _pad([np.ones((len(part), 1)) for part in y], *size)
    return Windows(
        z=device_put(_pad(z, *size)),
        y=device_put(_pad(y, *size)),
        valid=device_put(valid),
        history=device_put(_pad(history, size[0], terms.output_lag)),
        residuals=device_put(y[0].shape[1] * valid.sum(axis=(1, 2))),
    )


def first_row(record: Record, terms: Terms, start: int) -> int:
    """The first row that can be predicted: no earlier than ``start``, with known past outputs."""
    return max(start, record.lead + terms.output_lag)


def roomy(count: int, finest: int = 8, parts: int = 8) -> int:
    """A count rounded up, in ``parts`` steps from one power of two to the next."""
    step = max(finest, 2 ** int(np.log2(max(count, 1))) // parts)
    return -(-count // step) * step


def padded_shape(*lessons: Sequence[Record]) -> Shape:
    """Room for each of these: the folds of a cross-validation then share what is compiled."""
    lengths = [[len(r) - r.lead for r in records] for records in lessons if records]
    rows = roomy(max(map(max, lengths)))
    return Shape(
        records=max(map(len, lengths)),
        rows=rows,
        samples=roomy(max(map(sum, lengths))),
        lanes=max(one_after_the_other(own, rows)[-1][0] + 1 for own in lengths),
    )


def one_after_the_other(lengths: Sequence[int], rows: int) -> list[tuple[int, int]]:
    """Lane and first row of each record in lanes of so many rows; none is cut.

    They stay in their order: shorter ones then never need more lanes.
    """
    places, lane, used = [], 0, 0
    for length in lengths:
        if used + length > rows:
            lane, used = lane + 1, 0
        places.append((lane, used))
        used += length
    return places


def _pad(parts: Sequence[Float[Array, "_ n"]], records: int, rows: int) -> Float[Array, "R Tmax n"]:
    """Stack along a new first axis, zeros after the end of the shorter ones."""
    found = np.zeros((records, rows, parts[0].shape[1]))
    for row, part in zip(found, parts, strict=False):
        row[: len(part)] = part
    return found
