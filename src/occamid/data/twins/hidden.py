"""Processes with states that no output shows: few lags do not describe them, a few states do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.signal import cheby1, cheby2, lfilter

from occamid.data.twins.experiment import Array, Rng, Signals, Twin, multisine, steps, twin

Rate = Callable[[Float[Array, " nx"], Float[Array, " nu"]], Float[Array, " nx"]]


def hysteretic_masses(seed: int = 0, samples: int = 4000, test_samples: int = 2000) -> Twin:
    """Two masses on springs, the first on a damper that remembers: force in, far mass out.

    ``m1 x1'' = u − k1 x1 − c1 x1' − z − f``, ``m2 x2'' = f``, ``f = k2 (x1 − x2) + c2 (x1' − x2')``
    with the hysteretic force ``z' = a x1' − b (|x1'| z + 0.5 x1' |z|)`` of Bouc and Wen.  Of its
    five states only ``x2`` is measured, 0.02 s apart.
    """
    m1, m2, k1, k2, c1, c2, a, b = 1.0, 0.6, 120.0, 150.0, 1.0, 0.6, 80.0, 30.0
    step, noise = 0.02, 0.0004

    def rate(x: Float[Array, " nx"], u: Float[Array, " nu"]) -> Float[Array, " nx"]:
        x1, v1, x2, v2, z = x
        between = k2 * (x1 - x2) + c2 * (v1 - v2)
        memory = a * v1 - b * (abs(v1) * z + 0.5 * v1 * abs(z))
        return np.array(
            [v1, (u[0] - k1 * x1 - c1 * v1 - z - between) / m1, v2, between / m2, memory]
        )

    def experiment(rng: Rng, n: int) -> Signals:
        u = 8.0 * multisine(rng, n, band=0.12)
        clean = _states(rate, u, np.zeros(5), step, parts=4)[:, 2:3]
        return Signals(u, clean, clean + noise * rng.standard_normal(clean.shape))

    lengths = samples, test_samples
    return twin("hysteretic-masses-twin", seed, experiment, lengths, (noise,), step, order=5)


def wiener_hammerstein(seed: int = 0, samples: int = 8000, test_samples: int = 4000) -> Twin:
    """A filter, a limiter and another filter, in the manner of the circuit of Schoukens et al.

    Two filters of third order (Chebyshev's, of both types) with a diode between them that lets
    through what is low and holds what is high below a half.
    """
    before = cheby1(3, 0.5, 0.17)
    behind = cheby2(3, 40.0, 0.2)
    noise = 0.002

    def experiment(rng: Rng, n: int) -> Signals:
        u = multisine(rng, n, band=0.1)
        inside = lfilter(*before, u, axis=0)
        held = 0.5 - np.logaddexp(0.0, 4.0 * (0.5 - inside)) / 4.0
        clean = lfilter(*behind, held, axis=0)
        return Signals(u, clean, clean + noise * rng.standard_normal(clean.shape))

    lengths = samples, test_samples
    return twin("wiener-hammerstein-twin", seed, experiment, lengths, (noise,), 1.0, order=6)


def thermal_plant(seed: int = 0, samples: int = 2000, test_samples: int = 1000) -> Twin:
    """Two rooms, a wall between them, a radiator in each: two powers in, two temperatures out.

    A radiator gives ``k d |d|^(1/3)`` to its room, ``d`` being the difference of temperatures
    (free convection); what the radiators' temperatures are nobody measures.  One minute apart.
    """
    k, radiators, rooms = 9.0, np.array([9e3, 6e3]), np.array([60e3, 45e3])
    outside, through, step, noise = np.array([55.0, 40.0]), 30.0, 60.0, (0.03, 0.03)

    def rate(x: Float[Array, " nx"], u: Float[Array, " nu"]) -> Float[Array, " nx"]:
        hot, warm = x[:2], x[2:]
        given = k * (hot - warm) * np.cbrt(np.abs(hot - warm))
        passed = through * (warm - warm[::-1])
        return np.concatenate([(u - given) / radiators, (given - outside * warm - passed) / rooms])

    def experiment(rng: Rng, n: int) -> Signals:
        u = 750.0 * (1.0 + np.concatenate([steps(rng, n, 10, 80) for _ in range(2)], axis=1))
        clean = _states(rate, u, np.zeros(4), step, parts=2)[:, 2:]
        return Signals(u, clean, clean + np.array(noise) * rng.standard_normal(clean.shape))

    return twin(
        "thermal-plant-twin", seed, experiment, (samples, test_samples), noise, step, order=4
    )


def friction_axis(seed: int = 0, samples: int = 4000, test_samples: int = 2000) -> Twin:
    """A sliding axis under position control: motor force in, position out; it integrates.

    ``m x'' = u − c x' − F tanh(x'/v)``: friction is nearly Coulomb's.  The controller follows
    smooth moves between random places and works on the measured position; ten ms apart.  The
    truth is Euler's rule in steps of one ms, not the solution of the differential equation.
    """
    m, c, dry, creep, step, noise = 10.0, 25.0, 12.0, 0.004, 0.01, 2e-5
    stiff, damped = 4000.0, 300.0  # the controller

    def experiment(rng: Rng, n: int) -> Signals:
        smooth = np.hanning(60) / np.hanning(60).sum()
        wanted = np.convolve(steps(rng, n + 59, 80, 250)[:, 0], smooth, "valid") * 0.2
        errors = noise * rng.standard_normal(n)
        x, v, before = wanted[0], 0.0, wanted[0]
        u, clean = np.zeros((n, 1)), np.zeros((n, 1))
        for t in range(n):
            clean[t], seen = x, x + errors[t]
            u[t] = stiff * (wanted[t] - seen) - damped * (seen - before) / step
            before = seen
            for _ in range(10):  # friction is stiff near rest
                v += 0.1 * step * (u[t, 0] - c * v - dry * np.tanh(v / creep)) / m
                x += 0.1 * step * v
        return Signals(u, clean, clean + errors[:, None])

    lengths = samples, test_samples
    return twin("friction-axis-twin", seed, experiment, lengths, (noise,), step, order=2)


def _states(
    rate: Rate, u: Float[Array, "N nu"], start: Float[Array, " nx"], step: float, parts: int
) -> Float[Array, "N nx"]:
    """States at the samples under inputs that are held between them, by Runge and Kutta's rule."""
    x, found, h = start, np.empty((len(u), len(start))), step / parts
    for t, held in enumerate(u):
        found[t] = x
        for _ in range(parts):
            k1 = rate(x, held)
            k2 = rate(x + h / 2 * k1, held)
            k3 = rate(x + h / 2 * k2, held)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, held))
    return found
