"""Processes that a few lags of input and output describe, after the benchmarks of the paper."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import expm
from scipy.signal import lfilter

from occamid.data.twins.experiment import Array, Rng, Signals, Twin, multisine, steps, twin


def cascaded_tanks(seed: int = 0, samples: int = 1024) -> Twin:
    """Two tanks, one above the other, with both kinds of overflow.

    ``x1' = k_pump u − k1 sqrt(x1)``, ``x2' = k1 sqrt(x1) − k2 sqrt(x2) + overflow``.  What spills
    over the upper rim falls partly into the lower tank and partly into the reservoir; the lower
    tank spills into the reservoir.  The output is the lower level, 4 s apart, as described by
    Schoukens, Mattsson, Wigren and Noël (2016).
    """
    k_pump, k1, k2, rim, share = 0.066, 0.10, 0.094, 10.0, 0.5
    step, parts, noise = 4.0, 8, 0.05

    def rate(x: Array, u: float) -> tuple[float, float]:
        inflow = k_pump * max(u, 0.0)
        top, bottom = np.sqrt(np.maximum(x, 0.0))
        upper = inflow - k1 * top
        spill = 0.0
        if x[0] >= rim and upper > 0:
            spill, upper = upper, 0.0
        lower = k1 * top + share * spill - k2 * bottom
        return upper, min(lower, 0.0) if x[1] >= rim else lower

    def simulate(u: Float[Array, "N 1"], start: Array) -> Float[Array, "N 1"]:
        x, y = start.copy(), []
        for value in u[:, 0]:
            y.append(x[1])
            for _ in range(parts):  # Heun's rule on a fine grid; the rims make it only continuous
                first = np.array(rate(x, value))
                second = np.array(rate(x + step / parts * first, value))
                x = np.clip(x + step / parts * 0.5 * (first + second), 0.0, rim)
        return np.array(y)[:, None]

    def experiment(rng: Rng, n: int) -> Signals:
        u = np.clip(3.4 + 1.5 * multisine(rng, n, band=0.0144 * step), 0.5, 7.5)
        clean = simulate(u, rng.uniform(3.0, 6.0, 2))
        return Signals(u, clean, clean + noise * rng.standard_normal(clean.shape))

    return twin("cascaded-tanks-twin", seed, experiment, (samples, samples), (noise,), step)


def coupled_drives(seed: int = 0, samples: int = 500) -> Twin:
    """Third-order linear dynamics, then the absolute value: a sensor blind to the sign of speed.

    Two motors on a flexible belt (a resonance) and a sensor's first-order lag, sampled at 0.02 s,
    after Wigren and Schoukens (2017).
    """
    step, noise = 0.02, 0.02
    radius, angle, lag = 0.86, 0.24, 0.70  # damped belt resonance near 2 Hz, lag of 0.06 s
    poles = np.poly([radius * np.exp(1j * angle), radius * np.exp(-1j * angle), lag]).real
    gain = 1.0 * np.sum(poles)

    def experiment(rng: Rng, n: int) -> Signals:
        u = np.repeat(rng.uniform(-1.5, 1.5, n // 5 + 1), 5)[:n, None]
        clean = np.abs(lfilter([0.0, gain], poles, u, axis=0))
        return Signals(u, clean, clean + noise * rng.standard_normal(clean.shape))

    return twin("coupled-drives-twin", seed, experiment, (samples, samples), (noise,), step)


def hairdryer(seed: int = 0, samples: int = 300, test_samples: int = 700) -> Twin:
    """A second-order ARX process with a pure delay of three samples, in the manner of the PT326.

    ``y(t) = 0.9 y(t-1) − 0.4 y(t-2) + 0.25 u(t-3) + 0.2 u(t-4) + e(t)``, driven by a random
    binary signal.  Its poles are faster than the real trainer's, so that its lagged outputs are
    not collinear and the true regressors can be told from their neighbours in 300 samples.
    """
    a, b, noise = [1.0, -0.9, 0.4], [0.0, 0.0, 0.0, 0.25, 0.2], 0.08

    def experiment(rng: Rng, n: int) -> Signals:
        u = np.where(np.repeat(rng.random(n // 3 + 1) < 0.5, 3)[:n, None], 1.0, -1.0)
        e = noise * rng.standard_normal((n, 1))
        clean = lfilter(b, a, u, axis=0)
        return Signals(u, clean, clean + lfilter([1.0], a, e, axis=0))

    return twin(
        "hairdryer-twin",
        seed,
        experiment,
        (samples, test_samples),
        (noise,),
        0.08,
        true=("u[t-4]", "u[t-3]", "y[t-2]", "y[t-1]"),
        delay=3,
    )


def heat_exchanger(seed: int = 0, samples: int = 3000, test_samples: int = 2000) -> Twin:
    """First order with a delay of 150 samples and a slow ambient disturbance.

    ``y(t) = a y(t-1) + (1 − a) (k u(t-150) + v(t))``, the ambient ``v`` a slow random process,
    ``a = exp(−0.1/2)`` for a time constant of 2 s sampled at 0.1 s.
    """
    delay, pole, gain, noise = 150, float(np.exp(-0.1 / 2.0)), 1.5, 0.02

    def experiment(rng: Rng, n: int) -> Signals:
        u = steps(rng, n + delay, shortest=5, longest=120)
        drive = gain * u[:n]
        ambient = lfilter([1.0], [1.0, -0.98], 0.01 * rng.standard_normal((n, 1)), axis=0)
        first_order = lambda x: lfilter([1 - pole], [1.0, -pole], x, axis=0)  # noqa: E731
        e = noise * rng.standard_normal((n, 1))
        clean = first_order(drive)
        noisy = clean + first_order(ambient) + lfilter([1.0], [1.0, -pole], e, axis=0)
        return Signals(u[delay:], clean, noisy)

    return twin(
        "heat-exchanger-twin",
        seed,
        experiment,
        (samples, test_samples),
        (noise,),
        0.1,
        true=("u[t-150]", "y[t-1]"),
        delay=delay,
    )


def mass_spring_damper(seed: int = 0, samples: int = 1000) -> Twin:
    """Two masses between walls: two forces in, two displacements out, sampled at 0.1 s."""
    m, c, k, step = (1.0, 1.5), (0.4, 0.3, 0.4), (4.0, 3.0, 5.0), 0.1
    stiffness = np.array([[k[0] + k[1], -k[1]], [-k[1], k[1] + k[2]]])
    damping = np.array([[c[0] + c[1], -c[1]], [-c[1], c[1] + c[2]]])
    inverse_mass = np.diag(1 / np.array(m))
    system = np.zeros((6, 6))
    system[:2, 2:4] = np.eye(2)
    system[2:4, :2], system[2:4, 2:4] = -inverse_mass @ stiffness, -inverse_mass @ damping
    system[2:4, 4:] = inverse_mass
    discrete = expm(step * system)[:4]  # exact for inputs held between samples
    noise = (0.01, 0.01)

    def experiment(rng: Rng, n: int) -> Signals:
        u = np.concatenate([steps(rng, n, 3, 30) for _ in range(2)], axis=1)
        x, y = np.zeros(4), []
        for force in u:
            y.append(x[:2])
            x = discrete @ np.concatenate([x, force])
        clean = np.array(y)
        return Signals(u, clean, clean + np.array(noise) * rng.standard_normal(clean.shape))

    return twin("mass-spring-damper-twin", seed, experiment, (samples, samples), noise, step)


def polynomial_narx(seed: int = 0, samples: int = 600) -> Twin:
    """A polynomial NARX system from the literature on structure selection.

    ``y(t) = 0.5 y(t-1) + 0.8 u(t-2) + u(t-1)² − 0.05 y(t-2)² + 0.5 + e(t)``
    (Mao and Billings, Int. J. Control 68, 1997), with ``u`` uniform in ±1.
    """
    noise = 0.05

    def experiment(rng: Rng, n: int) -> Signals:
        u = rng.uniform(-1.0, 1.0, (n, 1))
        e = noise * rng.standard_normal(n)

        def run(errors: Array) -> Array:
            y = np.full(n, 0.9)
            for t in range(2, n):
                y[t] = 0.5 * y[t - 1] + 0.8 * u[t - 2, 0] + u[t - 1, 0] ** 2
                y[t] += 0.5 - 0.05 * y[t - 2] ** 2 + errors[t]
            return y[:, None]

        return Signals(u, run(np.zeros(n)), run(e))

    return twin(
        "polynomial-narx-twin",
        seed,
        experiment,
        (samples, samples),
        (noise,),
        1.0,
        true=("u[t-2]", "u[t-1]", "y[t-2]", "y[t-1]"),
        delay=1,
    )
