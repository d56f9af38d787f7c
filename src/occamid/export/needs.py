"""Packages and compilers that an export needs and that need not be there."""

from __future__ import annotations

import importlib
import shutil
from typing import Any

from occamid.errors import SettingsError


def load(package: str) -> Any:
    """An optional package, or one line that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise SettingsError(
            f"this needs the package {package}, which is not installed: "
            'pip install "occamid[export]".'
        ) from None


def compiler() -> str:
    """A C compiler of this machine, or one line that says that there is none."""
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    raise SettingsError(
        "an FMU with a binary needs a C compiler (cc, gcc or clang), and none was found; install "
        "one, or give `sources_only` for an FMU without a binary."
    )
