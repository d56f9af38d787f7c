"""Plain linear models, unshrunk: ARX by least squares, for any number of inputs and outputs.

``y(t) = Σ A_i y(t-i) + Σ B_j u(t-j) + c + e(t)`` on standardised data.  As a network it is the
direct path and a bias, so it simulates, refines and gets its bands as every other model does.  The
constant c stays although data are centred: the mean of a record that is not long against its
dynamics, such as one step, is no equilibrium of the process.  Logs in deviations from where a
process rests need none: there zero inputs leave outputs at zero.

With several outputs there is also the model in which each output has a past of its own alone, an
order of its own, and for each input a delay of its own: all A_i diagonal, far fewer coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from occamid.data.record import Record, as_records
from occamid.data.scaling import Scaling, fit_scaling
from occamid.data.windows import Terms, all_terms, windows
from occamid.errors import DataError
from occamid.networks import MLP, is_matrix
from occamid.training.model import Model

Array = np.ndarray
ORDERS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 30)
NEAR, FAR, STEP = 20, 200, 5  # delays up to the first are all tried, then up to the second in steps
MOST_COLUMNS = 1000  # of the regression: delays of many inputs are looked for less far
WIDE = 1e4  # prior variance of a coefficient in scaled units: no shrinkage
ROWS_PER_TERM = 4  # fewer rows for each regressor than this are not fitted
BARE = 2.0  # of BIC: what speaks no louder than this is not worth a mention (Kass, Raftery 1995)


class Arx(NamedTuple):
    """An ARX model and what speaks for its orders."""

    model: Model
    order: int
    delay: int
    bic: float  # of the one-step errors, all over the same rows


class _Problem(NamedTuple):
    """All candidate columns of the regression in triangular form, the last one perhaps constant."""

    terms: Terms
    R: Float[Array, "p p"]
    Q_y: Float[Array, "p ny"]
    rest: Float[Array, " ny"]  # squares no column can explain
    rows: int
    scaling: Scaling
    sampling_time: float
    constant: bool = True

    def columns(self, keep: Sequence[bool] | Bool[Array, " nz"]) -> Int[Array, " p"]:
        """Where these terms stand, and the constant if there is one."""
        return np.flatnonzero([*keep, self.constant])


def rests_at_zero(records: Sequence[Record]) -> bool:
    """Whether inputs of zero probably leave outputs at zero, in the user's units.

    Zero must be among what was seen of every channel: elsewhere nobody knows where a process rests.
    Then the best ARX model stands against the same without a constant, of data that are not
    centred: it is there if BIC says more than what is hardly worth mentioning for it.
    """
    seen = np.concatenate([np.hstack([r.u, r.y])[r.lead :] for r in records])
    if (seen.min(axis=0) > 0).any() or (seen.max(axis=0) < 0).any():
        return False
    try:
        problem = _problem(as_records(records))
    except DataError:  # too short for any
        return False
    best = _by_order(problem)[0]
    without = _solve(_at_zero(problem), best.order, best.delay)
    return without.bic < best.bic + BARE


def fit_arx(records: Sequence[Record], zero: bool = False) -> list[Arx]:
    """The best delay by BIC for every order that the records can bear, best order first.

    Where the process rests at ``zero`` data are not centred and there is no constant.
    """
    problem = _problem(as_records(records))
    return _by_order(_at_zero(problem) if zero else problem)


def _by_order(problem: _Problem) -> list[Arx]:
    solve = partial(_solve, problem)
    longest = max(lag for _, lag in problem.terms.inputs)
    found = []
    for order in (n for n in ORDERS if n <= problem.terms.output_lag):
        most = longest + 1 - order
        coarse = [d for d in (*range(NEAR), *range(NEAR, FAR + 1, STEP)) if d <= most]
        best = min((solve(order, delay) for delay in coarse), key=lambda fit: fit.bic)
        if best.delay >= NEAR:  # between the steps
            close = range(best.delay - STEP + 1, min(best.delay + STEP, most + 1))
            best = min((solve(order, delay) for delay in close), key=lambda fit: fit.bic)
        found.append(best)
    return sorted(found, key=lambda fit: fit.bic)


class Own(NamedTuple):
    """What an output is described by: its own past and every input after a delay."""

    order: int
    delays: tuple[int, ...]


def fit_own(records: Sequence[Record], zero: bool = False) -> Arx:
    """Each output from its own past alone; orders, and a delay for each input, by BIC.

    ``zero`` as in :func:`fit_arx`.
    """
    problem = _problem(as_records(records))
    problem = _at_zero(problem) if zero else problem
    terms, ny = problem.terms, problem.Q_y.shape[1]
    theta, free = np.zeros((problem.R.shape[1], ny)), 0
    each = _orders(problem)
    for output, own in enumerate(each):
        columns = _columns(problem, own, output)
        R, target = problem.R[:, columns], problem.Q_y[:, output]
        theta[columns, output] = np.linalg.lstsq(R, target, rcond=1e-10)[0]
        free += len(columns)
    keep = np.any(theta[: len(terms)] != 0, axis=1)
    bic = _bic(problem, problem.R @ theta, free)
    model = _model(problem, keep, theta[problem.columns(keep)].T)
    return Arx(model, max(own.order for own in each), min(min(own.delays) for own in each), bic)


def own_orders(records: Sequence[Record], zero: bool = False) -> list[Own]:
    """The order of every output by its own past alone, and its delay behind every input."""
    problem = _problem(as_records(records))
    return _orders(_at_zero(problem) if zero else problem)


def _orders(problem: _Problem) -> list[Own]:
    """By BIC: for every order one delay of all inputs, then one of each; the best order's again."""
    terms = problem.terms
    G, g = problem.R.T @ problem.R, problem.R.T @ problem.Q_y
    whole = problem.rest + np.sum(problem.Q_y**2, axis=0)
    G[np.diag_indices(len(G))] += 1e-10 * (np.diag(G) + 1.0)  # an input that hardly moves
    longest = max(lag for _, lag in terms.inputs)
    inputs = len(terms.input_names)
    orders = [n for n in ORDERS if n <= terms.output_lag]

    def bic(output: int, own: Own) -> float:
        """Of one output; from normal equations, which is good enough to choose by."""
        at = _columns(problem, own, output)
        explained = g[at, output] @ np.linalg.solve(G[np.ix_(at, at)], g[at, output])
        mean = max((whole[output] - explained) / problem.rows, 1e-12)
        return float(problem.rows * np.log(mean) + len(at) * np.log(problem.rows))

    def delays(order: int, near: int | None = None) -> list[int]:
        """All that are tried at first, or those around one, between the steps of the grid."""
        most = longest + 1 - order
        grid = (*range(NEAR), *range(NEAR, FAR + 1, STEP))
        if near is not None:
            grid = tuple(range(max(0, near - STEP + 1), near + STEP))
        return [delay for delay in grid if delay <= most]

    found = []
    for output in range(problem.Q_y.shape[1]):
        best = partial(min, key=partial(bic, output))

        def each_input(own: Own, near: bool, best: Callable[..., Own] = best) -> Own:
            for c in range(inputs):
                tried = delays(own.order, own.delays[c] if near else None)
                own = best(own._replace(delays=_with(own.delays, c, d)) for d in tried)
            return own

        alike = [best(Own(n, (d,) * inputs) for d in delays(n)) for n in orders]
        found.append(each_input(best(each_input(own, near=False) for own in alike), near=True))
    return found


