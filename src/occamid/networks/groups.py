"""Sparsity groups are data: a name, the axes of the matrix they reduce, a weight of λ."""

from __future__ import annotations

from fnmatch import fnmatchcase
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
    lam_scale: float = 1.0


STRUCTURES: dict[str, tuple[Group, ...]] = {
    "shape": (Group("shape", ()),),
    "row": (Group("row", (1,)),),
    "column": (Group("column", (0,)),),
    "row+column": (Group("row", (1,)), Group("column", (0,))),
}

Groups = tuple[tuple[str, tuple[Group, ...]], ...]  # matrix name -> its families, hashable


def groups_for(
    names: tuple[str, ...], structure: str, lam_scale: tuple[tuple[str, float], ...] = ()
) -> Groups:
    """The families of every matrix; ``lam_scale`` patterns match ``matrix/family``, last wins."""

    def scale(matrix: str, family: str) -> float:
        found = [s for pattern, s in lam_scale if fnmatchcase(f"{matrix}/{family}", pattern)]
        return found[-1] if found else 1.0

    return tuple(
        (name, tuple(g._replace(lam_scale=scale(name, g.name)) for g in STRUCTURES[structure]))
        for name in names
    )


def group_norm(W: Float[Array, "out in"], group: Group) -> Float[Array, ...]:
    """Euclidean norm of each group, reduced axes kept with size 1; its gradient at 0 is 0."""
    if not group.axes:
        return jnp.abs(W)
    squares = jnp.sum(W**2, axis=group.axes, keepdims=True)
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)
