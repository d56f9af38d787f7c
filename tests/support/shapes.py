"""Run-time checks of the arrays' annotations: shapes and kinds of numbers, nothing else.

Whether a setting is a number, or a file a path, is for occamid to say, and tested as such.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook

# What makes arrays of whatever it is given, and has its own tests of that.
CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float
CONVERTING = ("Record.__init__",)


def check_shapes() -> None:
    """From now on occamid is imported with its checks; it must not have been imported before."""
    assert "occamid" not in sys.modules
    install_import_hook("occamid", f"{__name__}.arrays_only")


def arrays_only(function: Callable[..., Any]) -> Callable[..., Any]:
    """Beartype for the annotations of a function that speak of arrays."""
    hints = {name: hint for name, hint in _hints(function).items() if _speaks_of_arrays(hint)}
    if not hints or function.__qualname__ in CONVERTING:
        return function
    function.__annotations__ = {n: hints.get(n, Any) for n in function.__annotations__}
    return beartype(conf=CONF)(function)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    module = sys.modules.get(function.__module__)
    names = {**vars(module), **getattr(function, "__globals__", {})} if module else {}
    return get_type_hints(function, names, include_extras=True)


def _speaks_of_arrays(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_speaks_of_arrays, get_args(hint)))
