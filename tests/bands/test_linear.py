"""Linear analysis: against python-control, differences, a known process, and Monte Carlo."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.linear import linearise, linearise_members
from occamid.bands.responses import responses, static_curve
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms
from occamid.errors import SettingsError
from occamid.networks import MLP
from occamid.networks.flat import flatten, unflatten
from occamid.training.model import Model
from tests.support.exports import plain_loop, random_ensemble, random_model

CASES = {
    "mlp": random_ensemble(0, 2),
    "two by two": random_ensemble(1, 2, nu=2, ny=2, skip=True),
    "lstm": random_ensemble(2, 2, kind="lstm", nu=2),
}


def known() -> Model:
    """``y(t) = 1.5 y(t−1) − 0.7 y(t−2) + 0.5 u(t−3)`` behind a scaling."""
    network = MLP(3, (), 1, "identity", False)
    r = Terms(((0, 3),), ((0, 2), (0, 1)), ("u",), ("y",))
    values = (2.0, 4.0, 10.0, 0.5, 2.0, 4.0, 10.0, 0.5)
    scaling = Scaling(*(np.array([v]) for v in values))
    weights = {"layer0.W": np.array([[0.5 * 4 / 0.5, -0.7, 1.5]])}
    return Model(network, r, scaling, weights, start=3, sampling_time=0.1)


def test_a_known_process() -> None:
    found = linearise(known())
    expected = np.roots([1, -1.5, 0.7])
    np.testing.assert_allclose(sorted(found.poles.imag), sorted(expected.imag), atol=1e-9)
    assert found.stable
    np.testing.assert_allclose(found.gain, [[0.5 / 0.2]])
    np.testing.assert_allclose(found.time_constants, -0.1 / np.log(np.abs(expected)), rtol=1e-6)
    np.testing.assert_allclose(found.y0, [10.0])
    unstable = known().with_weights({"layer0.W": np.array([[4.0, 0.0, 1.1]])})
    assert not linearise(unstable).stable


@pytest.mark.parametrize("name", CASES)
def test_a_small_step_of_the_nonlinear_model_is_that_of_the_linear_one(name: str) -> None:
    control = pytest.importorskip("control")
    ensemble = CASES[name]
    best = linearise(ensemble)
    members = linearise_members(ensemble)
    k = next(i for i, m in enumerate(members) if np.array_equal(m.gain, best.gain))
    model, small = ensemble.posteriors[k].model, 1e-5
    rest = np.repeat(best.u0[None], 400, axis=0)
    settled = plain_loop(model, rest, np.repeat(best.y0[None], model.start, axis=0))[-1]
    np.testing.assert_allclose(settled, best.y0, rtol=1e-8)
    _, linear = control.step_response(best.to_control(), T=np.arange(30) * 0.5, squeeze=False)
    for j in range(len(best.u0)):
        u = rest.copy()
        u[-30:, j] += small
        run = plain_loop(model, u, np.repeat(best.y0[None], model.start, axis=0))
        moved = (run[-30:] - best.y0) / small
        np.testing.assert_allclose(moved, linear[:, j].T, atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_responses_are_those_of_the_members(name: str) -> None:
    control = pytest.importorskip("control")
    ensemble = CASES[name]
    found = responses(ensemble, samples=40)
    members = linearise_members(ensemble)
    gain = np.tensordot(ensemble.weights, np.stack([m.gain for m in members]), axes=1)
    np.testing.assert_allclose(found.gain.mean, gain, rtol=1e-6)
    steps, decibels = [], []
    for m in members:
        system = m.to_control()
        steps.append(control.step_response(system, T=np.arange(40) * 0.5, squeeze=False)[1])
        H = system(np.exp(2j * np.pi * found.frequencies * 0.5), squeeze=False)
        decibels.append(20 * np.log10(np.abs(H)))
    pooled = np.tensordot(ensemble.weights, np.stack(steps), axes=1)
    np.testing.assert_allclose(found.step.mean, np.moveaxis(pooled, 2, 0), atol=1e-8)
    pooled = np.tensordot(ensemble.weights, np.stack(decibels), axes=1)
    np.testing.assert_allclose(found.magnitude.mean, np.moveaxis(pooled, 2, 0), atol=1e-6)


def one_sampled(seed: int = 3) -> tuple[Ensemble, list[Model]]:
    """A mixture of one with small doubt, and models drawn from its posterior."""
    ensemble = random_ensemble(seed, 1, kind="mlp", nu=1)
    p = replace(ensemble.posteriors[0], factor=np.full(len(ensemble.posteriors[0].positions), 2e-3))
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(400):
        flat = flatten(p.model.network, p.model.weights).copy()
        flat[p.positions] += 2e-3 * rng.standard_normal(len(p.positions))
        drawn.append(p.model.with_weights(unflatten(p.model.network, flat)))
    return combine([p]), drawn


def test_bands_are_those_of_samples_from_the_posterior() -> None:
    ensemble, drawn = one_sampled()
    found = responses(ensemble, samples=20)
    lines = [linearise(m) for m in drawn]
    gains = np.array([line.gain[0, 0] for line in lines])
    assert found.gain.std[0, 0] == pytest.approx(gains.std(), rel=0.15)
    curve = static_curve(ensemble, 0, lines[0].u0)
    rests = np.array([line.y0[0] for line in lines])
    assert curve.std[0, 0] == pytest.approx(rests.std(), rel=0.15)
    assert curve.mean[0, 0] == pytest.approx(rests.mean(), abs=4 * rests.std() / 20 + 1e-6)


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(SettingsError, match="2 inputs"):
        linearise(random_model(1, nu=2), np.array([1.0]))
