"""Simulated twins: repeatable, and what they say about themselves is true.

The equations are written out again here, as plain loops or for a solver of another kind; nothing
of the generator is reused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.signal import sosfilt, zpk2sos

from occamid.data import twins
from occamid.data.record import Record
from occamid.errors import DataError

ROWS = {
    "cascaded-tanks-twin": (1024, 1024),
    "coupled-drives-twin": (500, 500),
    "friction-axis-twin": (4000, 2000),
    "hairdryer-twin": (300, 700),
    "heat-exchanger-twin": (3000, 2000),
    "hysteretic-masses-twin": (4000, 2000),
    "mass-spring-damper-twin": (1000, 1000),
    "polynomial-narx-twin": (600, 600),
    "thermal-plant-twin": (2000, 1000),
    "wiener-hammerstein-twin": (8000, 4000),
}
CHANNELS = {"mass-spring-damper-twin": 2, "thermal-plant-twin": 2}
SECONDS = {
    "cascaded-tanks-twin": 4.0,
    "coupled-drives-twin": 0.02,
    "friction-axis-twin": 0.01,
    "hairdryer-twin": 0.08,
    "heat-exchanger-twin": 0.1,
    "hysteretic-masses-twin": 0.02,
    "mass-spring-damper-twin": 0.1,
    "polynomial-narx-twin": 1.0,
    "thermal-plant-twin": 60.0,
    "wiener-hammerstein-twin": 1.0,
}
STATES = {
    "friction-axis-twin": 2,
    "hysteretic-masses-twin": 5,
    "thermal-plant-twin": 4,
    "wiener-hammerstein-twin": 6,
}
MEASUREMENT = ("cascaded-tanks-twin", "coupled-drives-twin", "mass-spring-damper-twin", *STATES)
EQUATION = ("hairdryer-twin", "heat-exchanger-twin", "polynomial-narx-twin")

make = cache(twins.make)


def both(twin: twins.Twin) -> tuple[tuple[Record, np.ndarray], tuple[Record, np.ndarray]]:
    return (twin.estimation, twin.estimation_clean), (twin.test, twin.test_clean)


def test_every_twin_is_covered_here() -> None:
    assert set(twins.TWINS) == set(ROWS) == set(SECONDS) == {*MEASUREMENT, *EQUATION}


@pytest.mark.parametrize("name", ROWS)
def test_the_seed_decides(name: str) -> None:
    once, again, other = make(name, 3), twins.make(name, 3), make(name, 4)
    for (a, a_clean), (b, b_clean), (c, c_clean) in zip(
        both(once), both(again), both(other), strict=True
    ):
        np.testing.assert_array_equal(a.u, b.u)
        np.testing.assert_array_equal(a.y, b.y)
        np.testing.assert_array_equal(a_clean, b_clean)
        assert np.mean(a.u != c.u) > 0.3
        assert np.mean(a.y != c.y) > 0.99
        assert np.mean(a_clean != c_clean) > 0.9


@pytest.mark.parametrize("name", ROWS)
def test_shapes_names_and_values(name: str) -> None:
    twin, channels = make(name, 0), CHANNELS.get(name, 1)
    assert twin.name == name
    assert len(twin.noise_std) == channels
    for part, rows, (record, clean) in zip(
        ("estimation", "test"), ROWS[name], both(twin), strict=True
    ):
        assert record.u.shape == record.y.shape == clean.shape == (rows, channels)
        assert record.name == f"{name} {part}"
        assert record.sampling_time == SECONDS[name]
        assert np.isfinite(record.u).all()
        assert np.isfinite(record.y).all()
        assert np.isfinite(clean).all()
        assert (record.u.std(axis=0) > 0.3).all()
        assert (clean.std(axis=0) > 2 * np.array(twin.noise_std)).all()


@pytest.mark.parametrize("name", ROWS)
def test_estimation_and_test_are_different_experiments(name: str) -> None:
    twin = make(name, 0)
    rows = min(ROWS[name])
    assert np.mean(twin.estimation.u[:rows] != twin.test.u[:rows]) > 0.3
    for k in range(CHANNELS.get(name, 1)):
        alike = np.corrcoef(twin.estimation.u[:rows, k], twin.test.u[:rows, k])[0, 1]
        assert abs(alike) < 0.35
    assert not np.allclose(twin.estimation.y[:rows], twin.test.y[:rows])


def test_lengths_can_be_chosen() -> None:
    twin = twins.hairdryer(seed=1, samples=50, test_samples=20)
    assert (len(twin.estimation), len(twin.test)) == (50, 20)
    assert len(twins.cascaded_tanks(samples=16).test) == 16


@pytest.mark.parametrize(
    "twin",
    [
        twins.friction_axis,
        twins.hysteretic_masses,
        twins.thermal_plant,
        twins.wiener_hammerstein,
    ],
)
def test_lengths_of_those_with_hidden_states(twin: Callable[..., twins.Twin]) -> None:
    made = twin(seed=1, samples=50, test_samples=20)
    assert (len(made.estimation), len(made.test)) == (50, 20)
    assert (len(made.estimation_clean), len(made.test_clean)) == (50, 20)


def test_states_are_counted_where_they_are_hidden() -> None:
    found = {name: make(name, 0).order for name in twins.TWINS}
    assert found == {**dict.fromkeys(ROWS), **STATES}


# --- noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEASUREMENT)
def test_measurement_noise_is_white_and_as_large_as_said(name: str) -> None:
    twin = make(name, 1)
    assert twin.noise_enters == "measurement"
    assert twin.true_regressors is None
    noise = np.concatenate([record.y - clean for record, clean in both(twin)])
    np.testing.assert_allclose(noise.std(axis=0), twin.noise_std, rtol=0.08)
    for column in noise.T:
        assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 0.1


def equation_errors(name: str, u: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``y(t)`` less what the difference equation says without noise."""
    errors = []
    if name == "hairdryer-twin":
        for t in range(4, len(y)):
            said = 0.9 * y[t - 1] - 0.4 * y[t - 2] + 0.25 * u[t - 3] + 0.2 * u[t - 4]
            errors.append(y[t] - said)
    elif name == "heat-exchanger-twin":
        a = np.exp(-0.05)
        for t in range(150, len(y)):
            errors.append(y[t] - (a * y[t - 1] + (1 - a) * 1.5 * u[t - 150]))
    else:
        for t in range(2, len(y)):
            said = 0.5 * y[t - 1] + 0.8 * u[t - 2] + u[t - 1] ** 2 - 0.05 * y[t - 2] ** 2 + 0.5
            errors.append(y[t] - said)
    return np.array(errors)


