"""Fits of a stage that go on with other records, other numbers of states or more units."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from occamid.training.state_space import levenberg
from occamid.training.state_space.fit import Data, Stage
from occamid.training.state_space.normal_equations import FreeRuns
from occamid.training.state_space.priors import order_mask, prior_of, random_units
from occamid.training.state_space.start import within
from occamid.training.state_space.trajectory import Sizes, split

Array = np.ndarray


def picked(stage: Stage, lanes: Array) -> Stage:
    """Some of the fits."""
    state, prior = levenberg.choose(stage.state, stage.prior, lanes, stage.problem.pick)
    return Stage(stage.problem, prior, state)


def moved(stage: Stage, data: Data, same: bool, seed: int) -> Stage:
    """Fits on other records, or again on the same ones.

    States that none of them has are left out, unless nothing new is to be compiled (``same``).
    """
    old, orders = stage.problem.sizes, stage.orders
    sizes = data.sizes(old.nx if same else int(orders.max()), old.m)
    w, mask, mean = (
        repacked(old, sizes, v) for v in (stage.state.w, stage.state.mask, stage.prior.mean)
    )
    if not old.m:  # what grows on short pieces would blow up on long records
        A = split(sizes, w).state[..., : sizes.nx]
        A[:] = np.stack([within(one) for one in A])
    split(sizes, mask).first[:] = (np.arange(sizes.nx) < orders[:, None])[:, None]
    lanes = stage.problem.room if same else len(w)
    return _begun(sizes, data, w, mask, stage.state.alpha, mean, seed, lanes)


def widened(stage: Stage, data: Data, units: int, seed: int) -> Stage:
    """The same fits with more units; new ones, and those that had left, begin at random."""
    old, fits = stage.problem.sizes, len(stage.state.w)
    sizes = data.sizes(old.nx, units)
    w, mask, mean = (
        repacked(old, sizes, v) for v in (stage.state.w, stage.state.mask, stage.prior.mean)
    )
    new = np.ones((fits, units), bool)
    new[:, : old.m] = ~split(old, stage.state.mask).unit[..., -1]
    alpha = np.ones((fits, 4 + 2 * units))
    alpha[:, :4] = stage.state.alpha[:, :4]
    for first, values in zip((4, 4 + units), np.split(stage.state.alpha[:, 4:], 2, 1), strict=True):
        alpha[:, first : first + old.m] = np.where(new[:, : old.m], 1.0, values)
    rng, own = np.random.default_rng(seed), np.stack([order_mask(sizes, n) for n in stage.orders])
    fresh = _of_units(sizes, new)
    w = np.where(fresh, random_units(sizes, stage.orders, rng), w)
    mask = np.where(fresh, own, mask)
    return _begun(sizes, data, np.where(mask, w, 0.0), mask, alpha, mean, seed, fits)


def _of_units(sizes: Sizes, units: Bool[Array, "M m"]) -> Bool[Array, "M P"]:
    """The weights that belong to these units."""
    found = np.zeros((len(units), sizes.total), bool)
    at, read = split(sizes, found), sizes.nx + sizes.nu + 1
    at.state[..., read:] = at.out[..., read:] = units[:, None]
    at.unit[:] = units[:, :, None]
    return found


def _begun(
    sizes: Sizes,
    data: Data,
    w: Array,
    mask: Array,
    alpha: Array,
    mean: Array,
    seed: int,
    lanes: int,
) -> Stage:
    problem = FreeRuns(sizes, data.rows, lanes=lanes, seed=seed)
    begun = levenberg.begin(problem, w, mask, alpha, problem.carry(len(w)), levenberg.Settings())
    return Stage(problem, prior_of(sizes, mean), begun)


def repacked(old: Sizes, new: Sizes, w: Float[Array, "M P"]) -> Float[Array, "M Q"]:
    """Weights with other numbers of states and units; what is new is zero.

    On other records the first states are not known yet.
    """
    found = np.zeros((len(w), new.total), w.dtype)
    source, target, n, m = split(old, w), split(new, found), min(old.nx, new.nx), min(old.m, new.m)
    own, there = (
        np.concatenate([np.arange(n), np.arange(s.nx, s.features - s.m + m)]) for s in (old, new)
    )
    target.state[..., :n, there] = source.state[..., :n, :][..., own]
    target.out[..., there] = source.out[..., own]
    read = n + old.nu + 1
    target.unit[..., :m, there[:read]] = source.unit[..., :m, own[:read]]
    if old.records == new.records:
        target.first[..., :n] = source.first[..., :n]
    return found
