"""FMUs: FMI 2.0 and 3.0 for Co-Simulation around the exported C, with sources and a binary.

After the step from t to t + h the outputs are those of the sample that began at t, computed with
the inputs that were set before the step.  A step may be of any length: the samples that fall into
it are computed with the inputs held.  While ``use_measured`` is true, the measured outputs are
remembered instead of the model's own.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from occamid.errors import SettingsError
from occamid.export import c
from occamid.export.description import Description
from occamid.export.names import distinct, identifier, xml
from occamid.export.needs import compiler

HEADERS = {
    2: ("fmi2TypesPlatform.h", "fmi2FunctionTypes.h", "fmi2Functions.h"),
    3: ("fmi3PlatformTypes.h", "fmi3FunctionTypes.h", "fmi3Functions.h"),
}
BINARIES = {2: "linux64", 3: "x86_64-linux"}
FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter")
UNIT = re.compile(r"\[([^\[\]]{1,30})\]\s*$")
EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in the archive, so that equal models give equal files

markup = Environment(
    loader=PackageLoader("occamid.export"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    autoescape=True,
)


class Variable(NamedTuple):
    """A variable of the model description; its reference is its place among the values."""

    name: str
    reference: int
    causality: str
    variability: str
    start: str | None
    unit: str
    about: str
    kind: str = "Real"


def files(
    d: Description,
    name: str = "model",
    precision: c.Precision = "double",
    sources_only: bool = False,
) -> dict[str, bytes]:
    """``NAME-fmi2.fmu`` and ``NAME-fmi3.fmu``."""
    cc = None if sources_only else compiler()
    if cc and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SettingsError(
            "a binary for Linux x86-64 can only be built there; give `sources_only` for an FMU "
            "without one."
        )
    word = identifier(name)
    code = c.files(d, name, precision)
    values = context(d, word, name, code[f"{word}.c"])
    found = {}
    for fmi in (2, 3):
        sources = {f"{word}.h": code[f"{word}.h"], f"{word}.c": code[f"{word}.c"]}
        sources["fmu.h"] = c.templates.get_template("fmu.h.j2").render(values)
        for header in HEADERS[fmi]:
            sources[header] = resources("occamid.export").joinpath("fmi", header).read_text("utf-8")
        wrapper = c.templates.get_template(f"fmi{fmi}.c.j2").render(values | {"stubs": ""})
        sources[f"fmi{fmi}.c"] = c.templates.get_template(f"fmi{fmi}.c.j2").render(
            values | {"stubs": stubs(fmi, wrapper)}
        )
        inside: dict[str, bytes] = {
            "modelDescription.xml": markup.get_template(f"fmi{fmi}.xml.j2").render(values).encode()
        }
        inside |= {f"sources/{n}": text.encode() for n, text in sources.items()}
        if fmi == 3:
            inside["sources/buildDescription.xml"] = (
                markup.get_template("build.xml.j2").render(values).encode()
            )
        if cc:
            path = f"binaries/{BINARIES[fmi]}/{word}.so"
            inside[path] = build(cc, sources, (f"{word}.c", f"fmi{fmi}.c"))
        found[f"{word}-fmi{fmi}.fmu"] = archive(inside)
    return found


def context(d: Description, word: str, name: str, code: str) -> dict[str, Any]:
    """What the templates fill in; the token changes with the model."""
    variables = _variables(d)
    digest = hashlib.sha256(code.encode()).hexdigest()
    reals = [v for v in variables if v.kind == "Real"]
    listed = [v for v in variables if v.causality != "independent"]
    return {
        "name": word,
        "model_name": xml(name)[:200],
        "version": version("occamid"),
        "token": f"{{{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}}}",
        "sampling_time": repr(d.sampling_time),
        "variables": variables,
        "units": sorted({v.unit for v in variables if v.unit}),
        "starts": [v.start or "0.0" for v in reals],
        "output_places": [i for i, v in enumerate(listed, start=1) if v.causality == "output"],
        "place": {
            "u": 1,
            "measured": 1 + d.nu,
            "start": 1 + d.nu + d.ny,
            "y": 1 + d.nu + 2 * d.ny,
            "end": 1 + d.nu + 3 * d.ny,
        },
    }


def _variables(d: Description) -> list[Variable]:
    """Time, inputs, measured outputs, start values, outputs, and the switch, in this order."""
    s, out = d.scaling, [xml(n) for n in d.output_names]
    rows: list[tuple[str, str, str, float | None, str, str]] = [
        ("time", "independent", "continuous", None, "s", "time")
    ]
    for n, mean in zip(d.input_names, s.u_mean, strict=True):
        rows.append((xml(n), "input", "discrete", float(mean), unit(n), "input"))
    for n, label, mean in zip(d.output_names, out, s.y_mean, strict=True):
        about = "measured output, used while use_measured is true"
        rows.append((f"{label}_measured", "input", "discrete", float(mean), unit(n), about))
    for n, label, mean in zip(d.output_names, out, s.y_mean, strict=True):
        about = "output before the first sample"
        rows.append((f"{label}_start", "parameter", "fixed", float(mean), unit(n), about))
    for n, label in zip(d.output_names, out, strict=True):
        rows.append((label, "output", "discrete", None, unit(n), "output"))
    names = distinct([row[0] for row in rows] + ["use_measured"])
    found = [
        Variable(names[i], i, causality, variability, None if v is None else repr(v), u, about)
        for i, (_, causality, variability, v, u, about) in enumerate(rows)
    ]
    about = "remember the measured outputs instead of the model's own"
    switch = Variable(names[-1], len(rows), "input", "discrete", "false", "", about, kind="Boolean")
    return [*found, switch]


def unit(name: str) -> str:
    """The unit in brackets at the end of a column's name, such as ``level [m]``."""
    found = UNIT.search(name)
    return xml(found[1].strip()) if found and found[1].strip() else ""


def stubs(fmi: int, written: str) -> str:
    """The functions of the standard that ``written`` lacks, each returning an error."""
    header = resources("occamid.export").joinpath("fmi", HEADERS[fmi][1]).read_text("utf-8")
    plain = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    found = []
    for result, name, arguments in re.findall(
        r"typedef\s+(fmi\d\w+)\s+(fmi\d\w+)TYPE\s*\(([^;]*)\);", plain
    ):
        if not re.search(rf"\b{name}\(", written):
            words = " ".join(arguments.split())
            fail = "NULL" if result.endswith("Instance") else f"fmi{fmi}Error"
            found.append(f"{result} {name}({_named(words)}) {{ return {fail}; }}")
    return "\n".join(found) + "\n"


def _named(arguments: str) -> str:
    """Arguments with a name each: the standard leaves one out."""
    return arguments.replace("fmi2Byte[]", "fmi2Byte bytes[]")


def build(cc: str, sources: Mapping[str, str], units: tuple[str, ...]) -> bytes:
    """A shared library of these sources."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in sources.items():
            (Path(scratch) / name).write_text(text, encoding="utf-8")
        command = [cc, *FLAGS, *units, "-lm", "-o", "model.so"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[0]
            raise SettingsError(f"{cc} could not build the FMU ({reason}); give `sources_only`.")
        return (Path(scratch) / "model.so").read_bytes()


def archive(inside: Mapping[str, bytes]) -> bytes:
    """A zip file with fixed dates."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in inside.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            target.writestr(info, data)
    return buffer.getvalue()
