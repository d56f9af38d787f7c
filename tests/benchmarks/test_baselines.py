"""Baselines of the tables: process models, Gaussian processes, and how one of a grid is chosen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from occamid import DataError, Record
from occamid.errors import SettingsError
from occamid_benchmarks.baselines.gaussian_process import fit_gp, held_back, regressors
from occamid_benchmarks.baselines.grid import BASELINES, Fitted, bic, fit
from occamid_benchmarks.baselines.polynomial import Polynomial, fit_arx
from occamid_benchmarks.baselines.process import delay_scan, fit_process
from tests.support.linear_systems import Rng, check_free_run, system
from tests.support.real import real_data

pytestmark = pytest.mark.usefixtures("one_thread")


def first_order(rng: Rng, n: int, delay: float, std: float, rho: float = 0.0) -> Record:
    """Gain 2, time constant 8 and a delay in samples, simulated on a grid ten times finer."""
    u = np.repeat(np.sign(rng.normal(size=(n + 99) // 5 + 1)), 5)[:n]
    fine, pole = np.repeat(u, 10), np.exp(-1 / 80)
    late = round(10 * delay)
    fine = np.concatenate([np.full(late, fine[0]), fine])[: 10 * n]
    y = lfilter([0, 2 * (1 - pole)], [1, -pole], fine)[::10]
    noise = lfilter([1.0], [1.0, -rho], std * rng.normal(size=n))
    return Record(u=u, y=y + 5 + noise, sampling_time=0.5)


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
    "process": lambda r: fit_process(r, (2, 3.0)),
    "process-disturbance": lambda r: fit_process(r, (2, 3.0), "arma1"),
    "gp-se": lambda r: fit_gp(r, "se", 2, 2, 2),
    "gp-rq": lambda r: fit_gp(r, "rq", 2, 2, 2),
}


@pytest.mark.parametrize("name", FITS)
def test_the_contract_of_every_family(rng: Rng, name: str) -> None:
    record = system(rng, 200, "equation", offset=1.0)
    check_free_run(FITS[name](record), record)


def test_the_criterion_is_finite_but_for_a_diverged_free_run(rng: Rng) -> None:
    record = system(rng, 200, "equation", offset=1.0)
    assert np.isfinite(bic(fit_arx(record, 2, 2, 2), [record], 12))
    wild = Polynomial(a=np.array([-3.0]), b=np.ones((1, 1)), c=np.zeros(0), delay=1, constant=0.0)
    ramp = Record(u=np.arange(900.0), y=np.arange(900.0))
    assert bic(wild, [ramp], 5) == np.inf


def test_messages(rng: Rng) -> None:
    record = system(rng, 60)
    with pytest.raises(DataError, match="has 2 inputs; a process model has one"):
        BASELINES["process"].candidates(Record(u=np.repeat(record.u, 2, axis=1), y=record.y))
    with pytest.raises(SettingsError, match="kernel 'matern' is unknown; choose one of se, rq"):
        fit_gp(record, "matern", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="8 rows are too few for a lag of 8"):
        fit_gp(record[:8], "se", 8, 1)
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
