"""Models for other places: C, ONNX, FMU, PLC text, CasADi and JSON, with the recursion inside.

A model or an ensemble becomes a plain description (:mod:`occamid.export.description`); every
format is made from that description alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from occamid.bands.ensemble import Ensemble
from occamid.errors import SettingsError, check_choice
from occamid.export import c, casadi, fmu, folder, onnx, plainjson, st
from occamid.export.description import Description, check_single, describe
from occamid.training.model import Model

FORMATS: dict[str, Callable[..., Mapping[str, str | bytes]]] = {
    "c": c.files,
    "onnx": onnx.files,
    "fmu": fmu.files,
    "st": st.files,
    "casadi": casadi.files,
    "json": plainjson.files,
}

OPTIONS: dict[str, tuple[str, ...]] = {
    "c": ("precision", "jacobian"),
    "onnx": ("precision",),
    "fmu": ("precision", "sources_only"),
    "st": ("precision",),
    "casadi": (),
    "json": (),
}

__all__ = ["FORMATS", "Description", "check_options", "describe", "export"]


def check_options(format: str, options: Mapping[str, Any]) -> None:
    """Refuse a format that is unknown, and options that it does not have."""
    check_choice("format", format, FORMATS)
    for key in options:
        if key not in OPTIONS[format]:
            having = ", ".join(f for f, known in OPTIONS.items() if key in known)
            raise SettingsError(
                f"format {format} has no option {key}; it is for {having or 'none'}."
            )


def export(
    model: Model | Ensemble | Description,
    format: str,
    out: str | Path,
    *,
    name: str = "model",
    combine: str = "median",
    **options: Any,
) -> tuple[Path, ...]:
    """Write a model in a format of :data:`FORMATS` to a folder; returns the files.

    Args:
        model: a model, or an ensemble, whose members then run side by side.
        format: ``c``, ``onnx``, ``fmu``, ``st``, ``casadi`` or ``json``.
        out: folder; it must be empty, not exist, or hold an export that nobody has changed.
        name: prefix of names in generated code.
        combine: the centre of an ensemble, ``median`` or ``mean``.
        options: ``precision`` ("double" or "float"; c, onnx, fmu, st), ``jacobian`` (c),
            ``sources_only`` (fmu).
    """
    check_options(format, options)
    with folder.place(Path(out)) as place:
        description = describe(model, combine)
        if options.get("precision", "float" if format == "onnx" else "double") == "float":
            check_single(description)
        files = FORMATS[format](description, name, **options)
        return folder.write(files, place, {"format": format, "name": name})
