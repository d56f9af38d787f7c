"""Dead time: what no lag and no state has to hold is taken out before anything is learned.

A state-space model of six states cannot wait for 150 samples, nor can a network on ten lags.  So
every input is moved to where it begins to act; models are trained on moved inputs, and their terms
say afterwards how far back those lie.  Like everything else this is learned inside a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from occamid.assessment.check.delay import delays
from occamid.data.record import Record
from occamid.identification.folds import Blanked, Lesson, rows_of
from occamid.identification.options import Options

FAINT = 0.1  # probability of an effect under which its delay does not count
UNLIKELY = 0.01  # probability of an earlier effect from which on nothing is moved
LONG = 5  # samples of delay; what is shorter, lags and states hold easily
MARGIN = 1  # samples that an input is moved less than its effect surely waits
WORTH = 0.75  # of the rows must be left: those before the first moved input are lost


def dead_times(records: Sequence[Record], options: Options) -> tuple[int, ...]:
    """By how many samples each input can be moved without losing any of its effects.

    From the end of the 90 % interval of each delay that is nearer; none where the user fixed lags.
    """
    if options.input_delay is not None or options.input_lags != "auto":
        return (0,) * records[0].u.shape[1]
    return _dead_times(tuple(records))


@lru_cache(maxsize=16)  # families in a fold ask one by one, about the very same records
def _dead_times(records: tuple[Record, ...]) -> tuple[int, ...]:
    first: dict[str, int] = {}
    for delay in delays(tuple(r[r.lead :] if r.lead else r for r in records)):
        if delay.effect >= FAINT:
            end = delay.interval[0] if delay.sooner < UNLIKELY else 0
            first[delay.input] = min(end, first.get(delay.input, end))
    near = [first.get(name, 0) for name in records[0].input_names]
    found = tuple(d - MARGIN if d >= LONG else 0 for d in near)
    left = sum(max(0, len(r) - max(r.lead, max(found))) for r in records)
    return found if left >= WORTH * rows_of(records) else (0,) * len(near)


def forget() -> None:
    """Let go of the records that dead times were asked for last."""
    _dead_times.cache_clear()


def moved(lesson: Lesson, dead: Sequence[int]) -> Lesson:
    """The lesson with inputs moved by their dead times, without records too short for them."""
    if not any(dead):
        return lesson
    blanked = [(r, seen) for r, seen in lesson.blanked if staying([r], dead)]
    return Lesson(
        tuple(r.later(dead) for r in staying(lesson.records, dead)),
        tuple(Blanked(r.later(dead), seen[max(dead) :]) for r, seen in blanked),
    )


def staying(records: Sequence[Record], dead: Sequence[int]) -> tuple[Record, ...]:
    """The records that lose no more than half of their rows when inputs are moved so far."""
    return tuple(r for r in records if max(dead) <= max(r.lead, len(r) // 2))