def _with(delays: tuple[int, ...], channel: int, delay: int) -> tuple[int, ...]:
    return (*delays[:channel], delay, *delays[channel + 1 :])


def _columns(problem: _Problem, own: Own, output: int) -> Int[Array, " p"]:
    """The columns of an output that has its own past alone, a constant among them."""
    terms, first = problem.terms, own.delays
    keep = [first[c] <= lag < first[c] + own.order + (first[c] == 0) for c, lag in terms.inputs]
    keep += [c == output and lag <= own.order for c, lag in terms.outputs]
    return problem.columns(keep)


def _bic(problem: _Problem, fitted: Float[Array, "p ny"], free: int) -> float:
    """Of one-step errors over all outputs, with so many free coefficients."""
    squares = problem.rest + np.sum((problem.Q_y - fitted) ** 2, axis=0)
    rows = problem.rows
    return float(rows * np.sum(np.log(np.maximum(squares / rows, 1e-12))) + free * np.log(rows))


def _problem(records: tuple[Record, ...]) -> _Problem:
    scaling = fit_scaling(records, "standardize")
    channels = records[0].u.shape[1] + records[0].y.shape[1]
    rows = [len(r) - r.lead for r in records]
    shortest, total = min(rows), sum(rows)
    most = min(ORDERS[-1], total // (ROWS_PER_TERM * channels) - 1, shortest // 3)
    if most < 1:
        raise DataError(
            f'record "{records[0].name}" is too short for a linear model of {channels} channels; '
            "use longer records."
        )
    nu = records[0].u.shape[1]
    far = min(most + FAR, total // 12, shortest // 2, (MOST_COLUMNS - most * (channels - nu)) // nu)
    terms = all_terms(records[0], max(most, far), most)
    Z, Y = regression(records, terms, scaling)
    Q, R = np.linalg.qr(Z)
    Q_y = Q.T @ Y
    rest = np.maximum(np.sum(Y**2, axis=0) - np.sum(Q_y**2, axis=0), 0.0)
    return _Problem(terms, R, Q_y, rest, len(Z), scaling, records[0].sampling_time)


def _at_zero(problem: _Problem) -> _Problem:
    """The same regression on data that are not centred, without a constant.

    Columns differ by a multiple of the constant one, which the triangular form has as its last.
    """
    terms, scaling, constant = problem.terms, problem.scaling, problem.R[:, -1:]
    u, y = scaling.u_offset / scaling.u_scale, scaling.y_offset / scaling.y_scale
    shift = [u[c] for c, _ in terms.inputs] + [y[c] for c, _ in terms.outputs]
    return problem._replace(
        R=problem.R[:, :-1] + constant * shift,
        Q_y=problem.Q_y + constant * y,
        scaling=replace(scaling, u_offset=np.zeros_like(u), y_offset=np.zeros_like(y)),
        constant=False,
    )


def regression(
    records: Sequence[Record], terms: Terms, scaling: Scaling
) -> tuple[Float[Array, "N nz"], Float[Array, "N ny"]]:
    """Regressors of all rows of all records, the last column constant, and their outputs."""
    with jax.enable_x64(True):  # windows in single precision would round what is solved for
        data = windows([scaling.apply(r) for r in records], terms, terms.max_lag)
    used = np.asarray(data.valid, dtype=bool).reshape(-1)
    Z, Y = (np.asarray(x, np.float64).reshape(len(used), -1)[used] for x in (data.z, data.y))
    return np.concatenate([Z, np.ones((len(Z), 1))], axis=1), Y


def _solve(problem: _Problem, order: int, delay: int) -> Arx:
    """Least squares on the columns of one order and delay; BIC over all outputs."""
    terms = problem.terms
    keep = np.array(
        [delay <= lag < delay + order + (delay == 0) for _, lag in terms.inputs]
        + [lag <= order for _, lag in terms.outputs]
    )
    R = problem.R[:, problem.columns(keep)]
    theta = np.linalg.lstsq(R, problem.Q_y, rcond=1e-10)[0]
    bic = _bic(problem, R @ theta, theta.size)
    return Arx(_model(problem, keep, theta.T), order, delay, bic)


def _model(problem: _Problem, keep: Array, theta: Float[Array, "ny p"]) -> Model:
    terms, bias = problem.terms.select(keep), problem.constant
    network = MLP(len(terms), (1,), theta.shape[0], "identity", bias=bias, skip=True)
    weights = {name: np.zeros(spec.shape) for name, spec in network.specs().items()}
    weights["skip.W"] = theta[:, : len(terms)]
    if bias:
        weights["layer1.b"] = theta[:, -1]
    return Model(
        network=network,
        terms=terms,
        scaling=problem.scaling,
        weights=weights,
        start=terms.max_lag,
        sampling_time=problem.sampling_time,
        prior_widths={n: np.full(v.shape, WIDE) for n, v in weights.items() if is_matrix(n)},
    )
