"""Linear classics: known systems are recovered, free runs equal plain loops, errors are named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from occamid import DataError, Record
from occamid.errors import SettingsError
from occamid_benchmarks.baselines.output_error import fit_output_error
from occamid_benchmarks.baselines.polynomial import Polynomial, fit_armax, fit_arx, stabilised
from occamid_benchmarks.baselines.subspace import StateSpace, fit_subspace
from tests.support.linear_systems import A, B, C, Rng, check_free_run, system

pytestmark = pytest.mark.usefixtures("one_thread")


def loop_polynomial(model: Polynomial, u: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The difference equation, sample by sample."""
    y, e = [*known[:, 0]], [0.0] * len(u)
    lag = model.max_lag
    for t in range(lag, len(u)):
        value = model.constant
        for i, a in enumerate(model.a):
            value -= a * y[t - 1 - i]
        for j, row in enumerate(model.b):
            for k, b in enumerate(row):
                value += b * u[t - model.delay - k, j]
        for i, c in enumerate(model.c):
            value += c * e[t - 1 - i] if t - 1 - i >= lag else 0.0
        if t < len(known):
            e[t] = y[t] - value
        else:
            y.append(value)
    return np.array(y)[:, None]


def test_arx_is_exact_without_noise(rng: Rng) -> None:
    model = fit_arx(system(rng, 200, offset=2.0), 2, 2, 2)
    np.testing.assert_allclose(model.a, A[1:], atol=1e-10)
    np.testing.assert_allclose(model.b, [B[2:]], atol=1e-10)
    # y - 6 = G (u - 2):  A(1) 6 = B(1) 2 + constant
    np.testing.assert_allclose(model.constant, 6 * A.sum() - 2 * B.sum(), atol=1e-9)
    assert model.describe() == "ARX na=2 nb=2 nk=2"
    assert (model.max_lag, model.parameters) == (3, 5)


def test_arx_uses_every_record_and_never_a_window_across_two(rng: Rng) -> None:
    pieces = [system(rng, n, offset=1.0) for n in (12, 15, 11)]
    np.testing.assert_allclose(fit_arx(pieces, 2, 2, 2).a, A[1:], atol=1e-9)


def test_armax_is_right_where_arx_is_biased(rng: Rng) -> None:
    records = [system(rng, 2000, "armax", std=1.0, offset=1.0) for _ in range(2)]
    model = fit_armax(records, 2, 2, 1, 2)
    # Standard errors at N = 4000 are 0.004 (a), 0.015 (b) and 0.014 (c).
    np.testing.assert_allclose(model.a, A[1:], atol=0.02)
    np.testing.assert_allclose(model.b, [B[2:]], atol=0.06)
    np.testing.assert_allclose(model.c, C[1:], atol=0.06)
    assert np.abs(fit_arx(records, 2, 2, 2).a - A[1:]).max() > 0.05
    assert model.describe() == "ARMAX na=2 nb=2 nc=1 nk=2"


def test_output_error_is_right_where_arx_is_biased(rng: Rng) -> None:
    records = [system(rng, 1000, "output", std=1.0, offset=1.0) for _ in range(2)]
    model = fit_output_error(records, 2, 2, 2)
    np.testing.assert_allclose(model.f, A[1:], atol=0.03)
    np.testing.assert_allclose(model.b, [B[2:]], atol=0.12)
    assert np.abs(fit_arx(records, 2, 2, 2).a - A[1:]).max() > 0.15
    assert model.system.noise_std == pytest.approx(1.0, rel=0.06)


def test_output_error_is_exact_without_noise_and_has_several_inputs(rng: Rng) -> None:
    u = rng.normal(size=(300, 2))
    y = lfilter([0, 1, 0.5], A, u[:, 0]) + lfilter([0, -0.3, 2], A, u[:, 1]) + 4
    model = fit_output_error(Record(u=u, y=y), 2, 2, 1)
    np.testing.assert_allclose(model.f, A[1:], atol=1e-6)
    np.testing.assert_allclose(model.b, [[1, 0.5], [-0.3, 2]], atol=1e-5)
    np.testing.assert_allclose(model.free_run(u, y[:10])[:, 0], y, atol=1e-5)


def test_denominators_are_reflected_into_the_unit_circle() -> None:
    np.testing.assert_allclose(stabilised(np.array([-2.0])), [-0.5])
    np.testing.assert_allclose(stabilised(A[1:]), A[1:], atol=1e-12)
    assert len(stabilised(np.zeros(3))) == 3


def test_subspace_poles_and_markov_parameters(rng: Rng) -> None:
    clean = [system(rng, 300, offset=2.0), system(rng, 200, offset=2.0)]
    for records, tolerance in (
        (clean, 1e-8),
        ([system(rng, 2000, "output", std=0.3) for _ in range(2)], 0.02),
    ):
        model = fit_subspace(records, 2, 2)
        poles = np.sort_complex(np.linalg.eigvals(model.A))
        np.testing.assert_allclose(poles, np.sort_complex(np.roots(A)), atol=tolerance)
        powers = [np.linalg.matrix_power(model.A, k) for k in range(10)]
        markov = [model.D[0, 0]] + [(model.C @ p @ model.B)[0, 0] for p in powers]
        impulse = lfilter(B, A, np.eye(13)[0])[2:]
        np.testing.assert_allclose(markov, impulse, atol=5 * tolerance)


