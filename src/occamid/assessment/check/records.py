"""Check records: everything that is odd about them, in one list."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from occamid.assessment.check import dynamics, excitation, sensors
from occamid.assessment.check.signals import FEWEST, channels, finding
from occamid.data.findings import Finding, ordered
from occamid.data.record import Record, as_records

MOST_CHANNELS = 50  # that are looked at one by one


def check(
    records: Record | Iterable[Record], test: Record | Iterable[Record] = ()
) -> list[Finding]:
    """What is odd about logged data, or worth knowing, before a model is made of it.

    Notes are information (delay, frequencies); advice asks for a look; faults spoil a model.

    Args:
        records: one record or several experiments with the same channels.
        test: records to judge a model on; whether they stay in the range of the others is told.
    """
    everything = as_records(records)
    kept = tuple(r for r in everything if len(r) >= FEWEST)
    if not kept:
        return [
            finding(
                "short", "fault", "",
                (f"no record has {FEWEST} rows", "that is too little for a model", "record more"),
            )
        ]  # fmt: skip
    found: list[Finding] = []
    every = channels(kept)
    inputs = np.concatenate([r.u for r in kept])
    if len(every) > 2 * MOST_CHANNELS:
        found.append(_many(len(every)))
    looked = [c for c in every if c.is_input][:MOST_CHANNELS]
    looked += [c for c in every if not c.is_input][:MOST_CHANNELS]
    dead = set()
    for channel in looked:
        own = list(sensors.sensors(channel, inputs[:, :MOST_CHANNELS]))
        found += own
        if any(f.kind == "dead" for f in own):
            dead.add(channel.name)
        elif channel.is_input:
            found += excitation.excitation(channel)
        else:
            found += dynamics.too_fast(channel)
    found += excitation.together(looked)
    if not dead & set(kept[0].output_names):
        found += dynamics.dynamics(kept)
    given = test if hasattr(test, "u") else tuple(test)
    if given:
        found += excitation.outside(every, channels(as_records(given)))
    return ordered(found)


def _many(count: int) -> Finding:
    return finding(
        "many", "note", "",
        (f"only the first {MOST_CHANNELS} inputs and outputs of {count} channels are checked",
         "", "name those that matter with `inputs` and `outputs`"),
    )  # fmt: skip
