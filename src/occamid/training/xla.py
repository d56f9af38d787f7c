"""What XLA is told about compiling for a CPU, as far as its version knows it.

Its older way to emit loops makes programs ready in half the time, and all but those of perceptrons
in training run as fast.  An unknown flag ends a process, an unknown option a training.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from occamid.training.cores import on_cpu

FLAGS = "XLA_FLAGS"
NEWER = "xla_cpu_use_fusion_emitters"
AT_ONCE = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # who sets it wants programs soon, not fast ones
ONCE = {"xla_backend_optimization_level": 0}  # for programs that run no longer than they compile
ABOUT = "flags", "model name", "Features", "CPU "  # lines of Linux that tell processors apart
KNOWN = "0.10."  # versions of jaxlib with both ways; 0.11 has the newer one alone


def soon(options: Mapping[str, Any]) -> dict[str, Any]:
    """Further options of a program with these: the older way, unless the user or they say which."""
    told = NEWER in options or NEWER in os.environ.get(FLAGS, "")
    if told or not on_cpu() or not version("jaxlib").startswith(KNOWN):
        return {}
    return {NEWER: False}


def for_training(perceptrons: bool, light: bool = False) -> dict[str, Any]:
    """Options of a program that trains on one core of a CPU.

    Sums that threads share would depend on their number.  Recurrent networks are many small steps,
    which gain little from what takes long to compile, and so does ``light`` work.
    """
    options: dict[str, Any] = {"xla_cpu_multi_thread_eigen": False}
    if os.environ.get(AT_ONCE, "0") not in ("", "0", "false"):
        return options
    thorough = perceptrons and not light
    if not thorough:
        options["xla_backend_optimization_level"] = 1
    if version("jaxlib").startswith(KNOWN):
        options[NEWER] = thorough
    return options


def processor() -> str:
    """Entries are machine code: a home folder may be shared by different machines."""
    about = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
        about += "".join(sorted({n for n in lines if n.startswith(ABOUT)}))
    return sha256(about.encode()).hexdigest()[:12]
