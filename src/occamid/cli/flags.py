"""Parameters of the library as people type them here."""

from __future__ import annotations

import re

# Parameters of the library that are called differently here; the others differ by dashes only.
FLAGS = {"inputs": "--input", "outputs": "--output", "resample=": "--resample-to"}


def as_flags(message: str) -> str:
    """The library writes parameters as `` `gaps="split"` ``; people here type ``--gaps split``."""
    message = message.replace("`input_lags` and `output_lags`", "--lags")
    return re.sub(r"`([a-z_]+)(?:=\"?([^`\"]*)\"?)?`", _flag, message)


def _flag(parameter: re.Match[str]) -> str:
    name, value = parameter.groups()
    flag = FLAGS.get(name if value is None else f"{name}=", f"--{name.replace('_', '-')}")
    return flag if value is None else f"{flag} {value}"
