"""Subspace models against known plants, the benchmarks' own implementation and a plain loop."""

import numpy as np
import pytest

from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError
from occamid.reporting.figures import sparsity_figure
from occamid.training.state_space import Search, search
from occamid.training.state_space.observed import observed
from occamid.training.state_space.subspace import Fit, best_order, subspace
from occamid_benchmarks.baselines.subspace import fit_subspace

A = np.array([[0.9, 0.2, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, -0.5]])
B = np.array([[0.3, -1.0], [0.8, 0.1], [-0.4, 1.2]])
C = np.array([[1.0, 0.0, 0.5], [0.2, -1.0, 1.0]])
D = np.array([[0.4, 0.0], [-0.3, 0.7]])
Rows = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def plant(lengths: tuple[int, ...], noise: float = 0.0, slow: float = 0.0) -> Rows:
    """Records of a plant with three states, an offset and, at will, coloured noise."""
    rng = np.random.default_rng(0)
    found = []
    for length in lengths:
        u, x, v = rng.normal(size=(length, 2)), rng.normal(size=3), np.zeros(2)
        y = np.zeros((length, 2))
        for t in range(length):
            v = slow * v + noise * rng.normal(size=2)
            y[t] = C @ x + D @ u[t] + 0.3 + v
            x = A @ x + B @ u[t]
        found.append((u, y, np.ones(length)))
    return found


def run(fit: Fit, u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Outputs of a free run, by a plain loop."""
    A, B, C, D, c = fit[:5]
    outputs = []
    for now in u:
        outputs.append(C @ x + D @ now + c)
        x = A @ x + B @ now
    return np.array(outputs)


def test_a_plant_is_recovered_from_records_with_blanks() -> None:
    rows = plant((400, 300))
    rows[0][2][100:150] = 0.0
    rows[0][1][100:150] = 1e3  # nobody looks there
    fit = subspace(rows, 3)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(fit.A)), [-0.5, 0.7, 0.9], atol=1e-9)
    np.testing.assert_allclose(fit.D, D, atol=1e-4)
    np.testing.assert_allclose(fit.c, 0.3, atol=1e-4)
    by_loop = [run(fit, u, x) for (u, _, _), x in zip(rows, fit.first, strict=True)]
    np.testing.assert_allclose(fit.outputs, np.concatenate(by_loop), atol=1e-9)
    seen = np.concatenate([w for _, _, w in rows]) > 0
    y = np.concatenate([y for _, y, _ in rows])
    assert np.abs(fit.outputs - y)[seen][20:].max() < 2e-3  # first states are held a little


def test_without_an_offset_the_rest_is_the_same() -> None:
    rows = plant((400, 300))
    resting = [(u, y - 0.3, w) for u, y, w in rows]
    fit = subspace(resting, 3, offset=False)
    assert (fit.c == 0).all()
    np.testing.assert_allclose(fit.D, D, atol=1e-4)
    by_loop = [run(fit, u, x) for (u, _, _), x in zip(resting, fit.first, strict=True)]
    np.testing.assert_allclose(fit.outputs, np.concatenate(by_loop), atol=1e-9)
    assert np.abs(fit.outputs - np.concatenate([y for _, y, _ in resting]))[20:].max() < 2e-3
    off = subspace(rows, 3, offset=False)  # which is missed where there is one
    assert np.abs(off.outputs - np.concatenate([y for _, y, _ in rows]))[20:].mean() > 0.01
    assert best_order(resting, (1, 3, 4), offset=False) == 3


def test_a_record_too_short_for_a_window_tells_no_poles_and_disturbs_nobody() -> None:
    rows = plant((400, 30, 3))
    fit = subspace(rows, 3)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(fit.A)), [-0.5, 0.7, 0.9], atol=1e-9)
    assert fit.first.shape == (3, 3)
    y = np.concatenate([y for _, y, _ in rows])
    assert np.sqrt(np.mean((fit.outputs - y) ** 2)) < 1e-2
    assert best_order(rows, (1, 3, 4)) == 3


def test_of_long_records_pieces_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("occamid.training.state_space.subspace.ROWS", 3000)
    rows = plant((6000,))
    rows[0][0][:1000], rows[0][1][:1000] = 0.0, 0.3  # at rest: the first piece says nothing
    fit = subspace(rows, 3)
    assert len(fit.outputs) == 3000
    assert fit.first.shape == (1, 3)
    np.testing.assert_allclose(fit.first, 0.0, atol=1e-2)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(fit.A)), [-0.5, 0.7, 0.9], atol=1e-9)


def test_noisy_models_equal_those_of_another_implementation() -> None:
    ((u, y, weight),) = plant((600,), noise=0.3)
    other = fit_subspace(Record(u=u, y=y), 3, 0, 20)
    scale_u, scale_y = u.std(axis=0), y.std(axis=0)
    fit = subspace([((u - u.mean(axis=0)) / scale_u, (y - y.mean(axis=0)) / scale_y, weight)], 3)
    ours, theirs = (np.sort(np.linalg.eigvals(m).real) for m in (fit.A, other.A))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    gain = fit.C @ np.linalg.solve(np.eye(3) - fit.A, fit.B) + fit.D
    expected = other.C @ np.linalg.solve(np.eye(3) - other.A, other.B) + other.D
    np.testing.assert_allclose(gain * scale_y[:, None] / scale_u, expected, rtol=2e-3)


def test_the_order_is_found_on_held_back_rows_under_coloured_noise() -> None:
    assert best_order(plant((800,), noise=0.1, slow=0.9), (1, 2, 3, 4, 6, 8)) == 3


def test_a_search_by_projection_leaves_a_model_with_its_doubt() -> None:
    rows = plant((400,), noise=0.1)
    (fit,) = search(rows, Search((1, 2, 3, 4), projected=True))
    assert fit.sizes.nx == 4  # room for the largest, of which it uses three
    w, n = fit.weights, fit.sizes.nx
    x, outputs = w.first[0], []
    for now in rows[0][0]:
        read = np.concatenate([x, now, [1.0]])  # its own offsets: its states have mean zero
        outputs.append(w.out @ read)
        x = w.state @ read
    assert np.flatnonzero(np.any(w.out[:, :n], axis=0)).tolist() == [0, 1, 2]
    miss = np.array(outputs) - rows[0][1]
    np.testing.assert_allclose(np.sqrt(np.mean(miss**2, axis=0)), fit.error, rtol=1e-9)
    assert np.all(fit.error < 0.11)
    values = np.linalg.eigvalsh(fit.covariance()[0])
    assert values.min() > -1e-12
    assert np.sqrt(values.max()) < 10  # no direction is left to the widest prior


@pytest.mark.filterwarnings("error")
def test_a_model_without_units_is_drawn_without_empty_pictures() -> None:
    ((u, y, weight),) = plant((400,), noise=0.1)
    record = Record(u=u, y=y)
    scaling = fit_scaling([record], "standardize")
    scaled = scaling.apply(record)
    (fit,) = search([(scaled.u, scaled.y, weight)], Search((3,), projected=True))
    model = observed(fit, record, scaling).model
    drawn = [axis for axis in sparsity_figure(model).axes if axis.images]
    assert [axis.get_title().split()[0] for axis in drawn] == [
        *("state.W_x", "state.W_u", "out.W_x", "out.W_u"),
    ]


def test_too_few_rows_are_said() -> None:
    with pytest.raises(DataError, match="of order 0 at most"):
        subspace(plant((12,)), 2)
    with pytest.raises(DataError, match="of order 4 at most"):
        search(plant((90,)), Search((8,), projected=True))
