"""Padding shares compiled programs between folds and changes nothing that is learned."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import Record, fit_posterior, train
from occamid.data.windows import (
    Shape,
    Windows,
    all_terms,
    one_after_the_other,
    padded_shape,
    windows,
)
from occamid.identification.folds import folds
from occamid.networks import MLP, Network, Recurrent
from occamid.training.curvature import CURVATURES
from occamid.training.cycle import compress, squared_errors
from occamid.training.free_run import refine
from tests.support.cases import params_for
from tests.support.small import SMALL, small_record

QUICK = SMALL.replace(restarts=2, cycles=2, epochs=20)
RECORDS = (small_record(90), small_record(50, seed=1), small_record(31, seed=2))
SHAPE = Shape(6, 128, 176)


def test_a_padded_batch_holds_the_same_samples() -> None:
    terms = all_terms(RECORDS[0], 3, 2)
    plain, padded = (windows(RECORDS, terms, 3, shape) for shape in (None, SHAPE))
    assert padded.z.shape == (6, 128, len(terms))
    assert padded.history.shape == (6, 2, 1)
    for name in ("z", "y", "valid", "history"):
        a, b = (np.asarray(getattr(w, name)) for w in (plain, padded))
        np.testing.assert_array_equal(b[:3, : a.shape[1]], a)
        assert not b[3:].any()
        assert not b[:3, a.shape[1] :].any()
    assert padded.residuals.tolist() == [87.0, 47.0, 28.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("lengths", [(1000,), (999, 3), (130, 120, 90), (7,), (64,), (10_000,) * 5])
def test_the_padded_shape_has_room_and_is_not_much_larger(lengths: tuple[int, ...]) -> None:
    records = [Record(u=np.arange(float(n)), y=np.arange(float(n))) for n in lengths]
    count, rows, samples, lanes = padded_shape(records)
    assert sum(lengths) <= lanes * rows <= 2 * sum(lengths) + rows
    assert count == len(records)
    assert max(lengths) <= rows <= 1.15 * max(lengths) + 8
    assert sum(lengths) <= samples <= 1.15 * sum(lengths) + 8


def test_there_is_room_for_every_lesson() -> None:
    """What padding is for: all folds of a cross-validation share their programs."""
    short, long = small_record(100), small_record(300)
    assert padded_shape([short, short, short], [long], []) == (3, 320, 320, 1)
    for fold in folds([small_record(1000)], 5):
        assert fold.shape == (2, 832, 832, 1)
        assert len(fold.lesson.records) <= 2
        assert max(len(r) - r.lead for r in fold.lesson.records) <= 832


def test_records_lie_one_after_the_other_and_none_is_cut() -> None:
    assert one_after_the_other([30, 30, 50, 100, 0, 1], 100) == [
        *((0, 0), (0, 30), (1, 0), (2, 0), (2, 100), (3, 0))
    ]


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_training_is_the_same(network: str) -> None:
    settings = QUICK.replace(network=network, hidden=(2,))
    plain, padded = (train(RECORDS, settings, shape=shape) for shape in (None, SHAPE))
    assert plain.count == padded.count
    for name, value in plain.params.items():
        np.testing.assert_allclose(padded.params[name], value, rtol=1e-7, atol=1e-9)
    for name, column in plain.table.items():
        np.testing.assert_allclose(padded.table[name], column, rtol=1e-6, atol=1e-9)
    assert padded.best_index == plain.best_index
    model = plain.best
    a, b = (fit_posterior(model, RECORDS, shape=shape) for shape in (None, SHAPE))
    np.testing.assert_allclose(b.covariance, a.covariance, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(b.noise_variance, a.noise_variance, rtol=1e-9)
    assert b.log_evidence == pytest.approx(a.log_evidence, rel=1e-9)


def test_linear_training_is_the_same() -> None:
    """Its rows are compressed to a triangle, padded or not."""
    settings = QUICK.replace(activation="identity", bias=False, hidden=(2,))
    plain, padded = (train(RECORDS, settings, shape=shape) for shape in (None, SHAPE))
    for name in ("one_step_rmse", "free_run_rmse", "log_evidence"):
        np.testing.assert_allclose(padded.table[name], plain.table[name], rtol=1e-6)


def test_refinement_is_the_same() -> None:
    batch = train(RECORDS, QUICK.replace(hidden=(2,), skip=True))
    models = [batch.model(index) for index in batch.ranking(2)]
    plain, padded = (refine(models, RECORDS, iterations=12, shape=shape) for shape in (None, SHAPE))
    for a, b in zip(plain, padded, strict=True):
        for name, value in a.model.weights.items():
            np.testing.assert_allclose(b.model.weights[name], value, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(b.noise_variance, a.noise_variance, rtol=1e-8)
        np.testing.assert_allclose(b.precision, a.precision, rtol=1e-6, atol=1e-6)
        assert b.log_evidence == pytest.approx(a.log_evidence, rel=1e-8)


# --- fewer rows with the same energy ------------------------------------------------------------

NETWORKS: dict[str, Network] = {
    "curved": MLP(6, (3,), 1, "tanh", True, True),
    "linear": MLP(6, (2,), 1, "identity", False, True),
    "linear with bias": MLP(6, (2,), 1, "identity", True),
    "recurrent": Recurrent("lstm", 6, (2,), 1),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", [None, SHAPE, Shape(8, 200, 200)], ids=str)
@pytest.mark.parametrize("kind", NETWORKS)
def test_compression_keeps_loss_gradient_and_curvature(kind: str, shape: Shape | None) -> None:
    network = NETWORKS[kind]
    data = windows(RECORDS, all_terms(RECORDS[0], 3, 2), 3, shape)
    small = compress(network, data)
    rows = [int(np.prod(d.z.shape[:2])) for d in (data, small)]
    if kind == "recurrent":
        assert small is data  # the order of its rows matters
        return
    if kind == "linear":
        assert rows[1] == 7
    else:
        assert 162 <= rows[1] <= min(rows[0], 1.15 * 162)
    params = params_for(network)

    def energy(p: dict[str, jax.Array], d: Windows) -> jax.Array:
        return 0.5 * jnp.sum(squared_errors(network, p, d))

    @jax.jit
    def all_of(d: Windows) -> tuple[Any, ...]:
        curvature = CURVATURES["recursive"](network, params, d, jnp.ones(1))
        return *jax.value_and_grad(energy)(params, d), curvature

    found = [all_of(d) for d in (data, small)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), *found)
    np.testing.assert_array_equal(small.residuals, data.residuals)
