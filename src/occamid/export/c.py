"""C99: one header and one source file, with a self-test and a README beside them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from occamid.errors import check_choice
from occamid.export import recursion
from occamid.export.ctarget import CTarget, Value, literal
from occamid.export.description import Description
from occamid.export.names import identifier, identifiers, shown
from occamid.export.program import run

Array = np.ndarray
Precision = Literal["double", "float"]
AGREES = {"double": 1e-9, "float": 1e-4}  # of an output's scale: what the self-test allows
ROUNDED = 8  # units of the last digit of an output that the self-test allows, too
TEST_SAMPLES = 40

templates = Environment(
    loader=PackageLoader("occamid.export"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=False,
)

# Values and slopes of the activation functions; F is the suffix of single precision.
BODIES = {
    "relu": "return x > 0 ? x : 0;",
    "tanh": "return tanhF(x);",
    "sigmoid": "return (real)0.5 * (1 + tanhF((real)0.5 * x));",
    "silu": "return (real)0.5 * x * (1 + tanhF((real)0.5 * x));",
    "softplus": "return x > 0 ? x + log1pF(expF(-x)) : log1pF(expF(x));",
    "elu": "return x > 0 ? x : expm1F(x);",
    "gelu": "return (real)0.5 * x * "
    "(1 + tanhF((real)0.79788456080286536 * (x + (real)0.044715 * x * x * x)));",
}
SLOPES = {
    "relu": "return x > 0 ? 1 : 0;",
    "tanh": "const real t = tanhF(x); return 1 - t * t;",
    "sigmoid": "const real t = tanhF((real)0.5 * x); return (real)0.25 * (1 - t * t);",
    "silu": "const real s = (real)0.5 * (1 + tanhF((real)0.5 * x)); return s * (1 + x * (1 - s));",
    "softplus": "return (real)0.5 * (1 + tanhF((real)0.5 * x));",
    "elu": "return x > 0 ? 1 : expF(x);",
    "gelu": "const real c = (real)0.79788456080286536, q = (real)0.044715 * x * x, "
    "t = tanhF(c * x * (1 + q)); "
    "return (real)0.5 * (1 + t + x * (1 - t * t) * c * (1 + 3 * q));",
}


def files(
    d: Description,
    name: str = "model",
    precision: Precision = "double",
    jacobian: bool = False,
) -> dict[str, str]:
    """Header, source, self-test and README by file name."""
    check_choice("precision", precision, AGREES)
    word = identifier(name)
    values = context(d, word, precision, jacobian)
    test = self_test(d, precision)
    return {
        f"{word}.h": templates.get_template("model.h.j2").render(values),
        f"{word}.c": templates.get_template("model.c.j2").render(values),
        f"{word}_test.c": templates.get_template("test.c.j2").render({"name": word} | test),
        "README.md": templates.get_template("c.md.j2").render(values | counts(d, precision)),
    }


def context(d: Description, word: str, precision: Precision, jacobian: bool) -> dict[str, Any]:
    """What the templates fill in."""
    single = precision == "float"
    number = lambda value: literal(float(value), single)  # noqa: E731
    target = CTarget(single, "k_")
    members = [_member(d, target, k, moving=False) for k in range(len(d.members))]
    tangents = (
        [_member(d, target, k, moving=True) for k in range(len(d.members))] if jacobian else []
    )
    shifts = [r for r in d.registers if r.kind != "x"]
    s = d.scaling
    unused = [] if any(r.kind == "u" for r in shifts) else ["(void)v;"]
    unused += [] if any(r.kind == "y" for r in shifts) else ["(void)fed;", "(void)stride;"]
    unused += [] if shifts else ["(void)s;"]
    start = recursion.initial_state(d)
    return {
        "title": f"A model with {len(members)} member{'s' if len(members) > 1 else ''}",
        "version": version("occamid"),
        "name": word,
        "guard": f"{word.upper()}_H",
        "real": precision,
        "sampling_time": f"{d.sampling_time:.9g}",
        "inputs": _channels(d.input_names, "in"),
        "outputs": _channels(d.output_names, "out"),
        "nx": d.size,
        "start": d.start,
        "recurrent": d.recurrent and d.start > 0,  # then samples are counted
        "jacobian": jacobian,
        "kernels": {kind: kind in target.functions for kind in ("dense", "sparse")},
        "functions": _functions(target.functions, single),
        "constants": target.constants,
        "members": members,
        "tangents": tangents,
        "shares": [number(member.share) for member in d.members],
        "centre": d.combine if len(members) > 1 else "only",
        "half": number(0.5),
        "half_low": number(0.5 - (1e-5 if single else 1e-12)),
        "zero": number(0.0),
        "one": number(1.0),
        "u_scaling": [(number(a), number(b)) for a, b in zip(s.u_offset, s.u_scale, strict=True)],
        "y_scaling": [(number(a), number(b)) for a, b in zip(s.y_offset, s.y_scale, strict=True)],
        "shifts": shifts,
        "initial": [
            (i, number(start[i]))
            for r in d.registers
            if r.kind != "y"
            for i in range(r.offset, r.end)
            if start[i]
        ],
        "unused": unused,
    }


def _channels(names: Sequence[str], prefix: str) -> list[dict[str, str]]:
    words = identifiers(names, prefix)
    return [{"word": w, "shown": shown(n)} for w, n in zip(words, names, strict=True)]


def _functions(used: set[str], single: bool) -> list[dict[str, str]]:
    """The activation functions that occur, and their slopes."""
    suffix = "f" if single else ""
    found = []
    for start, bodies, key in (("act_", BODIES, "{}"), ("slope_", SLOPES, "d_{}")):
        for name, body in bodies.items():
            if key.format(name) in used:
                text = body
                for call in ("tanh", "log1p", "expm1", "exp"):
                    text = text.replace(f"{call}F(", f"{call}{suffix}(")
                found.append({"name": f"{start}{name}", "body": text})
    return found


def _member(d: Description, target: CTarget, k: int, moving: bool) -> dict[str, Any]:
    """The statements of one member's step, or of its step along a direction."""
    target.begin()
    member = d.members[k]

    def items(array: str, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"{array}[{i}]" for i in places)

    def read(pairs: Sequence[tuple[str, int]]) -> Value:
        own = tuple(f"{array}[{i}]" for array, i in pairs)
        return Value(own, None, Value(tuple(f"d{item}" for item in own)) if moving else None)

    z = [
        ("x", d.place("u", -1, c).offset + lag - 1) if lag else ("v", c) for c, lag in member.inputs
    ] + [("x", d.place("y", k, c).offset + lag - 1) for c, lag in member.outputs]
    kept = {}
    for name in member.step.carried:
        r = d.place("x", k, name=name)
        along = Value(items("dx", range(r.offset, r.end)), f"(dx + {r.offset})") if moving else None
        kept[name] = Value(items("x", range(r.offset, r.end)), f"(x + {r.offset})", along)
    w, after = run(member.step, target, read(z), kept)
    _store(d, target, k, w, after, moving)
    used = " ".join(target.lines)
    loops = "(i = 0" in used
    arguments = ("x", "v", "dx", "dv") if moving else ("x", "v")
    unused = [f"(void){a};" for a in arguments if f"{a}[" not in used and f"({a} +" not in used]
    if moving:  # a value of which only the movement is wanted
        unused += [f"(void)v{i};" for i in range(target.count)]
        unused += [] if member.step.carried else ["(void)dn;"]
    return {
        "lines": list(target.lines),
        "loops": loops,
        "unused": unused,
        "used": True,
        "carries": bool(member.step.carried),
    }


