"""One step of a model inside JAX: the same as a free run, and its derivatives are right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import DataError, Ensemble, Model, ensemble_of
from tests.support.trained import batch_of, data_of

KINDS = ["mlp", "lstm", "two-outputs"]
PAST = 12


def model_of(kind: str, many: bool) -> Model | Ensemble:
    batch = batch_of(kind)
    return ensemble_of(batch, data_of(kind), count=3) if many else batch.best


def free(model: Model | Ensemble, u: Any, record: Any) -> Any:
    """A free run by scan after the first rows of the record."""
    step = model.step_function()
    state = step.initial_state(record.u[:PAST], record.y[:PAST])
    return jax.lax.scan(step, state, u)[1]


@pytest.mark.parametrize("many", [False, True], ids=["model", "ensemble"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_of_steps_is_the_free_run(kind: str, many: bool, x64: None) -> None:
    model, record = model_of(kind, many), data_of(kind)[:60]
    found = jax.jit(lambda u: free(model, u, record))(record.u[PAST:])
    expected = model.free_run(record.u, record.y[:PAST])[PAST:]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("many", [False, True], ids=["model", "ensemble"])
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_the_gradient_through_a_free_run(kind: str, many: bool, x64: None) -> None:
    """Of a tracking cost, as a controller would use it, against central differences."""
    model, record = model_of(kind, many), data_of(kind)[:40]

    @jax.jit
    def cost(u: jax.Array) -> jax.Array:
        return jnp.sum((free(model, u, record) - 3.0) ** 2)

    u = jnp.asarray(record.u[PAST:30])
    found = jax.grad(cost)(u)
    assert np.abs(found).max() > 1e-3
    for t in (0, 5, 11):
        h = jnp.zeros_like(u).at[t, 0].set(1e-6)
        expected = (cost(u + h) - cost(u - h)) / 2e-6
        np.testing.assert_allclose(found[t, 0], expected, rtol=1e-5, atol=1e-7)


def test_single_precision_and_one_dimensional_data() -> None:
    model, record = batch_of("mlp").best, data_of("mlp")
    step = model.step_function()
    state = step.initial_state(record.u[:PAST, 0], record.y[:PAST, 0])
    _, y = step(state, record.u[PAST, 0])
    assert y.dtype == jnp.float32
    expected = model.free_run(record.u[: PAST + 1], record.y[:PAST])[-1]
    np.testing.assert_allclose(y, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((1, 1), "u_past has 1 rows and y_past 1; the model needs the last"),
        ((9, 8), "u_past has 9 rows and y_past 8; the model needs the last"),
    ],
)
def test_too_little_past(rows: tuple[int, int], said: str) -> None:
    step = batch_of("mlp").best.step_function()
    with pytest.raises(DataError, match=said):
        step.initial_state(np.zeros(rows[0]), np.zeros(rows[1]))


def test_other_channels() -> None:
    step = batch_of("mlp").best.step_function()
    with pytest.raises(DataError, match="u_past has 2 columns and y_past 1; the model has 1 inp"):
        step.initial_state(np.zeros((9, 2)), np.zeros(9))
