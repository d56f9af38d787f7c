"""Steps of a program as C statements, with directional derivatives where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

Array = np.ndarray
UNROLL = 64  # weights of one matrix that are written out; larger ones are compressed rows


@dataclass(frozen=True)
class Value:
    """A vector in C: an expression for each entry, and the array that holds them, if one does.

    ``tangent`` is its derivative along the direction that the function was given.
    """

    items: tuple[str, ...]
    array: str | None = None
    tangent: Value | None = None


def literal(value: float, single: bool) -> str:
    """The shortest number that reads back the same, never an integer."""
    text = str(np.float32(value)) if single else repr(float(value))
    return f"{text}f" if single else text


@dataclass
class CTarget:
    """Collects the statements of one function, and the constants they need."""

    single: bool
    prefix: str
    constants: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
    tables: dict[bytes, str] = field(default_factory=dict)
    copies: dict[tuple[str, ...], str] = field(default_factory=dict)
    count: int = 0

    def begin(self) -> None:
        """A new function: constants are shared with those before, names are free again."""
        self.lines, self.copies, self.count = [], {}, 0

    def affine(
        self, parts: Sequence[tuple[Value, Float[Array, "n _"]]], bias: Float[Array, " n"]
    ) -> Value:
        """``Σ_k M_k s_k + b``, and along a direction ``Σ_k M_k ds_k``."""
        value = self._sum([(s, M) for s, M in parts], bias)
        moving = [(s.tangent, M) for s, M in parts if s.tangent is not None]
        tangent = self._sum(moving, np.zeros(len(bias))) if moving else None
        return Value(value.items, value.array, tangent)

    def _sum(self, parts: Sequence[tuple[Value, Array]], bias: Array) -> Value:
        """One vector: small matrices written out term by term, large ones as a loop."""
        small = [(s, M) for s, M in parts if np.count_nonzero(M) <= UNROLL]
        found = self._new(len(bias))
        for i, item in enumerate(found.items):
            terms = [
                f"{literal(M[i, j], self.single)} * {s.items[j]}"
                for s, M in small
                for j in np.flatnonzero(M[i])
            ]
            if bias[i] or not terms:
                terms.insert(0, literal(bias[i], self.single))
            self.lines.append(f"{item} = {' + '.join(terms)};")
        for s, M in parts:
            if np.count_nonzero(M) > UNROLL:
                self._rows(found, M, self._whole(s))
        return found

    def _rows(self, found: Value, M: Array, source: str) -> None:
        """``found += M source`` with compressed rows, or plain ones where nothing is pruned."""
        n, m = M.shape
        if np.all(M):
            table = self._table(M.ravel(), "w")
            self.functions.add("dense")
            self.lines.append(f"add_dense({found.array}, {n}, {m}, {table}, {source});")
            return
        rows, columns = np.nonzero(M)
        values = self._table(M[rows, columns], "w")
        places = self._table(columns, "j")
        counts = self._table(np.bincount(rows, minlength=n), "n")
        self.functions.add("sparse")
        self.lines.append(
            f"add_sparse({found.array}, {n}, {counts}, {places}, {values}, {source});"
        )

    def _table(self, values: Array, letter: str) -> str:
        """A constant array; the derivative shares that of the value."""
        whole = values.dtype.kind in "iu"
        key = letter.encode() + values.tobytes()
        if key not in self.tables:
            name = f"{self.prefix}{letter}{len(self.tables)}"
            kind = "unsigned short" if whole else "real"
            items = [str(v) if whole else literal(v, self.single) for v in values]
            body = ",\n    ".join(", ".join(items[k : k + 8]) for k in range(0, len(items), 8))
            self.constants.append(f"static const {kind} {name}[{len(items)}] = {{\n    {body}}};")
            self.tables[key] = name
        return self.tables[key]

    def _whole(self, value: Value) -> str:
        """The array of a vector, copied together where it has none."""
        if value.array is not None:
            return value.array
        if value.items not in self.copies:
            found = self._new(len(value.items))
            self.lines += [f"{a} = {b};" for a, b in zip(found.items, value.items, strict=True)]
            self.copies[value.items] = str(found.array)
        return self.copies[value.items]

    def _new(self, size: int) -> Value:
        name = f"v{self.count}"
        self.count += 1
        self.lines.append(f"real {name}[{size}];")
        return Value(tuple(f"{name}[{i}]" for i in range(size)), name)

    def activate(self, source: Value, function: str) -> Value:
        """``σ(s)`` and ``σ'(s) ds``."""
        self.functions.add(function)
        found = self._new(len(source.items))
        n, whole = len(source.items), self._whole(source)
        self._loop(n, f"{found.array}[i] = act_{function}({whole}[i]);")
        if source.tangent is None:
            return found
        self.functions.add(f"d_{function}")
        tangent, along = self._new(n), self._whole(source.tangent)
        self._loop(n, f"{tangent.array}[i] = slope_{function}({whole}[i]) * {along}[i];")
        return Value(found.items, found.array, tangent)

    def products(self, pairs: Sequence[tuple[Value, Value]]) -> Value:
        """``Σ_k a_k ⊙ b_k`` and ``Σ_k da_k ⊙ b_k + a_k ⊙ db_k``."""
        n = len(pairs[0][0].items)
        found = self._new(n)
        flat = [(self._whole(a), self._whole(b)) for a, b in pairs]
        self._loop(
            n, f"{found.array}[i] = " + " + ".join(f"{a}[i] * {b}[i]" for a, b in flat) + ";"
        )
        moving = []
        for (a, b), (left, right) in zip(pairs, flat, strict=True):
            if a.tangent is not None:
                moving.append((self._whole(a.tangent), right))
            if b.tangent is not None:
                moving.append((left, self._whole(b.tangent)))
        if not moving:
            return found
        tangent = self._new(n)
        terms = " + ".join(f"{a}[i] * {b}[i]" for a, b in moving)
        self._loop(n, f"{tangent.array}[i] = {terms};")
        return Value(found.items, found.array, tangent)

    def _loop(self, n: int, body: str) -> None:
        if n == 1:
            self.lines.append(body.replace("[i]", "[0]"))
        else:
            self.lines.append(f"for (i = 0; i < {n}; ++i) {body}")
