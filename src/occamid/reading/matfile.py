"""The structure of a MATLAB file of version 5 to 7, checked before SciPy reads it.

SciPy takes the type numbers in such a file as they are: one that does not exist, as a broken
transfer may leave it, ends the whole process.  So every element is visited here first.  Numbers
and names follow the "MAT-File Format" document of The MathWorks.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

HEADER = 128  # bytes before the first element
LARGEST = 4 * 2**30  # bytes of one variable when unpacked
DEEPEST = 50  # matrices inside matrices
MATRIX, COMPRESSED = 14, 15
VALUES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # types of numbers and characters
CELL, STRUCT, OBJECT, CHARACTERS, SPARSE, FUNCTION, OPAQUE = 1, 2, 3, 4, 5, 16, 17
COMPLEX = 0x0800  # a bit of the flags


class DamagedError(ValueError):
    """The structure is not that of a MATLAB file."""


def check_structure(content: bytes) -> None:
    """Visit every element; raises ``DamagedError`` or ``zlib.error`` where the file is broken."""
    order = "<" if content[126:128] == b"IM" else ">"
    file = Walk(content, order, HEADER)
    while len(content) - file.at >= 8:
        kind, data = file.element({MATRIX, COMPRESSED}, padded=False)
        if kind == COMPRESSED:
            unpacked = zlib.decompressobj().decompress(data, LARGEST)
            kind, data = Walk(unpacked, order).element({MATRIX}, padded=False)
        if data:
            check_matrix(data, order, 0)


def check_matrix(data: bytes, order: str, depth: int) -> None:
    """Visit the parts of one matrix, and the matrices inside it."""
    if depth > DEEPEST:
        raise DamagedError("matrices inside matrices without end")
    walk = Walk(data, order)
    _, flags = walk.element({6})
    first = walk.numbers(flags, "I")[0] if len(flags) == 8 else 0
    kind = first & 0xFF
    if not CELL <= kind <= OPAQUE:
        raise DamagedError("unknown class of a matrix")
    if kind == OPAQUE:
        for _ in range(3):  # variable, kind of object, class
            walk.element(VALUES)
    inside = 1 if kind in (FUNCTION, OPAQUE) else 0
    if kind != OPAQUE:
        dimensions = walk.numbers(walk.element({5, 6})[1], "i")
        if not 2 <= len(dimensions) <= 32 or min(dimensions) < 0:
            raise DamagedError("impossible dimensions")
        size = math.prod(dimensions)
        walk.element(VALUES)  # the name
        if kind == OBJECT:
            walk.element(VALUES)  # its class
        if kind == CELL:
            inside = size
        if kind in (STRUCT, OBJECT):
            length = walk.numbers(walk.element({5, 6})[1], "i")
            names = walk.element(VALUES)[1]
            if len(length) != 1 or length[0] < 1:
                raise DamagedError("names of fields without a length")
            inside = size * (len(names) // length[0])
    if not 0 <= inside <= len(data):
        raise DamagedError("more parts than bytes")
    for _ in range(inside):
        _, part = walk.element({MATRIX})
        if part:
            check_matrix(part, order, depth + 1)
    if CHARACTERS <= kind < FUNCTION:
        for _ in range((3 if kind == SPARSE else 1) + bool(first & COMPLEX)):
            walk.element(VALUES)


@dataclass
class Walk:
    """A place in a sequence of elements."""

    data: bytes
    order: str
    at: int = 0

    def element(self, allowed: set[int], padded: bool = True) -> tuple[int, bytes]:
        """The type and the bytes of the next element, which must be of an allowed type."""
        if self.at + 8 > len(self.data):
            raise DamagedError("an element is missing")
        kind, count = struct.unpack_from(f"{self.order}II", self.data, self.at)
        start, step = self.at + 8, 8
        if kind >> 16:  # up to four bytes stand in the tag itself
            kind, count, start, step = kind & 0xFFFF, kind >> 16, self.at + 4, 4
        end = start + count
        if kind not in allowed or end > len(self.data) or (step == 4 and count > 4):
            raise DamagedError("an element of the wrong type or length")
        self.at = start + (count + -count % step if padded else count)
        return kind, self.data[start:end]

    def numbers(self, data: bytes, code: str) -> tuple[int, ...]:
        """Whole numbers of four bytes."""
        return struct.unpack(f"{self.order}{len(data) // 4}{code}", data[: len(data) // 4 * 4])
