"""Sparsity groups are data: a name and the axes of the matrix they reduce."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


class Group(NamedTuple):
    """One family of groups over a matrix of shape (out, in).

    ``axes`` are summed over inside a group: () makes every weight its own group, (1,) every row
    (a neuron with all that enters it), (0,) every column (a regressor with all that it enters).
    """

    name: str
    axes: tuple[int, ...]


STRUCTURES: dict[str, tuple[Group, ...]] = {
    "shape": (Group("shape", ()),),
    "row": (Group("row", (1,)),),
    "column": (Group("column", (0,)),),
    "row+column": (Group("row", (1,)), Group("column", (0,))),
}

Groups = tuple[tuple[str, tuple[Group, ...]], ...]  # matrix name -> its families, hashable


def groups_for(names: tuple[str, ...], structure: str) -> Groups:
    """The families of every matrix."""
    return tuple((name, STRUCTURES[structure]) for name in names)


def group_norm(W: Float[Array, "out in"], group: Group) -> Float[Array, ...]:
    """Euclidean norm of each group, reduced axes kept with size 1; its gradient at 0 is 0."""
    if not group.axes:
        return jnp.abs(W)
    squares = jnp.sum(W**2, axis=group.axes, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)
