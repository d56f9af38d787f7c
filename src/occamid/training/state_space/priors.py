"""Weights of a state-space fit: their groups, the centre of their prior, where restarts begin."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.training.state_space.levenberg import Prior
from occamid.training.state_space.start import Linear
from occamid.training.state_space.trajectory import Sizes, Weights, split

Array = np.ndarray


def groups(sizes: Sizes) -> tuple[Array, int]:
    """For every weight the number of its group.

    0: ``A B``; 1: ``C D``; 2: the offsets ``d c``; 3: first states; then a group for every unit's
    ``F G`` column, then one for every unit's ``W V b`` row.
    """
    nx, m, read = sizes.nx, sizes.m, sizes.nx + sizes.nu

    def part(rows: int, linear: int) -> Array:
        found = np.full((rows, sizes.features), linear)
        found[:, read] = 2
        found[:, read + 1 :] = 4 + np.arange(m)
        return found.ravel()

    units = np.repeat(4 + m + np.arange(m), read + 1)
    first = np.full(sizes.records * nx, 3)
    return np.concatenate([part(nx, 0), units, part(sizes.ny, 1), first]), 4 + 2 * m


def prior_of(sizes: Sizes, mean: Float[Array, "M P"]) -> Prior:
    """Linear part centred on its start, the rest on zero; units may leave."""
    number, count = groups(sizes)
    learned = np.ones(count, bool)
    learned[3] = False  # a unit prior: states have unit variance
    leaves = np.arange(count) >= 4
    removes = np.zeros((count, sizes.total), bool)
    for unit in range(sizes.m):
        own = (number == 4 + unit) | (number == 4 + sizes.m + unit)
        removes[4 + unit] = removes[4 + sizes.m + unit] = own
    return Prior(np.where(number < 2, mean, 0.0), number, learned, leaves, removes)


def weights_of(sizes: Sizes, model: Linear) -> Float[Array, " P"]:
    """A linear model as flat weights; whatever else there is, further states too, is zero."""
    w = np.zeros(sizes.total)
    at, n, inputs = split(sizes, w), len(model.A), slice(sizes.nx, sizes.nx + sizes.nu)
    at.state[:n, :n], at.state[:n, inputs] = model.A, model.B
    at.out[:, :n], at.out[:, inputs] = model.C, model.D
    return w


def standardised(
    sizes: Sizes, w: Array, x: Float[Array, "T nx"], offset: bool = True
) -> Float[Array, " P"]:
    """The same linear model with states of unit variance along ``x``.

    With an ``offset`` their mean becomes zero; without one they stay at rest at zero.
    """
    mean, size = x.mean(axis=0) * offset, np.maximum(x.std(axis=0), 1e-8)
    new = w.copy()
    old, at = split(sizes, w), split(sizes, new)
    n, read = sizes.nx, sizes.nx + sizes.nu
    A = old.state[:, :n]
    at.state[:, :n] = A * size / size[:, None]
    at.state[:, n:read] = old.state[:, n:read] / size[:, None]
    at.state[:, read] = (A @ mean + old.state[:, read] - mean) / size
    at.out[:, :n] = old.out[:, :n] * size
    at.out[:, read] = old.out[:, read] + old.out[:, :n] @ mean
    at.first[:] = (old.first - mean) / size
    return new


def order_mask(sizes: Sizes, order: int, offset: bool = True) -> Bool[Array, " P"]:
    """Which weights a model of a smaller order has: its last states are neither driven nor read.

    Without an ``offset`` it is linear and rests at zero.
    """
    mask = np.ones(sizes.total, bool)
    at = split(sizes, mask)
    at.state[order:] = at.first[:, order:] = False
    at.state[:, order : sizes.nx] = at.unit[:, order : sizes.nx] = False
    at.out[:, order : sizes.nx] = False
    if not offset:
        at.state[:, sizes.nx + sizes.nu] = at.out[:, sizes.nx + sizes.nu] = False
    return mask


def restarts(
    sizes: Sizes, centre: Weights, order: int, count: int, seed: int
) -> tuple[Float[Array, "M P"], Float[Array, "M P"], Bool[Array, "M P"]]:
    """Weights of the restarts around a linear model, the centre of their prior, and their mask.

    ``F`` is about 1e-3, ``G`` zero; ``W V ~ 0.7/√n`` and ``b ~ 0.7`` are random (METHOD section 9).
    """
    rng = np.random.default_rng(seed)
    mask = np.tile(order_mask(sizes, order), (count, 1))
    mean = np.zeros((count, sizes.total))
    at, read = split(sizes, mean), sizes.nx + sizes.nu
    at.state[..., : read + 1], at.out[..., : read + 1] = centre.state, centre.out
    at.first[:] = centre.first
    w = mean + random_units(sizes, np.full(count, order), rng)
    return np.where(mask, w, 0.0), np.where(mask, mean, 0.0), mask


def random_units(
    sizes: Sizes, orders: Int[Array, " M"], rng: np.random.Generator
) -> Float[Array, "M P"]:
    """Weights of units that begin at random, for fits of these orders; all others are zero."""
    w = np.zeros((len(orders), sizes.total))
    at, read = split(sizes, w), sizes.nx + sizes.nu
    at.state[..., read + 1 :] = 1e-3 * rng.normal(size=at.state[..., read + 1 :].shape)
    spread = 0.7 / np.sqrt(orders + sizes.nu)[:, None, None]
    at.unit[..., :read] = spread * rng.normal(size=at.unit[..., :read].shape)
    at.unit[..., read] = 0.7 * rng.normal(size=at.unit[..., read].shape)
    return w
