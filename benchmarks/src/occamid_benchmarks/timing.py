"""How long things take here, what this machine does at best, and what other processes tell."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from occamid.errors import FileError

SIDE = 2048  # of the product that is the machine's peak


def shortest(f: Callable[[], Any], repeats: int = 5) -> float:
    """Seconds of the shortest of several runs, after one that compiles."""
    jax.block_until_ready(f())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(f())
        times.append(time.perf_counter() - began)
    return min(times)


def product_peak(dtype: Any) -> float:
    """Operations a second of a large matrix product; on a GPU it is too small to be the peak."""
    a = jnp.ones((SIDE, SIDE), dtype)
    product = jax.jit(jnp.dot)
    return 2 * SIDE**3 / shortest(lambda: product(a, a))


def told_by(
    command: Sequence[str], failure: str, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON that a process prints in its last line; ``failure`` begins what is said if not."""
    found = subprocess.run(
        list(command), env={**os.environ, **(env or {})}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if found.returncode:
        last = found.stderr.strip().splitlines()[-1:] or ["no message"]
        raise FileError(f"{failure} ended with {found.returncode}: {last[0]}")
    told: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return told
