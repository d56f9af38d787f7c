"""Smaller models near a fitted one: exact changes first, then what leaves and what stays."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
import pytest

from occamid.training.state_space import Search, levenberg, reduction, search
from occamid.training.state_space.fit import data_of, run
from occamid.training.state_space.fitted import basis_changes
from occamid.training.state_space.priors import order_mask
from occamid.training.state_space.reduction import (
    Reduction,
    exactly,
    fewer_states,
    free_weights,
    independent_rows,
    reduced,
)
from occamid.training.state_space.resizing import picked
from occamid.training.state_space.smaller import (
    Along,
    earlier,
    inputs_of,
    later,
    opened,
    turned,
    without_input,
    without_state,
    without_units,
)
from occamid.training.state_space.start import Linear
from occamid.training.state_space.trajectory import Sizes, split

SIZES = Sizes(3, 2, 2, 2, 1)
searching = sys.modules[search.__module__]


def simulate(sizes: Sizes, w: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A plain loop from the first state of the first record."""
    at = split(sizes, w)
    x, states, outputs = at.first[0], [], []
    for row in u:
        psi = np.concatenate([x, row, [1.0]])
        phi = np.concatenate([psi, np.tanh(at.unit @ psi)])
        states.append(x)
        outputs.append(at.out @ phi)
        x = at.state @ phi
    return np.stack(states), np.stack(outputs)


def fit_of(sizes: Sizes, w: np.ndarray, rows: int = 300, seed: int = 0) -> tuple[Along, np.ndarray]:
    """A model along its own run, and its outputs."""
    u = np.random.default_rng(seed).normal(size=(rows, sizes.nu))
    x, y = simulate(sizes, w, u)
    last, mask = np.arange(rows) == rows - 1, np.ones(sizes.total, bool)
    return Along(sizes, w, mask, np.ones(sizes.ny), x, u, last), y


def weights(seed: int = 0) -> np.ndarray:
    w = 0.4 * np.random.default_rng(seed).normal(size=SIZES.total)
    split(SIZES, w).state[:, :3] *= 0.6
    return w


def feedback(sizes: Sizes) -> np.ndarray:
    """Two states of a turning mode; one unit sends the output back."""
    w = np.zeros(sizes.total)
    at, nu = split(sizes, w), sizes.nu
    at.state[:2, :2] = 0.85 * np.array([[np.cos(0.5), np.sin(0.5)], [-np.sin(0.5), np.cos(0.5)]])
    at.state[:2, 2] = 0.5, 0.8
    at.state[:2, 2 + nu + 1] = -0.4, -0.64
    at.out[0, :2] = 0.8, -0.6
    at.unit[0, :2] = 1.6, -1.2
    return w


def late() -> tuple[Sizes, np.ndarray]:
    """The same with a unit that speaks a sample later, which takes a state more."""
    small, sizes = Sizes(2, 1, 1, 1, 1), Sizes(3, 1, 1, 1, 1)
    at, w = split(small, feedback(small)), np.zeros(sizes.total)
    model = Linear(
        at.state[:, :2],
        at.state[:, [2, 4]],
        np.concatenate([at.out[:, :2], at.unit[:, :2]]),
        np.zeros((2, 2)),
    )
    found, to = later(model, 1, 1), split(sizes, w)
    to.state[:, :3], to.state[:, [3, 5]] = found.A, found.B
    to.out[:, :3], to.out[:, [3, 5]] = found.C[:1], found.D[:1]
    to.unit[:, :3] = found.C[1:]
    return sizes, w


# --- exact changes ------------------------------------------------------------------------------


def test_a_turned_model_is_the_same_with_independent_states() -> None:
    fit, y = fit_of(SIZES, weights())
    x, again = simulate(SIZES, turned(fit), fit.u)
    np.testing.assert_allclose(again, y, atol=1e-10)
    np.testing.assert_allclose(np.cov(x.T), np.eye(3), atol=1e-6)
    changes = [_change(fit, without_state(SIZES, turned(fit), 3, k)) for k in range(3)]
    assert changes[2] == min(changes)  # the last is worth least


def _change(fit: Along, w: np.ndarray) -> float:
    w = np.where(order_mask(SIZES, 2), w, 0.0)
    return float(np.mean((simulate(SIZES, w, fit.u)[1] - simulate(SIZES, fit.w, fit.u)[1]) ** 2))


