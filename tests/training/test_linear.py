"""Plain linear models: known systems, explicit regressors, orders and delays by BIC."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid import DataError, Record
from occamid.identification.assemble import Workshop
from occamid.identification.families import CLASSICAL
from occamid.identification.folds import whole
from occamid.identification.options import Budget
from occamid.training.linear import ROWS_PER_TERM, fit_arx, fit_own, own_orders, rests_at_zero

Array = np.ndarray
A1 = np.array([[1.2, -0.2], [0.1, 0.7]])
A2 = np.array([[-0.5, 0.0], [0.0, -0.1]])


def mimo(rows: int, delay: int, noise: float = 0.0, seed: int = 0) -> Record:
    """Two inputs, two outputs, second order, in units far from standardised.

    One period of a steady state, so that its mean is an equilibrium of the system.
    """
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=(rows, 2)), np.zeros((4 * rows, 2))
    e, B = noise * rng.normal(size=(rows, 2)), rng.normal(size=(2, 2, 2))
    for t in range(2, 4 * rows):
        y[t] = A1 @ y[t - 1] + A2 @ y[t - 2] + e[t % rows]
        y[t] += B[0] @ u[(t - delay) % rows] + B[1] @ u[(t - delay - 1) % rows]
    y = y[3 * rows :]
    return Record(u=u * [1.0, 50.0] + [0.0, 300.0], y=y * [1e-3, 7.0] + [5.0, -40.0])


@pytest.mark.parametrize("delay", [1, 3])
def test_a_known_system_is_recovered(delay: int) -> None:
    record = mimo(300, delay)
    best = fit_arx([record])[0]
    assert (best.order, best.delay) == (2, delay)
    s = best.model.scaling
    direct = dict(zip(best.model.terms.names, best.model.weights["skip.W"].T, strict=True))
    for lag, A in ((1, A1), (2, A2)):
        found = np.stack([direct[f"y{c + 1}[t-{lag}]"] for c in range(2)], axis=1)
        np.testing.assert_allclose(found * s.y_scale[:, None] / s.y_scale, unit(A), atol=1e-8)


def test_a_long_delay_is_found_between_the_steps_of_the_grid() -> None:
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=2500), np.zeros(2500)
    for t in range(1, 2500):
        y[t] = 0.8 * y[t - 1] + (u[t - 148] if t >= 148 else 0.0)
    best = fit_arx([Record(u=u, y=y + 0.1 * rng.normal(size=2500))])[0]
    assert best.delay == 148


def unit(A: Array) -> Array:
    """The matrix in the record's units."""
    scale = np.array([1e-3, 7.0])
    return A * scale[:, None] / scale


