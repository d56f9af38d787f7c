"""Smaller models near a fitted one: without a state, without some units, without an input.

Along its own trajectory a model tells what a direction of its states is worth: ``P`` is the
covariance of the states and ``Q`` the mean of ``Q(t) = C(t)ᵀ C(t) + J(t)ᵀ Q(t+1) J(t)``, what a
change of the state does to all later outputs, with ``J`` and ``C`` the slopes there.  In the basis
in which ``P`` is one and ``Q`` diagonal the last states are worth least (balanced truncation).

A model can also be opened: from inputs and what its units say to outputs and what its units read
it is linear, ``[u h] → [y a]``, ``h = tanh a``, and Ho and Kalman's method gives the nearest one of
any order.  A unit may speak a sample later, or earlier, than it must.  Such a model needs one state
more than the process and no truncation says so: it is a minimum of its own.  Moved in time while
the model is open, its units let that state go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from occamid.training.state_space.fit import Data, Stage
from occamid.training.state_space.start import Linear, realise
from occamid.training.state_space.trajectory import Sizes, Weights, split

Array = np.ndarray
SAMPLES = 60  # of the impulse response of an open model
WILD = 1e12  # a sum of slopes beyond this begins anew
RIDGE = 1e-4  # of a unit's regression on what is left


class Along(NamedTuple):
    """One fit and the rows it was fitted to, with its states along them."""

    sizes: Sizes
    w: Float[Array, " P"]
    mask: Bool[Array, " P"]
    variance: Float[Array, " ny"]
    x: Float[Array, "T nx"]
    u: Float[Array, "T nu"]
    last: Bool[Array, " T"]  # rows that end a record

    @property
    def order(self) -> int:
        """How many states it has."""
        return int(split(self.sizes, self.mask).first[0].sum())

    @property
    def units(self) -> Array:
        """Which units it has."""
        return np.flatnonzero(split(self.sizes, self.mask).unit[:, -1])

    @property
    def at(self) -> Weights:
        """Its matrices."""
        return split(self.sizes, self.w)

    @property
    def read(self) -> Float[Array, "T m"]:
        """What its units read."""
        return self.psi @ self.at.unit.T

    @property
    def psi(self) -> Float[Array, "T psi"]:
        """``[x u 1]``."""
        return np.concatenate([self.x, self.u, np.ones((len(self.x), 1))], axis=1)


def along(stage: Stage, data: Data) -> list[Along]:
    """Every fit of a stage with its states."""
    problem = stage.problem
    x, _ = problem.outputs(stage.state.w, stage.state.carry)
    inside, _ = problem.inside(data.weight)
    u = np.concatenate(data.u)
    last = np.zeros(len(u), bool)
    last[np.cumsum([len(part) for part in data.u]) - 1] = True
    state = stage.state
    each = zip(state.w, state.mask, state.variance, x, strict=True)
    return [Along(problem.sizes, w, m, v, states[inside], u, last) for w, m, v, states in each]


def worth(fit: Along) -> Float[Array, "nx nx"]:
    """``Q``: what a change of the state does to all later outputs, in units of their noise."""
    n, read, at = fit.sizes.nx, fit.sizes.nx + fit.sizes.nu + 1, fit.at
    slope = 1 - np.tanh(fit.read) ** 2
    J = at.state[:, :n] + np.einsum("im,tm,mj->tij", at.state[:, read:], slope, at.unit[:, :n])
    C = at.out[:, :n] + np.einsum("om,tm,mj->toj", at.out[:, read:], slope, at.unit[:, :n])
    now = np.einsum("toi,o,toj->tij", C, 1 / fit.variance, C)
    Q, total = np.zeros((n, n)), np.zeros((n, n))
    for t in range(len(J) - 1, -1, -1):
        Q = now[t] if fit.last[t] else now[t] + J[t].T @ Q @ J[t]
        if not np.trace(Q) < WILD:
            Q = now[t]
        total += Q
    return total / len(J)


def turned(fit: Along) -> Float[Array, " P"]:
    """The same model with independent states of unit variance, the worthiest first."""
    n, at, x = fit.order, fit.at, fit.x[:, : fit.order]
    offset, mean = fit.sizes.nx + fit.sizes.nu, x.mean(axis=0)
    P = np.cov(x.T).reshape(n, n)
    root = np.linalg.cholesky(P + max(1e-9 * np.trace(P) / n, 1e-12) * np.eye(n))
    basis = np.linalg.eigh(root.T @ worth(fit)[:n, :n] @ root)[1][:, ::-1]
    back, there = root @ basis, np.linalg.solve(root.T, basis).T
    new = fit.w.copy()
    to = split(fit.sizes, new)
    to.state[:n] = there @ at.state[:n]
    to.state[:n, offset] += there @ (at.state[:n, :n] @ mean - mean)
    to.state[:n, :n] = to.state[:n, :n] @ back
    for part, old in ((to.unit, at.unit), (to.out, at.out)):
        part[:, :n] = old[:, :n] @ back
        part[:, offset] += old[:, :n] @ mean
    to.first[:, :n] = (at.first[:, :n] - mean) @ there.T
    return new


def without_state(sizes: Sizes, w: Float[Array, " P"], order: int, state: int) -> Array:
    """The state takes the last place of those that there are, where a mask cuts it off."""
    place = np.arange(sizes.nx)
    place[:order] = [*(k for k in range(order) if k != state), state]
    new = w.copy()
    old, to = split(sizes, w), split(sizes, new)
    to.state[:] = old.state[place]
    for part in (to.state, to.unit, to.out, to.first):
        part[:, : sizes.nx] = part[:, : sizes.nx][:, place]
    return new


def without_units(fit: Along, count: int) -> tuple[Float[Array, " P"], Bool[Array, " P"]]:
    """The units that are worth least leave, one by one; what is left says the most of it."""
    w, mask, read = fit.w.copy(), fit.mask.copy(), fit.sizes.nx + fit.sizes.nu + 1
    at, own, Q, h = split(fit.sizes, w), split(fit.sizes, mask), worth(fit), np.tanh(fit.read)
    features = np.concatenate([fit.psi, h], axis=1)
    linear = np.delete(np.arange(read), np.arange(fit.order, fit.sizes.nx))
    left = list(fit.units)
    for _ in range(count):
        found = []
        for unit in left:
            places = np.concatenate([linear, read + np.array([k for k in left if k != unit], int)])
            share, rest = _regressed(features[:, places], h[:, unit])
            f, g = at.state[:, read + unit], at.out[:, read + unit]
            size = rest * (f @ Q @ f + np.sum(g**2 / fit.variance))
            found.append((float(size), unit, places, share))
        _, unit, places, share = min(found, key=lambda one: one[0])
        for part, kept in ((at.state, own.state), (at.out, own.out)):
            part[:, places] += np.outer(part[:, read + unit], share)
            part[:, read + unit], kept[:, read + unit] = 0.0, False
        own.unit[unit] = False
        left.remove(unit)
    return np.where(mask, w, 0.0), mask


def _regressed(X: Float[Array, "T k"], y: Float[Array, " T"]) -> tuple[Array, float]:
    """Coefficients of a least squares, and the mean square that is left."""
    gram = X.T @ X / len(X) + RIDGE**2 * np.eye(X.shape[1])
    share = np.linalg.solve(gram, X.T @ y / len(X))
    return share, float(np.mean((y - X @ share) ** 2))


def without_input(fit: Along, number: int) -> Bool[Array, " P"]:
    """The mask of a model that does not read this input."""
    mask = fit.mask.copy()
    at = split(fit.sizes, mask)
    for part in (at.state, at.unit, at.out):
        part[:, fit.sizes.nx + number] = False
    return mask


def inputs_of(sizes: Sizes, mask: Bool[Array, "*b P"]) -> Bool[Array, "*b nu"]:
    """Which inputs are read."""
    at, columns = split(sizes, mask), slice(sizes.nx, sizes.nx + sizes.nu)
    return np.any([part[..., columns].any(axis=-2) for part in at[:3]], axis=0)


def opened(fit: Along, order: int) -> Iterator[Float[Array, " P"]]:
    """Models of another order: the open one as it is, and with its units moved in time."""
    n, nu, m = fit.order, fit.sizes.nu, len(fit.units)
    columns = np.concatenate([np.arange(fit.sizes.nx, fit.sizes.nx + nu), _said(fit)])
    at, units, y = fit.at, fit.units, len(fit.at.out)
    feeds = np.concatenate([at.unit[units][:, columns[:nu]], np.zeros((m, m))], axis=1)
    model = Linear(
        at.state[:n, :n],
        at.state[:n][:, columns],
        np.concatenate([at.out[:, :n], at.unit[units, :n]]),
        np.concatenate([at.out[:, columns], feeds]),
    )
    read = fit.read
    phi = np.concatenate([fit.psi, np.tanh(read)], axis=1)
    ways: list[tuple[Callable[[Linear, int, int], Linear] | None, int]] = [(None, 0)]
    for way, ahead in [*ways, *([(earlier, 1), (later, -1)] if m else [])]:
        moved = model
        for k in range(m if way else 0):
            assert way is not None
            moved = way(moved, y + k, nu + k)
        a = np.roll(read[:, units], -ahead, axis=0)
        signals = np.concatenate([fit.u, np.tanh(a)], 1), np.concatenate([phi @ at.out.T, a], 1)
        yield _closed(fit, columns, moved, signals, order)


def _said(fit: Along) -> Array:
    return fit.sizes.nx + fit.sizes.nu + 1 + fit.units


def earlier(model: Linear, read: int, said: int) -> Linear:
    """Output ``read`` and input ``said`` a sample earlier; what would need later inputs is left."""
    n, (A, B, C, D) = len(model.A), model
    A = np.block([[A, B[:, [said]]], [np.zeros((1, n + 1))]])
    B = np.concatenate([B, np.zeros((1, B.shape[1]))])
    C, D = np.concatenate([C, D[:, [said]]], axis=1), D.copy()
    B[:, said], D[:, said], B[n, said] = 0.0, 0.0, 1.0
    C[read], D[read] = C[read] @ A, C[read] @ B
    return Linear(A, B, C, D)


def later(model: Linear, read: int, said: int) -> Linear:
    """Output ``read`` and input ``said`` a sample later; what would need later inputs is left."""
    n, (A, B, C, D) = len(model.A), model
    D, B = D.copy(), B.copy()
    D[:, said] = C @ B[:, said]
    B[:, said] = A @ B[:, said]
    A = np.block([[A, np.zeros((n, 1))], [C[[read]], np.zeros((1, 1))]])
    B = np.concatenate([B, D[[read]]])
    C = np.concatenate([C, np.zeros((len(C), 1))], axis=1)
    C[read], D[read], C[read, n] = 0.0, 0.0, 1.0
    return Linear(A, B, C, D)


def _closed(
    fit: Along, columns: Array, model: Linear, signals: tuple[Array, Array], order: int
) -> Float[Array, " P"]:
    """The weights of the nearest model of this order, balanced for the size of its signals."""
    n, nu, y = order, fit.sizes.nu, len(fit.at.out)
    (into, out), offset, units = signals, fit.sizes.nx + fit.sizes.nu, fit.units
    size, large = (np.maximum(v.std(axis=0), 1e-8) for v in signals)
    B, C, D = model.B * size, model.C / large[:, None], model.D * size / large[:, None]
    response = [D]
    with np.errstate(all="ignore"):
        for _ in range(SAMPLES):
            response.append(C @ B)
            B = model.A @ B
    w = np.zeros(fit.sizes.total)
    if not np.all(np.abs(response) < WILD):
        return w
    found, to = realise(np.stack(response), n), split(fit.sizes, w)
    C, D = found.C * large[:, None], found.D * large[:, None] / size
    to.state[:n, :n], to.state[:n, columns] = found.A, found.B / size
    to.out[:, :n], to.out[:, columns] = C[:y], D[:y]
    to.unit[units, :n], to.unit[units[:, None], columns[:nu]] = C[y:], D[y:, :nu]
    mean, level = into.mean(axis=0), out.mean(axis=0)
    to.state[:n, offset] = -to.state[:n][:, columns] @ mean
    to.out[:, offset] = level[:y] - D[:y] @ mean
    to.unit[units, offset] = level[y:] - D[y:, :nu] @ mean[:nu]
    return w
