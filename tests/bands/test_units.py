"""Other units, other answers to nothing: ranges and priors count in standard deviations.

A record far from standardised, and one model of it written in the scaled units of each method of
scaling: refinement, bands and what counts as diverged must not know which was used.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from occamid import Record, train
from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.posterior import Posterior
from occamid.bands.units import DivergedWarning
from occamid.data.scaling import Method, Scaling, fit_scaling
from occamid.data.windows import Terms, all_terms
from occamid.networks import MLP
from occamid.networks.flat import flatten, unflatten
from occamid.training.free_run import refine
from occamid.training.model import Model
from tests.support.banded import Banded, predict, simulate
from tests.support.small import SMALL, small_record

Array = np.ndarray
METHODS: tuple[Method, ...] = ("detrend", "none")
NETWORK = MLP(4, (2,), 1, "tanh", True, True)


def far_away(samples: int = 120) -> Record:
    record = small_record(samples)
    return replace(record, u=1e3 * record.u + 1e4, y=1e3 * record.y + 1e4)


def weights_in(weights: dict[str, Array], a: Scaling, b: Scaling, terms: Terms) -> dict[str, Array]:
    """The same function of the user's units, from the scaled units of ``a`` to those of ``b``."""
    inputs, outputs = ([c for c, _ in part] for part in (terms.inputs, terms.outputs))

    def of(s: Scaling, what: str) -> Array:
        u, y = getattr(s, f"u_{what}"), getattr(s, f"y_{what}")
        return np.concatenate([u[inputs], y[outputs]])

    k = of(b, "scale") / of(a, "scale")
    m = (of(b, "offset") - of(a, "offset")) / of(a, "scale")
    g = a.y_scale / b.y_scale
    W, S = weights["layer0.W"], weights["skip.W"]
    return {
        "layer0.W": W * k,
        "layer0.b": weights["layer0.b"] + W @ m,
        "layer1.W": g[:, None] * weights["layer1.W"],
        "layer1.b": g * (weights["layer1.b"] + S @ m) + (a.y_offset - b.y_offset) / b.y_scale,
        "skip.W": g[:, None] * S * k,
    }


def model_in(method: Method, record: Record, gain: float = 0.5) -> Model:
    """A mild network, ``gain`` the weight of y[t-1], in the scaled units of a method."""
    terms = all_terms(record, 1, 2)
    assert terms.names == ("u[t-1]", "u[t]", "y[t-2]", "y[t-1]")
    weights = {
        "layer0.W": np.array([[0.9, 0.2, 0.1, 0.2], [-0.4, 0.3, 0.3, 0.1]]),
        "layer0.b": np.array([0.1, -0.2]),
        "layer1.W": np.array([[0.5, 0.2]]),
        "layer1.b": np.array([0.05]),
        "skip.W": np.array([[0.1, 0.05, -0.1, gain]]),
    }
    standard, own = (fit_scaling([record], m) for m in ("standardize", method))
    return Model(NETWORK, terms, own, weights_in(weights, standard, own, terms), 2, 0.1)


def posterior_in(method: Method, record: Record, gain: float = 0.5) -> Posterior:
    """A little doubt about every weight, the same in all units."""
    reference = model_in("standardize", record, gain)
    model = model_in(method, record, gain)
    size = len(flatten(NETWORK, model.weights))

    def moved(flat: Array) -> Array:
        tree = {n: np.asarray(v) for n, v in unflatten(NETWORK, flat).items()}
        return flatten(NETWORK, weights_in(tree, reference.scaling, model.scaling, model.terms))

    linear = np.stack([moved(e) - moved(np.zeros(size)) for e in np.eye(size)], axis=1)
    root = 0.02 * np.random.default_rng(1).standard_normal((size, size)) / np.sqrt(size)
    return Posterior(
        model=model,
        method="full",
        positions=np.arange(size),
        factor=linear @ root,
        widths=np.ones(size),
        noise_variance=(0.05 * model.scaling.y_spread) ** 2,
        effective=5.0,
        log_evidence=0.0,
    )


def ensemble_in(method: Method, record: Record, *gains: float) -> Ensemble:
    return combine([posterior_in(method, record, gain) for gain in gains])