@pytest.mark.parametrize("name", EQUATION)
def test_equation_noise_is_as_large_as_said(name: str) -> None:
    twin = make(name, 1)
    assert twin.noise_enters == "equation"
    errors = np.concatenate([equation_errors(name, r.u[:, 0], r.y[:, 0]) for r, _ in both(twin)])
    np.testing.assert_allclose(errors.std(), twin.noise_std[0], rtol=0.08)
    assert abs(np.corrcoef(errors[1:], errors[:-1])[0, 1]) < 0.12


@pytest.mark.parametrize("name", EQUATION)
def test_the_clean_output_obeys_the_equation_exactly(name: str) -> None:
    for record, clean in both(make(name, 1)):
        errors = equation_errors(name, record.u[:, 0], clean[:, 0])
        np.testing.assert_allclose(errors, 0.0, atol=1e-12)


def test_the_true_regressors_are_those_of_the_equations() -> None:
    assert {name: make(name, 0).true_regressors for name in EQUATION} == {
        "hairdryer-twin": ("u[t-4]", "u[t-3]", "y[t-2]", "y[t-1]"),
        "heat-exchanger-twin": ("u[t-150]", "y[t-1]"),
        "polynomial-narx-twin": ("u[t-2]", "u[t-1]", "y[t-2]", "y[t-1]"),
    }


# --- delays -------------------------------------------------------------------------------------


def input_weights(record: Record, lags: range, outputs: int) -> np.ndarray:
    """Least-squares weights of the lagged inputs in a linear model with past outputs."""
    u, y = record.u[:, 0], record.y[:, 0]
    rows = range(max(lags), len(y))
    table = [[u[t - k] for k in lags] + [y[t - k] for k in range(1, outputs + 1)] for t in rows]
    return np.linalg.lstsq(np.array(table), y[max(lags) :], rcond=None)[0][: len(lags)]