def _store(
    d: Description, target: CTarget, k: int, w: Value, after: dict[str, Value], moving: bool
) -> None:
    """Results to where the caller wants them; nothing reads the old state after this."""
    lines = target.lines
    lines += [f"w[{c}] = {item};" for c, item in enumerate(w.items)]
    if moving:
        along = w.tangent.items if w.tangent else ["0"] * len(w.items)
        lines += [f"dw[{c}] = {item};" for c, item in enumerate(along)]
    for name, value in after.items():
        r = d.place("x", k, name=name)
        source = value if not moving else value.tangent
        array = "dn" if moving else "x"
        if source is None or source.array is None:
            items = ["0"] * r.length if source is None else source.items
            lines += [f"{array}[{r.offset + i}] = {item};" for i, item in enumerate(items)]
        else:
            lines.append(
                f"for (i = 0; i < {r.length}; ++i) {array}[{r.offset} + i] = {source.array}[i];"
            )


def self_test(d: Description, precision: Precision) -> dict[str, Any]:
    """Random inputs within the range of the data and the outputs of the reference, as text."""
    rng, s = np.random.default_rng(0), d.scaling
    known = d.start + 5
    u = s.u_mean + s.u_std * rng.standard_normal((known + TEST_SAMPLES, d.nu))
    y = s.y_mean + 0.5 * s.y_std * rng.standard_normal((known, d.ny))
    if precision == "float":  # what the program will really see
        u, y = u.astype(np.float32).astype(float), y.astype(np.float32).astype(float)
    rows = []
    x, target = recursion.initial_state(d, y[0]), recursion.Numbers()
    for t, now in enumerate(u):
        measured = y[t] if t < known else np.zeros(d.ny)
        if t < d.start and d.recurrent:
            x, out = recursion.fill(d, target, x, now, measured), measured
        else:
            x, out = recursion.step(d, target, x, now, measured if t < known else None)
        rows.append([f"{value:.17g}" for value in (*now, *measured, *out)])
    outputs = np.array([row[-d.ny :] for row in rows], dtype=float)
    size = np.abs(outputs - s.y_mean).max(axis=0)
    rounding = ROUNDED * np.finfo(np.float32 if precision == "float" else float).eps
    allowed = AGREES[precision] * np.maximum(size, s.y_scale) + rounding * np.abs(outputs).max(0)
    return {"rows": rows, "known": known, "allowed": [f"{value:.3g}" for value in allowed]}


def counts(d: Description, precision: Precision) -> dict[str, Any]:
    """Sizes and operations of one step, for the README."""
    width = 4 if precision == "float" else 8
    activations: dict[str, int] = {}
    for member in d.members:
        for function, count in member.step.activations().items():
            activations[function] = activations.get(function, 0) + count
    return {
        "multiplications": sum(member.step.multiplications for member in d.members),
        "activations": activations,
        "weights": sum(member.step.constants for member in d.members),
        "constant_bytes": width * sum(member.step.constants for member in d.members),
        "state_bytes": width * max(d.size, 1) + (4 if d.recurrent else 0),
        "moves": sum(r.length for r in d.registers if r.kind != "x"),
        "state": _pieces(d),
    }


def _pieces(d: Description) -> list[dict[str, Any]]:
    """The places of the state, for people."""
    found = []
    for r in d.registers:
        what = "carried by the network" if r.kind == "x" else "newest first, scaled"
        owner = "all members" if r.kind == "u" else f"member {r.member + 1}"
        places = f"{r.offset}–{r.end - 1}" if r.length > 1 else str(r.offset)
        found.append({"places": places, "name": shown(r.name), "owner": owner, "what": what})
    return found