def same_bands(a: Banded, b: Banded, record: Record, tolerance: float) -> None:
    """Within a share of the output's standard deviation."""
    size = record.y.std()
    for name in ("mean", "std", "epistemic_std", "aleatoric_std", "quantiles"):
        one, other = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(other / size, one / size, atol=tolerance, err_msg=name)
    assert b.diverged == pytest.approx(a.diverged, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_first_order_bands(method: Method) -> None:
    """Also with a member that leaves the range: the range is the same."""
    record = far_away(60)
    for gains in ((0.5,), (0.5, 0.4, 1.5)):
        a, b = (ensemble_in(m, record, *gains) for m in ("standardize", method))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            same_bands(simulate(a, record), simulate(b, record), record, 1e-6)
            assert simulate(b, record).diverged == pytest.approx(1 / 3 if len(gains) > 1 else 0.0)
            same_bands(predict(a, record, 4), predict(b, record, 4), record, 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_bands_by_monte_carlo(method: Method) -> None:
    """The same samples in single precision; those of a wild member diverge in any unit."""
    record = far_away(60)
    a, b = (ensemble_in(m, record, 0.5, 1.6) for m in ("standardize", method))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        one, other = (simulate(e, record, samples=40) for e in (a, b))
    assert one.diverged == other.diverged == 0.5
    calm = slice(0, 15)  # later the wild ones are set aside, a row sooner or later by rounding
    for name in ("mean", "std"):
        x, y = (getattr(e, name)[calm] / record.y.std() for e in (one, other))
        np.testing.assert_allclose(y, x, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("shrink", [True, False])
def test_refinement_of_data_that_are_only_centred(shrink: bool) -> None:
    """Units alone differ: the same model, noise and evidence of each group."""
    record = far_away()
    (a,), (b,) = (
        refine([model_in(m, record)], record, iterations=15, shrink=shrink)
        for m in ("standardize", "detrend")
    )
    assert a.model.regressors == b.model.regressors
    runs = [r.model.free_run(record.u, record.y[:2]) / record.y.std() for r in (a, b)]
    np.testing.assert_allclose(runs[1], runs[0], atol=1e-5)
    noise = [np.sqrt(r.noise_variance) * r.model.scaling.y_scale for r in (a, b)]
    np.testing.assert_allclose(noise[1], noise[0], rtol=1e-5)
    assert b.effective == pytest.approx(a.effective, rel=1e-4)


@pytest.mark.parametrize(("shrink", "tolerance"), [(False, 1e-6), (True, 0.01)])
def test_refinement_of_data_as_they_are(shrink: bool, tolerance: float) -> None:
    """With offsets of ten and four standard deviations: only the priors of biases differ.

    A range of 8 in scaled units, and around zero, had all outputs outside of it: refinement made
    nothing better.  One unit is left, so that there is one minimum: with two, which one is found
    depends on the path, and the path on the scaling.
    """
    record = far_away()
    errors = {}
    for method in ("standardize", "none"):
        start = one_unit(model_in(method, record))
        (found,) = refine([start], record, iterations=30, shrink=shrink)
        errors[method] = [
            float(np.sqrt(np.mean((m.free_run(record.u, record.y[:2]) - record.y)[2:] ** 2)))
            for m in (start, found.model)
        ]
    before, after = errors["none"]
    assert after < 0.5 * before
    assert after < 0.1 * record.y.std()
    np.testing.assert_allclose(errors["none"], errors["standardize"], rtol=tolerance)


def one_unit(model: Model) -> Model:
    weights = {name: value.copy() for name, value in model.weights.items()}
    weights["layer0.W"][1] = weights["layer0.b"][1] = weights["layer1.W"][0, 1] = 0
    return model.with_weights(weights)


@pytest.mark.parametrize("method", METHODS)
def test_large_numbers_are_not_divergence(method: Method) -> None:
    """Hardly trained models miss by a few standard deviations, thousands in the user's units."""
    settings = SMALL.replace(scaling=method, restarts=2, cycles=1, epochs=2)
    found = train(far_away(60), settings)
    assert (found.table["free_run_rmse"] > 1000).all()
    assert (found.table["status"] == 0).all()