def test_the_delay_of_the_hairdryer_shows() -> None:
    twin = make("hairdryer-twin", 0)
    assert twin.delay == 3
    weights = input_weights(twin.test, range(8), outputs=2)
    np.testing.assert_allclose(weights, [0, 0, 0, 0.25, 0.2, 0, 0, 0], atol=0.035)


def test_the_hairdryer_is_still_until_the_delay_is_over() -> None:
    for record, clean in both(make("hairdryer-twin", 2)):
        np.testing.assert_array_equal(clean[:3], 0.0)
        np.testing.assert_allclose(clean[3], 0.25 * record.u[0], rtol=1e-12)


def test_the_delay_of_the_heat_exchanger_shows() -> None:
    twin = make("heat-exchanger-twin", 0)
    assert twin.delay == 150
    lags = range(145, 156)
    weights = input_weights(twin.estimation, lags, outputs=1)
    expected = np.where(np.array(lags) == 150, 1.5 * (1 - np.exp(-0.05)), 0.0)
    np.testing.assert_allclose(weights, expected, atol=0.025)
    assert lags[int(np.argmax(np.abs(weights)))] == 150


# --- physics ------------------------------------------------------------------------------------


def test_the_lower_tank_overflows_on_some_seeds_and_stays_below_the_rim() -> None:
    levels = [clean for seed in range(4) for _, clean in both(make("cascaded-tanks-twin", seed))]
    assert all((level >= 0).all() and (level <= 10.0).all() for level in levels)
    at_rim = [int(np.sum(level == 10.0)) for level in levels]
    assert max(at_rim) >= 3  # it stays at the rim for several samples
    assert min(at_rim) == 0  # and not on every seed


def test_the_tanks_settle_where_inflow_is_outflow() -> None:
    """Over a long record the mean outflow of the lower tank is the mean pump flow."""
    twin = twins.cascaded_tanks(seed=1)
    assert twin.test_clean.max() < 10.0  # nothing is lost over the rim of the lower tank
    inflow = 0.066 * twin.test.u.mean()
    outflow = 0.094 * np.sqrt(twin.test_clean).mean()
    assert 0.9 * inflow < outflow < 1.05 * inflow


def test_the_sensor_of_the_coupled_drives_is_blind_to_the_sign() -> None:
    pair = np.polymul([1.0, -2 * 0.86 * np.cos(0.24), 0.86**2], [1.0, -0.7])
    for record, clean in both(make("coupled-drives-twin", 0)):
        assert (clean >= 0).all()
        speed, u = np.zeros(len(record)), record.u[:, 0]
        for t in range(1, len(record)):
            speed[t] = sum(pair) * u[t - 1]
            speed[t] -= sum(pair[k] * speed[t - k] for k in range(1, min(3, t) + 1))
        assert speed.min() < -0.5  # there is a sign to be blind to
        assert speed.max() > 0.5
        np.testing.assert_allclose(clean[:, 0], np.abs(speed), atol=1e-10)


def test_the_masses_move_as_newton_says() -> None:
    """Runge-Kutta on a fine grid against the exact discretisation."""
    twin, parts = make("mass-spring-damper-twin", 0), 10
    h = twin.estimation.sampling_time / parts

    def rate(x: np.ndarray, f: np.ndarray) -> np.ndarray:
        a, b, va, vb = x
        middle = 3.0 * (b - a) + 0.3 * (vb - va)
        left, right = -4.0 * a - 0.4 * va, -5.0 * b - 0.4 * vb
        return np.array([va, vb, (f[0] + left + middle) / 1.0, (f[1] + right - middle) / 1.5])

    x = np.zeros(4)
    for t in range(120):
        np.testing.assert_allclose(twin.estimation_clean[t], x[:2], atol=1e-6)
        f = twin.estimation.u[t]
        for _ in range(parts):
            k1 = rate(x, f)
            k2 = rate(x + h / 2 * k1, f)
            k3 = rate(x + h / 2 * k2, f)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, f))


# --- physics of hidden states -------------------------------------------------------------------


def solved(
    rate: Callable[..., list[float]], start: list[float], u: np.ndarray, step: float
) -> np.ndarray:
    """States at the samples by a rule of eighth order that chooses its own steps."""
    states = [np.array(start)]
    for held in u[:-1]:
        found = solve_ivp(
            rate, (0.0, step), states[-1], "DOP853", args=tuple(held), rtol=1e-9, atol=1e-11
        )
        states.append(found.y[:, -1])
    return np.array(states)


