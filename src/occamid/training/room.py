"""Room for compiled programs: each takes pieces of memory, of which a process may have so many."""

from __future__ import annotations

from pathlib import Path

from occamid.training.programs import forget

PIECES = Path("/proc/self/maps")  # one line for each
MOST = Path("/proc/sys/vm/max_map_count")
SHARE = 0.4  # of what is allowed; one identification takes up to a quarter


def make_room() -> None:
    """Forget what is compiled if it takes much of what the system allows.

    Many identifications in one process would end it otherwise.  What is needed again is compiled
    again, or read from the cache.  To be called when no other thread runs a program.
    """
    try:
        with PIECES.open("rb") as file:
            taken = sum(1 for _ in file)
        allowed = int(MOST.read_text())
    except (OSError, ValueError):  # another system: it has other limits
        return
    if taken > SHARE * allowed:
        forget()