def test_a_state_that_leaves_takes_its_row_and_column() -> None:
    w = weights()
    new = split(SIZES, np.where(order_mask(SIZES, 2), without_state(SIZES, w, 3, 1), 0.0))
    old = split(SIZES, w)
    np.testing.assert_array_equal(new.state[:2, :2], old.state[np.ix_([0, 2], [0, 2])])
    np.testing.assert_array_equal(new.state[:2, 3:], old.state[[0, 2], 3:])
    np.testing.assert_array_equal(new.out[:, :2], old.out[:, [0, 2]])
    np.testing.assert_array_equal(new.unit[:, :2], old.unit[:, [0, 2]])
    assert not new.state[2].any()


def test_a_unit_that_repeats_another_leaves_without_a_trace() -> None:
    w = weights()
    at = split(SIZES, w)
    at.unit[1] = at.unit[0]
    fit, y = fit_of(SIZES, w)
    new, mask = without_units(fit, 1)
    assert split(SIZES, mask).unit.any(axis=1).sum() == 1
    np.testing.assert_allclose(simulate(SIZES, new, fit.u)[1], y, atol=1e-4)


def test_units_moved_in_time_move_what_they_read_and_what_they_say() -> None:
    rng = np.random.default_rng(0)
    model = Linear(
        0.5 * rng.normal(size=(3, 3)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(2, 3)),
        np.zeros((2, 2)),
    )
    plain = impulses(model)
    ahead, behind = impulses(earlier(model, 1, 1)), impulses(later(model, 1, 1))
    for found, shift in ((ahead, 1), (behind, -1)):
        np.testing.assert_allclose(found[:, 0, 0], plain[:, 0, 0])
        np.testing.assert_allclose(found[:, 1, 1], plain[:, 1, 1])  # both moved: the same
        read, said = (np.roll(plain[:, a, b], s) for a, b, s in ((1, 0, -shift), (0, 1, shift)))
        inner = slice(2, -2)
        np.testing.assert_allclose(found[inner, 1, 0], read[inner])
        np.testing.assert_allclose(found[inner, 0, 1], said[inner])


def impulses(model: Linear) -> np.ndarray:
    A, B, C, D = model
    return np.stack([D, *(C @ np.linalg.matrix_power(A, t) @ B for t in range(20))])


def of_units(sizes: Sizes, w: np.ndarray) -> Linear:
    """The open model, ``[u h] → [y a]``, of one input and one unit."""
    at, n, places = split(sizes, w), sizes.nx, [sizes.nx, sizes.nx + 2]
    feeds = np.concatenate([at.out[:, places], [[at.unit[0, n], 0.0]]])
    reads = np.concatenate([at.out[:, :n], at.unit[:, :n]])
    return Linear(at.state[:, :n], at.state[:, places], reads, feeds)


def test_an_open_model_closes_to_the_same_and_a_late_unit_frees_a_state() -> None:
    sizes, w = late()
    fit, y = fit_of(sizes, w)
    small = Sizes(2, 1, 1, 1, 1)
    np.testing.assert_allclose(simulate(small, feedback(small), fit.u)[1], y, atol=1e-10)
    same = next(opened(fit, 3))
    np.testing.assert_allclose(
        impulses(of_units(sizes, same)), impulses(of_units(sizes, w)), atol=1e-9
    )
    plain, ahead, _ = opened(fit, 2)
    runs = [simulate(sizes, v, fit.u)[1] for v in (same, plain, ahead)]
    misses = [np.std((run - y)[150:]) / y.std() for run in runs]  # offsets are only nearly right
    assert misses[0] < 0.01
    assert misses[1] > 0.1  # no truncation finds it
    assert misses[2] < 0.01


def test_weights_count_that_no_basis_can_change() -> None:
    every = np.ones((1, SIZES.total), bool)
    bases = np.linalg.matrix_rank(basis_changes(SIZES, weights()))
    assert free_weights(SIZES, every)[0] == SIZES.total - SIZES.nx - bases
    fit, _ = fit_of(SIZES, weights(), rows=5)
    fewer = without_input(fit, 1)
    assert inputs_of(SIZES, fewer).tolist() == [True, False]
    gone = SIZES.nx + SIZES.m + SIZES.ny
    assert free_weights(SIZES, fewer[None])[0] == free_weights(SIZES, every)[0] - gone


# --- what leaves and what stays -----------------------------------------------------------------


