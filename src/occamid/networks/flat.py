"""All parameters of a network as one vector, and back: for linear algebra, nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.networks.base import Network

Array = np.ndarray


def size(network: Network) -> int:
    """How many parameters there are."""
    return sum(int(np.prod(spec.shape)) for spec in network.specs().values())


def flatten(network: Network, tree: Mapping[str, Any]) -> Float[Array, " P"]:
    """A tree shaped like the parameters as one vector, in the network's order."""
    return np.concatenate([np.ravel(tree[name]) for name in network.specs()])


def unflatten(network: Network, vector: Any) -> Any:
    """The tree of a flat vector; leading axes stay."""
    found, offset = {}, 0
    for name, spec in network.specs().items():
        count = int(np.prod(spec.shape))
        part = vector[..., offset : offset + count]
        found[name] = part.reshape(*vector.shape[:-1], *spec.shape)
        offset += count
    return found