def test_subspace_with_several_outputs_continues_a_record(rng: Rng) -> None:
    u = rng.normal(size=(400, 2))
    y = np.stack([lfilter([0, 1], [1, -0.8], u[:, 0]), lfilter([0, 1], [1, 0.5], u[:, 1])], axis=1)
    y += np.array([10.0, -5.0])
    model = fit_subspace(Record(u=u[:300], y=y[:300]), 2, 0)
    np.testing.assert_allclose(model.free_run(u[300:], y[300:310]), y[300:], atol=1e-7)


def test_coloured_noise_decays_after_the_window() -> None:
    """With no input and no state, the known noise leaves as its filter says."""
    model = StateSpace(
        A=np.array([[0.5]]),
        B=np.zeros((1, 1)),
        C=np.zeros((1, 1)),
        D=np.zeros((1, 1)),
        delay=0,
        u_offset=np.zeros(1),
        y_offset=np.zeros(1),
        noise_ar=(-0.8,),
        noise_ma=(0.3,),
    )
    known = np.array([1.0, 2.0])
    # e(0) = 1, e(1) = 2 - 0.8 - 0.3 = 0.9, v(2) = 0.8·2 + 0.3·0.9, then times 0.8
    expected = [1, 2, 1.87, 1.87 * 0.8]
    np.testing.assert_allclose(model.free_run(np.zeros(4), known)[:, 0], expected)


@pytest.mark.parametrize("orders", [(3, 2, 0, 2), (2, 3, 2, 1), (0, 2, 0, 4), (1, 1, 3, 0)])
def test_polynomial_free_run_equals_a_loop(rng: Rng, orders: tuple[int, int, int, int]) -> None:
    na, nb, nc, nk = orders
    model = Polynomial(
        a=0.3 * rng.normal(size=na),
        b=rng.normal(size=(2, nb)),
        c=0.3 * rng.normal(size=nc),
        delay=nk,
        constant=0.7,
    )
    u, known = rng.normal(size=(40, 2)), rng.normal(size=(9, 1))
    for first in (model.max_lag, 9):
        run = model.free_run(u, known[:first])
        np.testing.assert_allclose(run, loop_polynomial(model, u, known[:first]), atol=1e-12)


def test_state_space_free_run_equals_a_loop_from_the_best_state(rng: Rng) -> None:
    model = fit_subspace(system(rng, 300, "output", std=0.2), 2, 1)
    model = replace(model, state_moment=None, noise_std=None)  # plain least squares
    u, known = rng.normal(size=(30, 1)), rng.normal(size=(9, 1))

    def loop(state: np.ndarray) -> np.ndarray:
        rows = [np.full(1, np.nan)]
        for t in range(1, 30):
            pushed = u[t - 1] - model.u_offset
            rows.append(model.C @ state + model.D @ pushed + model.y_offset)
            state = model.A @ state + model.B @ pushed
        return np.array(rows)

    base = loop(np.zeros(2))
    effect = np.stack([loop(e) - base for e in np.eye(2)], axis=-1)[1:9, 0]
    state = np.linalg.lstsq(effect, (known - base[:9])[1:, 0])[0]
    np.testing.assert_allclose(model.free_run(u, known)[9:], loop(state)[9:], atol=1e-10)


FITS: dict[str, Callable[[Record], Any]] = {
    "arx": lambda r: fit_arx(r, 2, 2, 2),
    "armax": lambda r: fit_armax(r, 2, 2, 1, 2),
    "output-error": lambda r: fit_output_error(r, 2, 2, 2),
    "subspace": lambda r: fit_subspace(r, 2, 1),
}


@pytest.mark.parametrize("name", FITS)
def test_the_contract_of_every_family(rng: Rng, name: str) -> None:
    record = system(rng, 200, "equation", offset=1.0)
    check_free_run(FITS[name](record), record)


def test_a_diverged_free_run_is_infinite() -> None:
    model = Polynomial(a=np.array([-3.0]), b=np.ones((1, 1)), c=np.zeros(0), delay=1, constant=0.0)
    record = Record(u=np.arange(900.0), y=np.arange(900.0))
    run = model.free_run(record.u, record.y[:5])
    assert np.isfinite(run[:200]).all()
    assert np.isposinf(run[-500:]).all()


def test_messages(rng: Rng) -> None:
    record = system(rng, 60)
    two = Record(u=record.u, y=np.repeat(record.y, 2, axis=1))
    flat = Record(u=np.ones(60), y=record.y)
    with pytest.raises(DataError, match="has 2 outputs; this model has one"):
        fit_arx(two, 1, 1)
    with pytest.raises(DataError, match="8 rows are too few for a lag of 4 and 9 parameters"):
        fit_arx(record[:8], 4, 4)
    with pytest.raises(DataError, match="input u is constant"):
        fit_output_error(flat, 1, 1)
    with pytest.raises(DataError, match="are too few for a horizon of 20"):
        fit_subspace(record, 2, 0, 20)
    with pytest.raises(SettingsError, match="0 < order < horizon"):
        fit_subspace(record, 10, 0, 10)
    with pytest.raises(SettingsError, match="nb is 0; it must be 1 or more"):
        fit_armax(record, 1, 0, 1)
