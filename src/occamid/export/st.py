"""IEC 61131-3 Structured Text: a function block for a PLC, written out in plain statements.

Only what every PLC has is used: ``REAL`` or ``LREAL``, one-dimensional arrays, ``FOR``, ``IF``,
``EXP``, ``LN`` and ``ABS``.  The hyperbolic tangent is ``1 − 2 / (EXP(2x) + 1)`` within ±20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from occamid.errors import check_choice
from occamid.export import recursion
from occamid.export.c import templates
from occamid.export.ctarget import UNROLL
from occamid.export.description import Description
from occamid.export.names import identifier, identifiers, shown
from occamid.export.program import run

Array = np.ndarray
Precision = Literal["double", "float"]
TYPES = {"double": "LREAL", "float": "REAL"}
LINE = 8  # terms of a sum on one line, numbers of a table on one line


def literal(value: float, single: bool = False) -> str:
    """A real constant: IEC asks for a decimal point, also before an exponent."""
    text = str(np.float32(value)) if single else repr(float(value))
    mantissa, _, exponent = text.partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}E{int(exponent)}" if exponent else mantissa


@dataclass(frozen=True)
class Value:
    """A vector: an expression for each entry, and the array that holds them, if one does."""

    items: tuple[str, ...]
    array: str | None = None


@dataclass
class Text:
    """The target that collects statements, arrays and tables."""

    single: bool
    lines: list[str] = field(default_factory=list)
    arrays: list[tuple[str, int]] = field(default_factory=list)
    tables: list[tuple[str, str, list[str]]] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    copies: dict[tuple[str, ...], str] = field(default_factory=dict)

    def affine(
        self, parts: Sequence[tuple[Value, Float[Array, "n _"]]], bias: Float[Array, " n"]
    ) -> Value:
        """``Σ_k M_k s_k + b``: small matrices term by term, large ones as loops over tables."""
        found = self._new(len(bias))
        small = [(s, M) for s, M in parts if np.count_nonzero(M) <= UNROLL]
        for i, item in enumerate(found.items):
            terms = [
                f"({literal(M[i, j], self.single)} * {s.items[j]})"
                for s, M in small
                for j in np.flatnonzero(M[i])
            ]
            terms.insert(0, literal(bias[i], self.single))
            for k in range(0, len(terms), LINE):
                ahead = f"{item} + " if k else ""
                self.lines.append(f"{item} := {ahead}{' + '.join(terms[k : k + LINE])};")
        for s, M in parts:
            if np.count_nonzero(M) > UNROLL:
                self._rows(found, M, self._whole(s))
        return found

    def _rows(self, found: Value, M: Array, source: str) -> None:
        """``found += M source`` with compressed rows."""
        rows, columns = np.nonzero(M)
        k = len(self.tables)
        values = [literal(v, self.single) for v in M[rows, columns]]
        self.tables.append((f"w{k}", TYPES["float" if self.single else "double"], values))
        self.tables.append((f"c{k}", "DINT", [str(c) for c in columns]))
        self.tables.append((f"r{k}", "DINT", [str(r) for r in rows]))
        target = f"{found.array}[r{k}[i]]"
        self.lines += [
            f"FOR i := 0 TO {len(values) - 1} DO",
            f"    {target} := {target} + (w{k}[i] * {source}[c{k}[i]]);",
            "END_FOR;",
        ]

    def _whole(self, value: Value) -> str:
        """The array of a vector, copied together where it has none."""
        if value.array is not None:
            return value.array
        if value.items not in self.copies:
            found = self._new(len(value.items))
            self.lines += [f"{a} := {b};" for a, b in zip(found.items, value.items, strict=True)]
            self.copies[value.items] = str(found.array)
        return self.copies[value.items]

    def _new(self, size: int) -> Value:
        name = f"v{len(self.arrays)}"
        self.arrays.append((name, size))
        return Value(tuple(f"{name}[{i}]" for i in range(size)), name)

    def activate(self, source: Value, function: str) -> Value:
        """``σ(s)`` by a function of the file."""
        self.functions.add(function)
        found, whole = self._new(len(source.items)), self._whole(source)
        self.lines += [
            f"FOR i := 0 TO {len(source.items) - 1} DO",
            f"    {found.array}[i] := {{prefix}}_{function}(x := {whole}[i]);",
            "END_FOR;",
        ]
        return found

    def products(self, pairs: Sequence[tuple[Value, Value]]) -> Value:
        """``Σ_k a_k ⊙ b_k``."""
        n = len(pairs[0][0].items)
        found = self._new(n)
        terms = [f"({self._whole(a)}[i] * {self._whole(b)}[i])" for a, b in pairs]
        self.lines += [
            f"FOR i := 0 TO {n - 1} DO",
            f"    {found.array}[i] := {' + '.join(terms)};",
            "END_FOR;",
        ]
        return found


# The activation functions; @ is the function's own name, # the prefix of the others.
BODIES = {
    "tanh": [
        "IF x > 20.0 THEN @ := 1.0;",
        "ELSIF x < -20.0 THEN @ := -1.0;",
        "ELSE @ := 1.0 - (2.0 / (EXP(2.0 * x) + 1.0));",
        "END_IF;",
    ],
    "relu": ["IF x > 0.0 THEN @ := x; ELSE @ := 0.0; END_IF;"],
    "sigmoid": ["@ := 0.5 * (1.0 + #tanh(x := 0.5 * x));"],
    "silu": ["@ := 0.5 * x * (1.0 + #tanh(x := 0.5 * x));"],
    "softplus": [
        "IF x > 20.0 THEN @ := x + EXP(-x);",
        "ELSIF x < -20.0 THEN @ := EXP(x);",
        "ELSE @ := LN(1.0 + EXP(x));",
        "END_IF;",
    ],
    "elu": ["IF x > 0.0 THEN @ := x; ELSE @ := EXP(x) - 1.0; END_IF;"],
    "gelu": [
        "@ := 0.5 * x * (1.0 + #tanh(x := 0.79788456080286536 * (x + (0.044715 * x * x * x))));"
    ],
}
BY_TANH = {"sigmoid", "silu", "gelu"}


def files(d: Description, name: str = "model", precision: Precision = "double") -> dict[str, str]:
    """``NAME.st`` with the function block and its functions."""
    check_choice("precision", precision, TYPES)
    word = identifier(name)
    values = context(d, f"FB_{word}", precision == "float")  # no word of the language begins so
    return {f"{word}.st": templates.get_template("block.st.j2").render(values)}


def context(d: Description, word: str, single: bool) -> dict[str, Any]:
    """What the template fills in."""
    text = Text(single)
    for k in range(len(d.members)):
        _member(d, text, k)
    inside = [line.replace("{prefix}", word) for line in text.lines]
    s = d.scaling
    number = lambda v: literal(float(v), single)  # noqa: E731
    start = recursion.initial_state(d)
    used = text.functions | ({"tanh"} if text.functions & BY_TANH else set())
    return {
        "name": word,
        "version": version("occamid"),
        "real": TYPES["float" if single else "double"],
        "sampling_time": f"{d.sampling_time:.9g}",
        "inputs": _channels(d.input_names, "in", s.u_offset, s.u_scale, number),
        "outputs": _channels(d.output_names, "out", s.y_offset, s.y_scale, number),
        "functions": [
            {
                "name": f"{word}_{n}",
                "lines": [
                    x.replace("@", f"{word}_{n}").replace("#", f"{word}_") for x in BODIES[n]
                ],
            }
            for n in BODIES
            if n in used
        ],
        "tables": [(n, kind, len(v) - 1, _table(v)) for n, kind, v in text.tables],
        "arrays": text.arrays,
        "lines": inside,
        "members": len(d.members),
        "shares": ", ".join(number(m.share) for m in d.members),
        "combine": d.combine if len(d.members) > 1 else "only",
        "half_low": number(0.5 - (1e-5 if single else 1e-12)),
        "half_high": number(0.5 + (1e-5 if single else 1e-12)),
        "registers": [r for r in d.registers if r.kind != "x"],
        "carried": [r for r in d.registers if r.kind == "x"],
        "initial": [(i, number(v)) for i, v in enumerate(start) if v],
        "nx": max(d.size, 1),
        "recurrent": d.recurrent,
        "start": d.start,
    }


def _table(values: list[str]) -> list[str]:
    rows = [", ".join(values[k : k + LINE]) for k in range(0, len(values), LINE)]
    return [row + ("," if k < len(rows) - 1 else "") for k, row in enumerate(rows)]


def _channels(
    names: Sequence[str], prefix: str, offset: Array, scale: Array, number: Any
) -> list[dict[str, str]]:
    words = identifiers(names, prefix)
    return [
        {"word": w, "shown": shown(n), "offset": number(a), "scale": number(b)}
        for w, n, a, b in zip(words, names, offset, scale, strict=True)
    ]


def _member(d: Description, text: Text, k: int) -> None:
    """The statements of one member: its output to ``w``, what it carries to ``n``."""
    text.copies = {}
    member = d.members[k]
    items = [
        f"x[{d.place('u', -1, c).offset + lag - 1}]" if lag else f"u[{c}]"
        for c, lag in member.inputs
    ] + [f"x[{d.place('y', k, c).offset + lag - 1}]" for c, lag in member.outputs]
    kept = {}
    for name in member.step.carried:
        r = d.place("x", k, name=name)
        kept[name] = Value(tuple(f"x[{i}]" for i in range(r.offset, r.end)))
    text.lines.append(f"(* member {k + 1} *)")
    w, after = run(member.step, text, Value(tuple(items)), kept)
    text.lines += [f"w[{k * d.ny + c}] := {item};" for c, item in enumerate(w.items)]
    for name, value in after.items():
        r = d.place("x", k, name=name)
        text.lines += [f"x[{r.offset + i}] := {item};" for i, item in enumerate(value.items)]
