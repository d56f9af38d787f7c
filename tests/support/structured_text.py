"""A grammar of the Structured Text we emit, and a translation to Python that runs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lark
import numpy as np

GRAMMAR = r"""
start: unit+
unit: "FUNCTION" NAME ":" TYPE block* statement* "END_FUNCTION" -> function
    | "FUNCTION_BLOCK" NAME block* statement* "END_FUNCTION_BLOCK" -> function_block
block: BLOCK "CONSTANT"? declaration* "END_VAR"
BLOCK.5: /VAR(_INPUT|_OUTPUT)?\b/
declaration: NAME ":" TYPE [":=" value] ";" -> scalar
    | NAME ":" "ARRAY" "[" INT ".." INT "]" "OF" TYPE [":=" "[" value ("," value)* "]"] ";" -> array
value: [MINUS] (NUMBER | INT)
TYPE.5: /(LREAL|REAL|BOOL|DINT|INT)\b/
statement: target ":=" expression ";" -> assign
    | "IF" expression "THEN" body elsif* ["ELSE" body] "END_IF" ";" -> if_
    | "FOR" NAME ":=" expression "TO" expression ["BY" expression] "DO" body "END_FOR" ";" -> for_
elsif: "ELSIF" expression "THEN" body
body: statement*
target: NAME ["[" expression "]"]
?expression: conjunction | expression "OR" conjunction -> or_
?conjunction: comparison | conjunction "AND" comparison -> and_
?comparison: sum | sum COMPARE sum -> compare
?sum: product | sum (PLUS | MINUS) product -> binary
?product: unary | product TIMES unary -> binary
?unary: atom | MINUS unary -> negative | "NOT" unary -> not_
?atom: NUMBER -> number | INT -> number | "TRUE" -> true | "FALSE" -> false
    | NAME "(" [NAME ":="] expression ")" -> call
    | target | "(" expression ")"
COMPARE: "<=" | ">=" | "<>" | "<" | ">" | "="
PLUS: "+"
MINUS: "-"
TIMES: "*" | "/" | "MOD"
NUMBER.3: /\d+\.\d+(E[+-]?\d+)?/
INT: /\d+/
NAME: /[A-Za-z]([A-Za-z0-9]|_(?!_))*/
COMMENT: /\(\*(.|\n)*?\*\)/
%import common.WS
%ignore WS
%ignore COMMENT
"""
parser = lark.Lark(GRAMMAR, parser="lalr")


class Block:
    """An instance of a function block: its variables by lower-case name, and one scan."""

    def __init__(self, tree: Any, functions: dict[str, Callable[..., float]], kind: type) -> None:
        self.kind, self.functions = kind, functions
        self.values: dict[str, Any] = {}
        name, *parts = tree.children
        self.name = str(name)
        self.body = [p for p in parts if p.data != "block"]
        for block in (p for p in parts if p.data == "block"):
            for declared in block.children[1:]:
                self._declare(declared)

    def _declare(self, tree: Any) -> None:
        items = [c for c in tree.children if c is not None]
        values = [c.children for c in items if getattr(c, "data", "") == "value"]
        given = [float(f"{sign or ''}{number}") for sign, number in values]
        words = [str(c) for c in items if not hasattr(c, "data")]
        assert words[0].lower() not in self.values, words[0]
        if tree.data == "array":
            size = int(words[2]) - int(words[1]) + 1
            assert not given or len(given) == size
            whole = words[3] == "DINT"
            start = given or [0.0] * size
            self.values[words[0].lower()] = [int(v) if whole else self.kind(v) for v in start]
        elif words[1] in ("BOOL", "DINT"):
            self.values[words[0].lower()] = False if words[1] == "BOOL" else 0
        else:
            self.values[words[0].lower()] = self.kind(given[0] if given else 0.0)

    def call(self, **inputs: Any) -> None:
        for name, value in inputs.items():
            assert name.lower() in self.values, name
            self.values[name.lower()] = value if isinstance(value, bool) else self.kind(value)
        for statement in self.body:
            self._do(statement)

    def _do(self, tree: Any) -> None:
        if tree.data == "assign":
            target, expression = tree.children
            name, place = target.children
            value = self._get(expression)
            if place is None:
                self.values[name.lower()] = value
            else:
                at = self._get(place)
                assert 0 <= at < len(self.values[name.lower()])
                self.values[name.lower()][at] = value
        elif tree.data == "if_":
            parts: list[Any] = []
            for c in tree.children:
                if c is not None:
                    parts += c.children if c.data == "elsif" else [c]
            while len(parts) > 1:
                if self._get(parts[0]):
                    break
                parts = parts[2:]
            for statement in (
                parts[1].children if len(parts) > 1 else parts[0].children if parts else ()
            ):
                self._do(statement)
        else:
            name, first, last, by, body = tree.children
            step = self._get(by) if by is not None else 1
            for i in range(self._get(first), self._get(last) + (1 if step > 0 else -1), step):
                self.values[name.lower()] = i
                for statement in body.children:
                    self._do(statement)

    def _get(self, tree: Any) -> Any:
        kind, parts = tree.data, tree.children
        if kind == "number":
            return int(parts[0]) if parts[0].isdigit() else self.kind(parts[0])
        if kind in ("true", "false"):
            return kind == "true"
        if kind == "target":
            value = self.values[parts[0].lower()]
            return value if parts[1] is None else value[self._index(parts[1], len(value))]
        if kind == "negative":
            return -self._get(parts[1])
        if kind == "not_":
            return not self._get(parts[0])
        if kind == "or_":
            return self._get(parts[0]) or self._get(parts[1])
        if kind == "and_":
            return self._get(parts[0]) and self._get(parts[1])
        if kind == "call":
            return self.functions[parts[0].lower()](self._get(parts[-1]))
        a, sign, b = self._get(parts[0]), str(parts[1]), self._get(parts[2])
        if kind == "compare":
            return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "=": a == b, "<>": a != b}[
                sign
            ]
        if sign == "MOD":
            return a % b
        if sign == "/":
            return a / b
        return a * b if sign == "*" else a + b if sign == "+" else a - b

    def _index(self, tree: Any, size: int) -> int:
        at = self._get(tree)
        assert isinstance(at, int)
        assert 0 <= at < size
        return at


def load(text: str, kind: type = float) -> Block:
    """The function block of a file, ready to be called."""
    functions: dict[str, Callable[..., float]] = {
        "exp": lambda x: kind(np.exp(x)),
        "ln": lambda x: kind(math.log(x)),
    }
    blocks = []
    unit: Any
    for unit in parser.parse(text).children:
        if unit.data == "function_block":
            blocks.append(Block(unit, functions, kind))
            continue
        name, result, *rest = unit.children
        single = lark.Tree("function_block", [name, *rest])
        functions[str(name).lower()] = _function(str(name), single, functions, kind)
        assert result in ("REAL", "LREAL")
    assert len(blocks) == 1
    return blocks[0]


def _function(name: str, tree: Any, functions: Any, kind: type) -> Callable[..., float]:
    def call(x: float) -> float:
        block = Block(tree, functions, kind)
        block.values[name.lower()] = kind(0.0)
        block.call(x=x)
        return block.values[name.lower()]

    return call
