"""How many cores this process may use: asked for, allowed by affinity, paid for by quota."""

from __future__ import annotations

import math
import os
from pathlib import Path

VARIABLE = "OCCAMID_THREADS"
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """The variable's number if it is set, else what affinity and the control group allow."""
    asked = os.environ.get(VARIABLE, "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, _quota()))


def _quota() -> int:
    """Whole cores that the control group pays for; very many where it says nothing."""
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        return 1_000_000
