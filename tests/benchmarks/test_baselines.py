"""Baselines: known systems are recovered, free runs equal plain loops, bad input is named."""

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from occamid import DataError, Record
from occamid.baselines import (
    BASELINES,
    Fitted,
    Polynomial,
    StateSpace,
    bic,
    delay_scan,
    fit,
    fit_armax,
    fit_arx,
    fit_gp,
    fit_output_error,
    fit_process,
    fit_subspace,
)
from occamid.baselines.gp import held_back, regressors
from occamid.baselines.linear import stabilised
from occamid.errors import SettingsError
from tests.conftest import real_data

Rng = np.random.Generator
A = np.array([1.0, -1.5, 0.7])  # poles of modulus 0.84
B = np.array([0.0, 0.0, 1.0, 0.5])  # two samples of delay
C = np.array([1.0, -0.6])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices: on a busy machine two BLAS threads are ten times slower than one."""
    with pytest.importorskip("threadpoolctl").threadpool_limits(1):
        yield


def system(rng: Rng, n: int, noise: str = "none", std: float = 0.1, offset: float = 0.0) -> Record:
    """A second-order system; noise in the equation, coloured by C, or at the output."""
    u = rng.normal(size=n + 100)
    e = std * rng.normal(size=n + 100)
    y = lfilter(B, A, u)
    if noise == "equation":
        y = y + lfilter([1.0], A, e)
    elif noise == "armax":
        y = y + lfilter(C, A, e)
    elif noise == "output":
        y = y + e
    return Record(u=u[100:] + offset, y=y[100:] + 3 * offset)


def first_order(rng: Rng, n: int, delay: float, std: float, rho: float = 0.0) -> Record:
    """Gain 2, time constant 8 and a delay in samples, simulated on a grid ten times finer."""
    u = np.repeat(np.sign(rng.normal(size=(n + 99) // 5 + 1)), 5)[:n]
    fine, pole = np.repeat(u, 10), np.exp(-1 / 80)
    late = round(10 * delay)
    fine = np.concatenate([np.full(late, fine[0]), fine])[: 10 * n]
    y = lfilter([0, 2 * (1 - pole)], [1, -pole], fine)[::10]
    noise = lfilter([1.0], [1.0, -rho], std * rng.normal(size=n))
    return Record(u=u, y=y + 5 + noise, sampling_time=0.5)


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
    np.testing.assert_allclose(model.simulate(u, y[:10])[:, 0], y, atol=1e-5)


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
    np.testing.assert_allclose(model.simulate(u[300:], y[300:310]), y[300:], atol=1e-7)


@pytest.mark.parametrize("delay", [0.0, 3.0, 37.4])
def test_process_gain_time_constant_and_delay(rng: Rng, delay: float) -> None:
    records = [first_order(rng, 600, delay, 0.05) for _ in range(2)]
    errors, constants = delay_scan(records, 60)
    best = int(np.argmin(errors))
    assert abs(best - delay) <= 1
    model = fit_process(records, (best, constants[best]))
    np.testing.assert_allclose(model.gain, 2, rtol=0.01)
    np.testing.assert_allclose(model.time_constant, 8 * 0.5, rtol=0.02)
    np.testing.assert_allclose(model.delay_time, delay * 0.5, atol=0.04)
    np.testing.assert_allclose(model.system.y_offset, 5, atol=0.03)


def test_process_with_coloured_noise(rng: Rng) -> None:
    record = first_order(rng, 2000, 20.0, 0.2, rho=0.9)
    for noise in ("ar1", "arma1"):
        model = fit_process(record, (20, 8.0), noise)
        np.testing.assert_allclose(model.gain, 2, rtol=0.06)
        np.testing.assert_allclose(model.system.noise_ar, [-0.9], atol=0.04)
        np.testing.assert_allclose(model.delay_time, 10, atol=0.1)
        assert model.describe().endswith(f"{noise} noise")


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
    np.testing.assert_allclose(model.simulate(np.zeros(4), known)[:, 0], expected)


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
        run = model.simulate(u, known[:first])
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
    np.testing.assert_allclose(model.simulate(u, known)[9:], loop(state)[9:], atol=1e-10)


@pytest.fixture
def nonlinear(rng: Rng) -> list[Record]:
    def one(n: int) -> Record:
        u, y = rng.uniform(-1, 1, size=(n, 1)), np.zeros((n, 1))
        for t in range(2, n):
            y[t] = 0.5 * np.sin(2 * y[t - 1]) + 0.4 * u[t - 2] + u[t - 1] ** 2
        return Record(u=u, y=10 + 3 * y + 0.01 * rng.normal(size=(n, 1)))

    return [one(120), one(90)]


@pytest.mark.parametrize("kernel", ["se", "rq"])
def test_gp_against_sklearn_and_a_loop(nonlinear: list[Record], kernel: Any) -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, RationalQuadratic, WhiteKernel

    model = fit_gp(nonlinear, kernel, 2, 3, 1)
    found, scaling = model.hyperparameters, model.scaling
    shape = RBF(found.length) if kernel == "se" else RationalQuadratic(found.length, found.alpha)
    prior = ConstantKernel(found.amplitude) * shape + WhiteKernel(found.noise)
    scaled = [scaling.apply(r) for r in nonlinear]
    rows = np.concatenate([regressors(r.u, r.y, 2, 3, 1, 3) for r in scaled])
    targets = np.concatenate([r.y[3:] for r in scaled])
    oracle = GaussianProcessRegressor(prior, alpha=0, optimizer=None).fit(rows, targets)
    record = nonlinear[1]
    expected = scaling.undo_y(
        oracle.predict(regressors(scaled[1].u, scaled[1].y, 2, 3, 1, 3))[:, None]
    )
    np.testing.assert_allclose(model.predict(record)[3:], expected, rtol=1e-6)

    run = scaling.apply_y(record.y[:6])
    for t in range(6, 40):
        row = [*scaled[1].u[t - 3 : t, 0][::-1], *run[t - 2 : t, 0][::-1]]
        run = np.concatenate([run, oracle.predict(np.array([row])).reshape(1, 1)])
    simulated = model.free_run(record.u[:40], record.y[:6])
    np.testing.assert_allclose(simulated, scaling.undo_y(run), rtol=1e-6)
    assert np.sqrt(np.mean((model.free_run(record.u, record.y[:3]) - record.y) ** 2)) < 0.1


def test_gp_holds_back_the_last_third(nonlinear: list[Record]) -> None:
    good, poor = (fit_gp(nonlinear, "se", lags, lags, 1) for lags in (2, 1))
    assert held_back(good, nonlinear) < 0.1 < held_back(poor, nonlinear)
    # What is after two thirds cannot matter but for the target of the comparison.
    changed = [
        replace(r, y=np.where(np.arange(len(r))[:, None] < 2 * len(r) // 3, r.y, 10.0))
        for r in nonlinear
    ]
    assert held_back(good, changed) > 0.3


FITS: dict[str, Callable[[Record], Fitted]] = {
    "arx": lambda r: fit_arx(r, 2, 2, 2),
    "armax": lambda r: fit_armax(r, 2, 2, 1, 2),
    "output-error": lambda r: fit_output_error(r, 2, 2, 2),
    "subspace": lambda r: fit_subspace(r, 2, 1),
    "process": lambda r: fit_process(r, (2, 3.0)),
    "process-disturbance": lambda r: fit_process(r, (2, 3.0), "arma1"),
    "gp-se": lambda r: fit_gp(r, "se", 2, 2, 2),
    "gp-rq": lambda r: fit_gp(r, "rq", 2, 2, 2),
}


@pytest.mark.parametrize("name", FITS)
def test_the_contract_of_every_family(rng: Rng, name: str) -> None:
    record = system(rng, 200, "equation", offset=1.0)
    model = FITS[name](record)
    u, known = record.u[:60].copy(), record.y[:12].copy()
    run = model.simulate(u, known)
    assert run.shape == (60, 1)
    np.testing.assert_array_equal(run[:12], record.y[:12])
    np.testing.assert_array_equal(u, record.u[:60])
    np.testing.assert_array_equal(known, record.y[:12])
    np.testing.assert_array_equal(model.simulate(u[:, 0], known[:, 0]), run)
    run[:] = 0  # a copy: the caller's window is not touched
    assert known.any()
    assert np.isfinite(bic(model, [record], 12))
    with pytest.raises(FrozenInstanceError):
        model.criterion = 0.0  # type: ignore[misc]
    lag = model.max_lag
    assert len(model.simulate(u, known[:lag])) == 60
    with pytest.raises(DataError, match=f"y_init has {lag - 1} samples; the model needs the fir"):
        model.simulate(u, known[: lag - 1])
    with pytest.raises(DataError, match="nothing is left to simulate"):
        model.simulate(u[:12], known)
    with pytest.raises(DataError, match=r"u has shape \(60, 2\); the model has 1 inputs"):
        model.simulate(np.ones((60, 2)), known)
    with pytest.raises(DataError, match=r"y_init has shape \(12, 3\); the model has 1 outputs"):
        model.simulate(u, np.ones((12, 3)))
    with pytest.raises(DataError, match="u holds values that are not finite"):
        model.simulate(np.full((60, 1), np.nan), known)


def test_a_diverged_free_run_is_infinite_and_scores_infinity() -> None:
    model = Polynomial(a=np.array([-3.0]), b=np.ones((1, 1)), c=np.zeros(0), delay=1, constant=0.0)
    record = Record(u=np.arange(900.0), y=np.arange(900.0))
    run = model.free_run(record.u, record.y[:5])
    assert np.isfinite(run[:200]).all()
    assert np.isposinf(run[-500:]).all()
    assert bic(model, [record], 5) == np.inf


def test_messages(rng: Rng) -> None:
    record = system(rng, 60)
    short = record[:8]
    two = Record(u=record.u, y=np.repeat(record.y, 2, axis=1))
    flat = Record(u=np.ones(60), y=record.y)
    with pytest.raises(DataError, match="has 2 outputs; this model has one"):
        fit_arx(two, 1, 1)
    with pytest.raises(DataError, match="8 rows are too few for a lag of 4 and 9 parameters"):
        fit_arx(short, 4, 4)
    with pytest.raises(DataError, match="input u is constant"):
        fit_output_error(flat, 1, 1)
    with pytest.raises(DataError, match="has 2 inputs; a process model has one"):
        BASELINES["process"].candidates(Record(u=np.repeat(record.u, 2, axis=1), y=record.y))
    with pytest.raises(DataError, match="are too few for a horizon of 20"):
        fit_subspace(record, 2, 0, 20)
    with pytest.raises(SettingsError, match="0 < order < horizon"):
        fit_subspace(record, 10, 0, 10)
    with pytest.raises(SettingsError, match="nb is 0; it must be 1 or more"):
        fit_armax(record, 1, 0, 1)
    with pytest.raises(SettingsError, match="kernel 'matern' is unknown; choose one of se, rq"):
        fit_gp(record, "matern", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="8 rows are too few for a lag of 8"):
        fit_gp(short, "se", 8, 1)
    with pytest.raises(SettingsError, match="baseline 'arma' is unknown; choose one of arx, "):
        fit("arma", record)
    with pytest.raises(DataError, match="7 rows are too few for a lag of 2 and 5 parameters"):
        BASELINES["arx"].candidates(record[:7])
    with pytest.raises(DataError, match="Subspace: the records are too short for every order"):
        BASELINES["subspace"].candidates(record[:20])


def test_candidates_and_the_honest_choice(rng: Rng) -> None:
    records = [system(rng, 200, "equation", offset=1.0) for _ in range(2)]
    for name in ("arx", "subspace"):
        candidates = BASELINES[name].candidates(records)
        chosen = fit(name, records)
        assert chosen.criterion == min(model.criterion for model in candidates)
        assert len({model.describe() for model in candidates}) == len(candidates)
        test = system(rng, 300, offset=1.0)  # no noise: what is left is the model's own error
        error = (chosen.free_run(test.u, test.y[:20]) - test.y)[20:]
        assert np.sqrt(np.mean(error**2)) < 0.05 * np.std(test.y), chosen.describe()


@pytest.mark.parametrize("record", ["hairdryer", "coupled-drives"])
@pytest.mark.parametrize("name", ["arx", "subspace", "process"])
def test_real_records_give_finite_free_runs(name: str, record: str) -> None:
    data = real_data(record)
    model = fit(name, data.estimation)
    for test in data.test:
        run = model.free_run(test.u, test.y[: model.max_lag])
        assert np.isfinite(run).all()
        if record == "hairdryer":  # the drives rectify: no linear model can follow them
            assert np.sqrt(np.mean((run - test.y) ** 2)) < 0.2 * np.std(test.y)