def test_the_hysteretic_masses_move_as_bouc_and_wen_say() -> None:
    def rate(_: float, x: np.ndarray, force: float) -> list[float]:
        near, far, near_speed, far_speed, memory = x
        coupling = 150.0 * (far - near) + 0.6 * (far_speed - near_speed)
        wall = -120.0 * near - 1.0 * near_speed - memory
        slip = 30.0 * abs(near_speed) * memory + 15.0 * near_speed * abs(memory)
        pushed = force + wall + coupling
        return [near_speed, far_speed, pushed / 1.0, -coupling / 0.6, 80.0 * near_speed - slip]

    twin = make("hysteretic-masses-twin", 0)
    for record, clean in both(twin):
        states = solved(rate, [0.0] * 5, record.u[:300], 0.02)
        assert states.shape[1] == twin.order
        np.testing.assert_allclose(clean[:300, 0], states[:, 1], atol=0.1 * twin.noise_std[0])
        assert np.abs(states[:, 4]).max() > 0.95 * 80.0 / 45.0  # the damper's force is full


def test_radiators_and_rooms_warm_as_convection_says() -> None:
    def rate(_: float, x: np.ndarray, *power: float) -> list[float]:
        flows = [9.0 * np.sign(x[k] - x[k + 2]) * abs(x[k] - x[k + 2]) ** (4 / 3) for k in (0, 1)]
        across = 30.0 * (x[2] - x[3])
        return [
            (power[0] - flows[0]) / 9000.0,
            (power[1] - flows[1]) / 6000.0,
            (flows[0] - 55.0 * x[2] - across) / 60000.0,
            (flows[1] - 40.0 * x[3] + across) / 45000.0,
        ]

    twin = make("thermal-plant-twin", 0)
    for record, clean in both(twin):
        states = solved(rate, [0.0] * 4, record.u[:300], 60.0)
        assert states.shape[1] == twin.order
        np.testing.assert_allclose(clean[:300], states[:, 2:], atol=2e-4)
        assert (states[:, 0] < states[:, 2] + 5).any()  # nearly as cold as the room
        assert (states[:, 0] > states[:, 2] + 30).any()


@pytest.mark.parametrize("seed", range(3))
def test_what_heats_the_rooms_leaves_through_their_walls(seed: int) -> None:
    """In the mean over a long record; the radiators hold less than a hundredth of it."""
    twin = make("thermal-plant-twin", seed)
    power, (one, two) = twin.estimation.u.mean(axis=0), twin.estimation_clean.mean(axis=0)
    stored = np.array([60e3, 45e3]) * twin.estimation_clean[-1] / (60.0 * len(twin.estimation))
    lost = [55.0 * one + 30.0 * (one - two), 40.0 * two + 30.0 * (two - one)]
    np.testing.assert_allclose(power, lost + stored, rtol=0.01)


