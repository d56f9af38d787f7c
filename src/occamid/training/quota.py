"""How many cores the control groups of a process pay for, of either version of Linux's groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
FILES = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")  # quota and period, by version


def paid_for() -> float:
    """Cores, perhaps a part of one; infinite where no group has a limit."""
    return min(map(_allowed, _groups()), default=math.inf)


def _groups() -> Iterator[Path]:
    """The groups that this process is in, and those above them, as far as they can be seen.

    A container may see its own group as the root and still be told its name outside.
    """
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = GROUPS / controllers
        group = root / place.strip("/")
        yield from (g for g in (group, *group.parents) if g.is_relative_to(root))


def _allowed(group: Path) -> float:
    for names in FILES:
        try:
            quota, period = (int(v) for n in names for v in (group / n).read_text().split())
        except (OSError, ValueError):  # the other version, or no limit
            continue
        return quota / period if quota > 0 else math.inf
    return math.inf
