"""What a state-space fit leaves: a network, its doubt, and the states it went through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from occamid.networks.base import is_matrix
from occamid.networks.state_space import StateSpace
from occamid.training.state_space.trajectory import Sizes, Weights, split

Array = np.ndarray


class StatePrior(NamedTuple):
    """What training says about the states of new data."""

    mean: Float[Array, " nx"]
    covariance: Float[Array, "nx nx"]


def state_prior(x: Float[Array, "T nx"]) -> StatePrior:
    """Moments of the training states; no direction is quite certain."""
    spread = np.cov(x.T).reshape(x.shape[1], x.shape[1])
    floor = 1e-8 * max(np.trace(spread) / max(len(spread), 1), 1e-12)
    return StatePrior(x.mean(axis=0), spread + floor * np.eye(len(spread)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """One fitted state-space network, in scaled units.

    Args:
        sizes: of the network and the number of records it was fitted to.
        w: flat weights, ``[A B d F]``, ``[W V b]``, ``[C D c G]``, then the first states.
        mask: false where a weight was pruned.
        alpha: precision of the prior of every weight.
        precision: ``A = Σ Jᵀ J / σ² + diag α``, a unit diagonal where the mask is false.
        variance: of the noise of every output.
        log_evidence: of the records under this model.
        effective: number of effective parameters.
        error: root mean square of the free run's error over the rows that were looked at.
        held_back: the same over the rows that were held back; NaN where there were none.
        states: moments of the training states, the prior of a first state on new data.
    """

    sizes: Sizes
    w: Float[Array, " P"]
    mask: Bool[Array, " P"]
    alpha: Float[Array, " P"]
    precision: Float[Array, "P P"]
    variance: Float[Array, " ny"]
    log_evidence: float
    effective: float
    error: Float[Array, " ny"]
    held_back: Float[Array, " ny"]
    states: StatePrior

    @property
    def weights(self) -> Weights:
        """The matrices."""
        return split(self.sizes, self.w)

    @property
    def units(self) -> int:
        """How many units were not pruned."""
        return int(np.sum(split(self.sizes, self.mask).unit.any(axis=1)))

    @property
    def sound(self) -> bool:
        """Whether it runs free: a wild run leaves no numbers."""
        return bool(np.isfinite(self.error).all() and np.isfinite(self.precision).all())

    def network(self) -> tuple[StateSpace, dict[str, Array]]:
        """The network without what was pruned, and its parameters."""
        whole, params = as_network(self.sizes, self.w)
        live = whole.live({name: v != 0 for name, v in params.items() if is_matrix(name)})
        return whole.compact(params, live)

    def covariance(self) -> tuple[Float[Array, "n n"], Array]:
        """Covariance of the weights that are left, and their places in ``w``.

        The basis of the states is arbitrary: along its changes nothing is doubtful.
        """
        place = np.flatnonzero(self.mask)
        part = self.precision[np.ix_(place, place)]
        d = np.sqrt(np.diag(part))
        changes = d[:, None] * basis_changes(self.sizes, self.w)[place]
        if not split(self.sizes, self.mask).state[:, self.sizes.nx + self.sizes.nu].any():
            changes = changes[:, : self.sizes.nx**2]  # at rest at zero states are not shifted
        left, size, _ = np.linalg.svd(changes)
        others = left[:, np.sum(size > 1e-9 * size.max(initial=1e-300)) :]
        values, vectors = np.linalg.eigh(others.T @ (part / d / d[:, None]) @ others)
        root = others @ vectors / np.sqrt(np.maximum(values, 1e-13)) / d[:, None]
        return root @ root.T, place


def basis_changes(sizes: Sizes, w: Float[Array, " P"]) -> Float[Array, "P n"]:
    """How weights move when the states become ``x + T x + t``, for every entry of T and t."""
    at, n, read = split(sizes, w), sizes.nx, sizes.nx + sizes.nu
    T = np.concatenate([np.eye(n * n).reshape(-1, n, n), np.zeros((n, n, n))])
    t = np.concatenate([np.zeros((n * n, n)), np.eye(n)])
    moves = np.zeros((len(T), sizes.total))
    to = split(sizes, moves)
    to.state[:] = T @ at.state
    to.first[:] = at.first @ T.swapaxes(1, 2) + t[:, None]
    to.state[..., read] += t
    for new, old in ((to.state, at.state), (to.unit, at.unit), (to.out, at.out)):
        new[..., :n] -= old[:, :n] @ T
        new[..., read] -= t @ old[:, :n].T
    return moves.T


def as_network(sizes: Sizes, w: Float[Array, "*b P"]) -> tuple[StateSpace, dict[str, Array]]:
    """Flat weights (or anything of their shape) as a network and its tree of parameters."""
    at, n, read = split(sizes, w), sizes.nx, sizes.nx + sizes.nu
    network = StateSpace(sizes.nu, sizes.nx, sizes.m, sizes.ny)
    tree = {
        f"{part}.{name}": values
        for part, matrix in (("state", at.state), ("unit", at.unit), ("out", at.out))
        for name, values in (
            ("W_x", matrix[..., :n]),
            ("W_u", matrix[..., n:read]),
            ("W_h", matrix[..., read + 1 :]),
            ("b", matrix[..., read]),
        )
    }
    return network, {name: tree[name] for name in network.specs()}


def as_flat(sizes: Sizes, params: dict[str, Array], first: Float[Array, "R nx"]) -> Array:
    """The flat weights of a network's parameters and the first states of its records."""
    w = np.zeros(sizes.total)
    places = as_network(sizes, np.arange(sizes.total))[1]
    for name, place in places.items():
        w[place] = params[name]
    split(sizes, w).first[:] = first
    return w
