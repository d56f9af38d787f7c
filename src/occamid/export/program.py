"""One time step of a network as a short program of vectors, the same for every target.

A step reads the regressors ``z`` and what is carried from the step before, and computes, in order,

- :class:`Affine`    ``v = Σ_k M_k s_k + b``,
- :class:`Activate`  ``v = σ(s)``, elementwise,
- :class:`Products`  ``v = Σ_k a_k ⊙ b_k``.

A perceptron, a stack of LSTM or RNN layers and a state-space network are such programs
(:mod:`occamid.export.kinds`).  A target (C, ONNX, CasADi, …) says what the three operations mean
in its own language, and :func:`run` walks through the program with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from jaxtyping import Float

Array = np.ndarray
V = TypeVar("V")
REGRESSORS = "z"


@dataclass(frozen=True, eq=False)
class Affine:
    """``v = Σ_k M_k s_k + b``; zeros in a matrix are pruned weights."""

    parts: tuple[tuple[str, Float[Array, "n _"]], ...]
    bias: Float[Array, " n"]

    @property
    def sources(self) -> tuple[str, ...]:
        """The vectors it reads."""
        return tuple(source for source, _ in self.parts)


@dataclass(frozen=True)
class Activate:
    """``v = σ(s)``, a function of :data:`occamid.networks.ACTIVATIONS`."""

    source: str
    function: str

    @property
    def sources(self) -> tuple[str, ...]:
        """The vector it reads."""
        return (self.source,)


@dataclass(frozen=True)
class Products:
    """``v = Σ_k a_k ⊙ b_k``, the gates of an LSTM."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The vectors it reads."""
        return tuple(source for pair in self.pairs for source in pair)


Node = Affine | Activate | Products


@dataclass(frozen=True, eq=False)
class Carried:
    """A vector that is kept for the next step: its first value, and the node of its next one."""

    initial: Float[Array, " n"]
    next: str

    @property
    def size(self) -> int:
        """How many numbers are kept."""
        return len(self.initial)


@dataclass(frozen=True, eq=False)
class Step:
    """The program: nodes in order of computation, what is carried, and which node is the output."""

    nodes: Mapping[str, Node]
    carried: Mapping[str, Carried]
    output: str

    @property
    def multiplications(self) -> int:
        """Multiply-and-add operations of one step, pruned weights not counted."""
        count = 0
        for node in self.nodes.values():
            if isinstance(node, Affine):
                count += sum(int(np.count_nonzero(M)) for _, M in node.parts)
        sizes = self.sizes()
        return count + sum(
            sizes[name] * len(node.pairs)
            for name, node in self.nodes.items()
            if isinstance(node, Products)
        )

    @property
    def constants(self) -> int:
        """Numbers that have to be stored: weights that are not zero, and biases that are not."""
        found = 0
        for node in self.nodes.values():
            if isinstance(node, Affine):
                found += int(np.count_nonzero(node.bias))
                found += sum(int(np.count_nonzero(M)) for _, M in node.parts)
        return found

    def activations(self) -> dict[str, int]:
        """How often each function is evaluated in one step, identity left out."""
        sizes, found = self.sizes(), dict[str, int]()
        for name, node in self.nodes.items():
            if isinstance(node, Activate) and node.function != "identity":
                found[node.function] = found.get(node.function, 0) + sizes[name]
        return found

    def sizes(self) -> dict[str, int]:
        """The length of every node's vector."""
        found = {name: kept.size for name, kept in self.carried.items()}
        for name, node in self.nodes.items():
            found[name] = len(node.bias) if isinstance(node, Affine) else found[node.sources[0]]
        return found


class Target(Protocol[V]):
    """What the operations mean in the language of a target."""

    def affine(self, parts: Sequence[tuple[V, Float[Array, "n _"]]], bias: Float[Array, " n"]) -> V:
        """``Σ_k M_k s_k + b``."""

    def activate(self, source: V, function: str) -> V:
        """``σ(s)``."""

    def products(self, pairs: Sequence[tuple[V, V]]) -> V:
        """``Σ_k a_k ⊙ b_k``."""


def run(step: Step, target: Target[V], z: V, carried: Mapping[str, V]) -> tuple[V, dict[str, V]]:
    """The output of a step and the next value of everything carried."""
    known: dict[str, V] = {REGRESSORS: z, **carried}
    for name, node in step.nodes.items():
        if isinstance(node, Affine):
            parts = [(known[source], M) for source, M in node.parts]
            known[name] = target.affine(parts, node.bias)
        elif isinstance(node, Activate):
            known[name] = target.activate(known[node.source], node.function)
        else:
            known[name] = target.products([(known[a], known[b]) for a, b in node.pairs])
    return known[step.output], {name: known[kept.next] for name, kept in step.carried.items()}


def simplify(step: Step) -> Step:
    """The same step without matrices of zeros, empty vectors and identity functions."""
    sizes = step.sizes()
    nodes: dict[str, Node] = {}
    same: dict[str, str] = {}
    for name, node in step.nodes.items():
        if isinstance(node, Affine):
            parts = tuple((same.get(s, s), M) for s, M in node.parts if np.any(M))
            nodes[name] = Affine(parts, node.bias)
        elif isinstance(node, Activate):
            source = same.get(node.source, node.source)
            if node.function == "identity":
                same[name] = source
            else:
                nodes[name] = Activate(source, node.function)
        else:
            nodes[name] = Products(tuple((same.get(a, a), same.get(b, b)) for a, b in node.pairs))
    carried = {
        name: Carried(kept.initial, same.get(kept.next, kept.next))
        for name, kept in step.carried.items()
        if kept.size
    }
    alive = {name: node for name, node in nodes.items() if sizes[name]}
    return Step(alive, carried, same.get(step.output, step.output))