def test_a_late_unit_and_its_state_leave_and_the_process_stays() -> None:
    sizes, w = late()
    rng = np.random.default_rng(0)
    u = rng.normal(size=(400, 1))
    y = simulate(sizes, w, u)[1]
    y = y + 0.01 * y.std() * rng.normal(size=y.shape)
    data = data_of([(u, y)])
    with jax.enable_x64(True):
        stage = run(exactly(sizes, data, w), levenberg.Settings(10), "")
        found = fewer_states(stage, data, independent_rows(stage, data))
    assert found.orders.tolist() == [2]


def idle_rows(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A mode with saturating feedback and three inputs, of which the second does nothing."""
    sizes = Sizes(2, 3, 1, 1, 1)
    w = feedback(sizes)
    at = split(sizes, w)
    at.state[:2, 4] = 0.7, -0.3
    rng = np.random.default_rng(1)
    u = rng.normal(size=(rows, 3))
    y = simulate(sizes, w, u)[1]
    return u, (y + 0.02 * y.std() * rng.normal(size=y.shape)) / y.std()


def test_an_idle_input_leaves_a_linear_model() -> None:
    rng = np.random.default_rng(0)
    u, x, y = rng.normal(size=(300, 3)), np.zeros(2), np.zeros((300, 1))
    A, B = np.array([[0.8, 0.3], [-0.3, 0.8]]), np.array([[1.0, 0, 0.5], [0.4, 0, -1.0]])
    for t in range(300):
        y[t] = x[0] + 0.05 * rng.normal()
        x = A @ x + B @ u[t]
    (fit,) = search([(u, y / y.std(), np.ones(300))], Search((1, 2, 3)))
    assert inputs_of(fit.sizes, fit.mask).tolist() == [True, False, True]
    network = fit.network()[0]
    assert (network.states, network.n_in) == (2, 2)


def test_an_idle_input_leaves_a_model_with_units() -> None:
    u, y = idle_rows(300)
    data, sizes = data_of([(u, y)]), Sizes(2, 3, 1, 1, 1)
    w = feedback(sizes) + 1e-2 * np.random.default_rng(0).normal(size=sizes.total)
    with jax.enable_x64(True):
        found = reduced(exactly(sizes, data, w), data, Reduction(states=False))
    assert inputs_of(sizes, found.state.mask)[0].tolist() == [True, False, True]
    assert found.orders.tolist() == [2]


@pytest.mark.study
def test_all_members_of_a_search_leave_an_idle_input_out() -> None:
    u, y = idle_rows(600)
    plan = Search((1, 2, 3), units=4, restarts=4, members=2)
    fits = search([(u, y, np.ones(600))], plan)
    assert len(fits) > 1
    assert all(inputs_of(f.sizes, f.mask).tolist() == [True, False, True] for f in fits)
    assert fits[0].network()[0].states == 2


def test_a_smaller_linear_model_that_would_run_away_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pole beyond the circle may fit a drift; what was fitted order by order has none."""
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=(200, 1)), np.zeros((200, 1))
    for t in range(1, 200):
        y[t] = 0.8 * y[t - 1] + u[t - 1]
    rows = [(u, y / y.std() + 0.05 * rng.normal(size=y.shape), np.ones(200))]
    real = searching.reduced

    def unstable(*args: Any) -> Any:
        stage = real(*args)
        at = split(stage.problem.sizes, stage.state.w)
        at.state[:, : stage.problem.sizes.nx, : stage.problem.sizes.nx] *= 1.5
        state = stage.state._replace(squares=1e-9 * stage.state.squares)  # the best by far
        return stage._replace(state=state)

    monkeypatch.setattr(searching, "reduced", unstable)
    (fit,) = search(rows, Search((1, 2), iterations=5))
    A = split(fit.sizes, fit.w).state[:, : fit.sizes.nx]
    assert np.max(np.abs(np.linalg.eigvals(A))) < 1


def test_reduction_ends_where_all_smaller_models_run_away(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(2, 1, 1, 1, 1)
    w = feedback(sizes)
    u = np.random.default_rng(0).normal(size=(200, 1))
    data = data_of([(u, simulate(sizes, w, u)[1])])
    with jax.enable_x64(True):
        stage = exactly(sizes, data, w)
        rows = independent_rows(stage, data)
        monkeypatch.setattr(reduction, "_varied", lambda stage, _: picked(stage, np.array([], int)))
        assert fewer_states(stage, data, rows).orders[0] == 2