def test_a_noise_free_system_runs_free() -> None:
    record = mimo(300, 3)
    model = fit_arx([record])[0].model
    run = model.free_run(record.u, record.y[: model.start])
    np.testing.assert_allclose((run - record.y) / record.y.std(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("records", [1, 2])
def test_every_fit_is_least_squares_on_explicit_regressors(records: int, zero: bool) -> None:
    data = [mimo(100 + 30 * k, 1, noise=0.3, seed=k) for k in range(records)]
    fits = fit_arx(data, zero)
    assert [f.bic for f in fits] == sorted(f.bic for f in fits)
    assert len({f.order for f in fits}) == len(fits) > 3
    joined_u, joined_y = (np.concatenate([getattr(r, n) for r in data]) for n in "uy")
    middle_u, middle_y = (0.0 if zero else v.mean(axis=0) for v in (joined_u, joined_y))
    start = max(len(joined_u) // (ROWS_PER_TERM * 4) - 1, len(joined_u) // 12)
    for fit in fits:
        inputs = range(fit.delay, fit.delay + fit.order + (fit.delay == 0))
        phi, target = [], []
        for r in data:
            u = (r.u - middle_u) / joined_u.std(axis=0)
            y = (r.y - middle_y) / joined_y.std(axis=0)
            for t in range(start, len(r)):  # all orders over the same rows
                row = [] if zero else [1.0]
                row += [u[t - lag, c] for c in range(2) for lag in reversed(inputs)]
                row += [y[t - lag, c] for c in range(2) for lag in range(fit.order, 0, -1)]
                phi.append(row)
                target.append(y[t])
        theta, *_ = np.linalg.lstsq(np.array(phi), np.array(target), rcond=None)
        offset = [] if zero else [fit.model.weights["layer1.b"][:, None]]
        found = np.concatenate([*offset, fit.model.weights["skip.W"]], axis=1)
        np.testing.assert_allclose(found, theta.T, atol=1e-7 if zero else 1e-8)
        miss = np.array(target) - np.array(phi) @ theta
        n = len(miss)
        bic = n * np.sum(np.log(np.mean(miss**2, axis=0))) + 2 * len(phi[0]) * np.log(n)
        assert fit.bic == pytest.approx(bic, abs=1e-6)
        assert fit.model.start == max(max(inputs), fit.order)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_step_from_rest_is_enough(seed: int) -> None:
    """The mean of such a record is no equilibrium: without a constant the gain was far off."""
    rng = np.random.default_rng(seed)

    def simulate(u: Array) -> tuple[Array, Array]:
        y = np.zeros(len(u))
        for t in range(1, len(u)):
            y[t] = 0.95 * y[t - 1] + 0.05 * u[t - 1]
        return y, y + 0.01 * rng.normal(size=len(u))

    step = np.where(np.arange(120) < 30, 0.0, 1.0)
    model = fit_arx([Record(u=step, y=simulate(step)[1])])[0].model
    u = np.repeat(rng.normal(size=20), 25)
    clean, measured = simulate(u)
    run = model.free_run(u, measured[: model.start])[:, 0]
    assert np.sqrt(np.mean((run - clean)[30:] ** 2)) < 0.1 * clean.std()


def test_no_more_terms_than_rows_can_bear() -> None:
    record = mimo(100, 1, noise=0.3)
    assert max(f.order for f in fit_arx([record])) <= 100 // (ROWS_PER_TERM * 4) - 1
    with pytest.raises(DataError, match="too short for a linear model of 4 channels"):
        fit_arx([record[:31]])


def separate(rows: int, noise: float, seed: int = 0) -> Record:
    """Two outputs that know nothing of each other, of orders 2 and 1, behind unlike delays."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=(rows, 2)), np.zeros((rows, 2))
    for t in range(30, rows):
        y[t, 0] = 1.5 * y[t - 1, 0] - 0.7 * y[t - 2, 0] + u[t - 2, 0] + 0.4 * u[t - 25, 1]
        y[t, 1] = 0.8 * y[t - 1, 1] - u[t - 7, 0] + u[t - 1, 1]
        y[t] += noise * rng.normal(size=2)
    return Record(u=u * [1.0, 50.0], y=y * [1e-3, 7.0] + [5.0, -40.0])


def test_outputs_of_their_own_have_orders_and_delays_of_their_own() -> None:
    found = own_orders([separate(1500, 0.05)])
    assert [own.order for own in found] == [2, 1]
    assert [own.delays[0] for own in found] == [2, 7]
    assert found[0].delays[1] in (24, 25)  # two coefficients reach it from either
    assert found[1].delays[1] == 1


@pytest.mark.parametrize("zero", [False, True])
def test_each_output_is_least_squares_on_its_own_columns(zero: bool) -> None:
    record = separate(400, 0.3, seed=1)
    fit = fit_own([record], zero)
    scaled, terms = fit.model.scaling.apply(record), fit.model.terms
    first = max(len(record) // (ROWS_PER_TERM * 4) - 1, len(record) // 12)  # as far as is looked
    W, c = fit.model.weights["skip.W"], fit.model.weights.get("layer1.b")
    assert (c is None) == zero
    squares, free = [], 0
    for k in range(2):
        used = np.flatnonzero(W[k])
        fed = [terms.outputs[i - len(terms.inputs)] for i in used if i >= len(terms.inputs)]
        assert all(channel == k for channel, _ in fed)
        columns = [
            (scaled.u if i < len(terms.inputs) else scaled.y)[first - lag : 400 - lag, channel]
            for i, (channel, lag) in enumerate(terms.inputs + terms.outputs)
            if i in used
        ]
        Z = np.stack([*columns, *([] if c is None else [np.ones(400 - first)])], axis=1)
        y = scaled.y[first:, k]
        theta = np.linalg.lstsq(Z, y, rcond=None)[0]
        found = W[k, used] if c is None else np.append(W[k, used], c[k])
        np.testing.assert_allclose(found, theta, atol=1e-6)
        squares.append(np.sum((y - Z @ theta) ** 2))
        free += len(theta)
    rows = 400 - first
    expected = rows * np.sum(np.log(np.array(squares) / rows)) + free * np.log(rows)
    assert fit.bic == pytest.approx(expected, rel=1e-6)
    assert fit.bic < fit_arx([record], zero)[0].bic  # which has coefficients for what is not there


def test_an_input_that_moves_but_once_is_no_trouble() -> None:
    record = separate(400, 0.05)
    once = Record(u=np.stack([record.u[:, 0], np.arange(400) < 3.0], axis=1), y=record.y)
    assert np.isfinite(fit_own([once]).bic)
    assert own_orders([once])[1].delays[0] == 7


def test_where_a_process_rests_is_told_by_its_record() -> None:
    record = separate(400, 0.05)
    resting = replace(record, y=record.y - [5.0, -40.0])
    assert rests_at_zero([resting])
    seen, unseen = np.array([0.0, 3.0]), np.array([5.0, 0.0])  # whether zero still is
    assert not rests_at_zero([replace(resting, y=resting.y + seen)])
    assert not rests_at_zero([replace(resting, u=resting.u + unseen)])
    assert not rests_at_zero([resting[:20]])
    high = np.random.default_rng(0).uniform(2, 3, size=(400, 1))  # zero is never seen
    flat = Record(u=high, y=5 * np.concatenate([[[2.5]], high[:-1]]))
    assert fit_arx([flat], zero=True)[0].bic < fit_arx([flat])[0].bic
    assert not rests_at_zero([flat])


def test_a_system_whose_outputs_act_on_each_other_is_told_from_one_whose_do_not() -> None:
    record = mimo(300, 1, noise=0.1)
    assert fit_arx([record])[0].bic < fit_own([record]).bic


def test_output_error_beats_arx_under_output_noise() -> None:
    """White noise on the measurement biases one-step least squares, not the free run."""
    rng = np.random.default_rng(1)
    u, clean = rng.normal(size=600), np.zeros(600)
    for t in range(2, 600):
        clean[t] = 1.5 * clean[t - 1] - 0.7 * clean[t - 2] + u[t - 1]
    record = Record(u=u, y=clean + 0.5 * clean.std() * rng.normal(size=600))
    shop = Workshop(whole([record[:300]]), Budget(folds=2, restarts=2, members=2, iterations=30))
    arx, output_error = (shop.model(family) for family in CLASSICAL)
    assert (arx.feedback, output_error.feedback) == ("process", "none")
    assert len(arx.weights) == len(output_error.weights) == 1

    def error(model: object) -> float:
        run = model.free_run(record.u[300:], record.y[300:320])  # type: ignore[attr-defined]
        return float(np.sqrt(np.mean((run[60:, 0] - clean[360:]) ** 2)) / clean.std())

    assert error(output_error) < 0.15
    assert error(output_error) < 0.5 * error(arx)