def chebyshev(ripple: float, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """Zeros and poles of third order, type I, from its prototype; half the sampling rate is 1."""
    theta = np.pi * np.array([1, 3, 5]) / 6
    height = np.arcsinh(1 / ripple) / 3
    s = -np.sinh(height) * np.sin(theta) + 1j * np.cosh(height) * np.cos(theta)
    s = s * np.tan(np.pi * edge / 2)
    return -np.ones(3), (1 + s) / (1 - s)


def inverse_chebyshev(ripple: float, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """The same for type II, whose prototype is that of type I turned inside out."""
    theta = np.pi * np.array([1, 3, 5]) / 6
    height = np.arcsinh(1 / ripple) / 3
    s = 1 / (-np.sinh(height) * np.sin(theta) + 1j * np.cosh(height) * np.cos(theta))
    warp = np.tan(np.pi * edge / 2)
    notch = 1j * warp / np.cos(np.pi / 6)
    zeros = np.array([(1 + notch) / (1 - notch), (1 - notch) / (1 + notch), -1.0])
    return zeros, (1 + s * warp) / (1 - s * warp)


def test_two_filters_with_a_limiter_between_them() -> None:
    """Ripple of 0.5 dB before the limiter, 40 dB of attenuation behind it, both with gain one."""

    def filtered(zeros: np.ndarray, poles: np.ndarray, x: np.ndarray) -> np.ndarray:
        gain = np.prod(1 - poles).real / np.prod(1 - zeros).real
        return np.asarray(sosfilt(zpk2sos(zeros, poles, gain), x))

    twin = make("wiener-hammerstein-twin", 0)
    before = chebyshev(np.sqrt(10**0.05 - 1), 0.17)
    behind = inverse_chebyshev(1 / np.sqrt(10**4 - 1), 0.2)
    assert len(before[1]) + len(behind[1]) == twin.order
    for record, clean in both(twin):
        inside = filtered(*before, record.u[:, 0])
        held = inside - np.log1p(np.exp(4.0 * inside - 2.0)) / 4.0
        assert inside.max() > 2.0  # there is something to hold
        assert held.max() < 0.5
        np.testing.assert_allclose(clean[:, 0], filtered(*behind, held), atol=1e-9)


def moved(u: np.ndarray, start: float, parts: int) -> np.ndarray:
    """The axis under given forces by Euler's rule, speed first."""
    h, place, speed, places = 0.01 / parts, start, 0.0, []
    for force in u[:, 0]:
        places.append(place)
        for _ in range(parts):
            speed += h * (force - 25.0 * speed - 12.0 * np.tanh(250.0 * speed)) / 10.0
            place += h * speed
    return np.array(places)


def test_the_axis_moves_as_newton_says() -> None:
    """Euler's rule errs by the first power of its step, which half the step takes away."""

    def rate(_: float, x: np.ndarray, force: float) -> list[float]:
        return [x[1], (force - 25.0 * x[1] - 12.0 * np.tanh(x[1] / 0.004)) / 10.0]

    twin = make("friction-axis-twin", 0)
    for record, clean in both(twin):
        u, x = record.u[:700], clean[:700, 0]
        np.testing.assert_allclose(x, moved(u, x[0], 10), atol=1e-11)
        states = solved(rate, [x[0], 0.0], u, 0.01)
        assert states.shape[1] == twin.order
        np.testing.assert_allclose(x, states[:, 0], atol=1e-3)
        extrapolated = 2 * moved(u, x[0], 20) - x
        np.testing.assert_allclose(extrapolated, states[:, 0], atol=0.2 * twin.noise_std[0])


@pytest.mark.parametrize("seed", range(3))
def test_mass_and_friction_can_be_read_from_the_moves(seed: int) -> None:
    """Where the axis is fast its friction is Coulomb's, and forces are linear in three numbers."""
    for record, clean in both(make("friction-axis-twin", seed)):
        x, u = clean[:, 0], record.u[:, 0]
        speed, pull = (x[2:] - x[:-2]) / 0.02, (x[2:] - 2 * x[1:-1] + x[:-2]) / 0.01**2
        fast = np.abs(speed) > 0.05
        table = np.column_stack([pull, speed, np.sign(speed)])[fast]
        force = 0.5 * (u[1:-1] + u[:-2])[fast]
        found = np.linalg.lstsq(table, force, rcond=None)[0]
        np.testing.assert_allclose(found, [10.0, 25.0, 12.0], rtol=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_controller_of_the_axis_sees_what_is_measured(seed: int) -> None:
    """Force and measured positions give back the wanted ones: smooth, and still between moves."""
    for record, clean in both(make("friction-axis-twin", seed)):
        u, y = record.u[1:, 0], record.y[:, 0]
        wanted = y[1:] + (u + 300.0 * np.diff(y) / 0.01) / 4000.0
        assert np.abs(wanted).max() < 0.2
        assert np.abs(np.diff(wanted)).max() < 0.4 / 25  # a move takes sixty samples
        assert np.mean(np.abs(np.diff(wanted)) < 1e-12) > 0.4
        assert np.ptp(clean) > 0.8 * np.ptp(wanted)  # and the axis follows


# --- refusal ------------------------------------------------------------------------------------


def test_an_unknown_twin() -> None:
    with pytest.raises(DataError) as caught:
        twins.make("hair-dryer")
    assert str(caught.value) == (
        "no twin is called 'hair-dryer'; there are cascaded-tanks-twin, coupled-drives-twin, "
        "friction-axis-twin, hairdryer-twin, heat-exchanger-twin, hysteretic-masses-twin, "
        "mass-spring-damper-twin, polynomial-narx-twin, thermal-plant-twin, "
        "wiener-hammerstein-twin."
    )
