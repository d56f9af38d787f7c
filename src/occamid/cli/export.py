"""``occamid export``: a model for another place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from occamid.cli.shared import say
from occamid.cli.use import require_models

FORMATS = ("c", "onnx", "fmu", "st", "casadi", "json")


def export(
    run: Annotated[Path, typer.Argument(help="Run folder of identify, or a model file.")],
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}.")] = "c",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: export-FORMAT in the run folder.")
    ] = None,
    name: Annotated[str, typer.Option(help="Prefix of the names in generated code.")] = "model",
    precision: Annotated[
        str | None, typer.Option(help="double or float; default double, for ONNX float.")
    ] = None,
    jacobian: Annotated[
        bool, typer.Option("--jacobian", help="Derivatives of a step too (c).")
    ] = False,
    combine: Annotated[
        str, typer.Option(help="Centre of an ensemble: median, or mean, which is smooth.")
    ] = "median",
    sources_only: Annotated[
        bool, typer.Option("--sources-only", help="No binary inside, nothing compiled (fmu).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the files as JSON, nothing else.")
    ] = False,
) -> None:
    """Write a model for C, ONNX, FMI, a PLC, CasADi or your own code, with its recursion inside.

    Example: [bold]occamid export runs/identify --format c --out tank[/bold]
    """
    require_models([run])

    from occamid import export as exporting  # heavy
    from occamid.bands.combine import load

    told: dict[str, Any] = {
        "precision": precision,
        "jacobian": jacobian or None,
        "sources_only": sources_only or None,
    }
    options = {key: value for key, value in told.items() if value is not None}
    exporting.check_options(format, options)
    place = run if run.is_dir() else run.parent
    target = out or place / f"export-{format}"
    model = load(run)
    found = exporting.export(model, format, target, name=name, combine=combine, **options)
    if as_json:
        files = [str(path) for path in found]
        print(json.dumps({"out": str(target), "files": files, "left_out": len(model.beside)}))
        return
    if model.beside:
        say(
            "note: the run's bands and errors are those of a stack; this is its leading family "
            "alone. Identify with --single to see what that is worth by itself."
        )
    for path in found:
        say(f"{path}: {path.stat().st_size} bytes")
