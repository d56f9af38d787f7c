"""The loop: losses, compression of linear problems, pruning, schedules."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.data.windows import Windows, windows
from occamid.networks import MLP
from occamid.training import cycle as algorithm
from occamid.training.curvature import recursive
from occamid.training.cycle import Program, Schedule, State
from occamid.training.train import build_program
from tests.support.cases import params_for, windows_for
from tests.support.small import SMALL, small_record

pytestmark = pytest.mark.usefixtures("x64")


def setup(**changes: object) -> tuple[Program, State, Windows]:
    settings = SMALL.replace(**changes)
    record = small_record()
    program = build_program(settings, record)
    data = windows([record], program.terms, program.terms.max_lag)
    state = algorithm.init(program, jax.random.key(0), jnp.asarray(settings.lam[0]))
    return program, state, data


def schedule(epochs: int = 20, kappa: float = 1e-2) -> Schedule:
    return Schedule(
        epochs=jnp.asarray(epochs),
        total=jnp.asarray(3 * epochs),
        learning_rate=jnp.asarray(1e-2),
        prune_psi=jnp.asarray(kappa),
        prune_weight=jnp.asarray(kappa),
    )


def test_root_and_gaussian_loss_share_their_stationary_points() -> None:
    """T/σ ∇(rmse + λρ) = ∇(Σr²/2σ² + (λT/σ) ρ) at σ = rmse, METHOD section 3."""
    program, state, data = setup()
    energy = 0.5 * jnp.sum(algorithm.squared_errors(program.network, state.params, data))
    T = jnp.sum(data.residuals)
    rmse = jnp.sqrt(2 * energy / T)
    root = jax.grad(lambda p: algorithm.total_loss(program, p, state, data))(state.params)
    other = state._replace(variance=rmse**2, lam=state.lam * T / rmse)
    gaussian = jax.grad(
        lambda p: algorithm.total_loss(program._replace(loss="gaussian"), p, other, data)
    )(state.params)
    for name in root:
        np.testing.assert_allclose(T / rmse * root[name], gaussian[name], rtol=1e-9, atol=1e-12)
        assert np.max(np.abs(gaussian[name])) > 0


def test_curvature_factor_of_the_root_is_its_second_derivative() -> None:
    """Along a direction where r changes but Σr·dr = 0, the rank-one term of the root vanishes."""
    r, d = np.array([1.0, 2.0, 2.0]), np.array([2.0, -1.0, 0.0])
    T = jnp.asarray(3.0)

    def energy(s: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum((r + s * d) ** 2)

    def root(s: jax.Array) -> jax.Array:
        return algorithm.data_term("rmse", energy(s), T, jnp.asarray(1.0))

    second = jax.grad(jax.grad(root))(0.0)
    factor = algorithm.curvature_factor("rmse", energy(jnp.asarray(0.0)), T, jnp.asarray(1.0))
    assert float(second) == pytest.approx(float(factor * np.sum(d**2)), rel=1e-10)


def test_compressed_linear_problem_is_the_same_problem() -> None:
    """Energy, gradient and curvature of an identity net from the triangular factor alone."""
    network = MLP(4, (3, 2), 2, "identity", False)
    params, data = params_for(network), windows_for(network, T=30, R=2)
    small = algorithm.compress(network, data)
    assert small.z.shape == (1, 6, 4)

    def energy(p: dict[str, jax.Array], d: Windows) -> jax.Array:
        return jnp.sum(algorithm.squared_errors(network, p, d))

    assert float(energy(params, small)) == pytest.approx(float(energy(params, data)), rel=1e-12)
    for f in (jax.grad(energy), lambda p, d: recursive(network, p, d, jnp.ones(2))):
        full, short = f(params, data), f(params, small)
        for name in params:
            np.testing.assert_allclose(short[name], full[name], rtol=1e-9)


@pytest.mark.parametrize(
    "network",
    [
        MLP(4, (3,), 1, "tanh", False),
        MLP(4, (3,), 1, "identity", True),
        MLP(40, (3,), 1, "identity", False),
    ],
)
def test_only_linear_problems_with_more_rows_than_columns_are_compressed(network: MLP) -> None:
    data = windows_for(network, T=30)
    assert algorithm.compress(network, data) is data


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_masks_only_shrink_and_pruned_weights_stay_zero(network: str) -> None:
    program, state, data = setup(network=network, lam=(0.05,))
    step = jax.jit(algorithm.cycle, static_argnums=0)
    masks = [state.mask]
    for _ in range(3):
        state, _ = step(program, schedule(kappa=2e-2), state, data, data)
        masks.append(state.mask)
        for name, mask in state.mask.items():
            np.testing.assert_array_equal(np.asarray(state.params[name])[~np.asarray(mask)], 0.0)
    for before, after in pairwise(masks):
        for name in before:
            assert not np.any(np.asarray(after[name]) & ~np.asarray(before[name]))
    kept = [sum(int(m.sum()) for m in mask.values()) for mask in masks]
    assert kept[0] > kept[1] > 0
    assert kept[-1] < kept[1]


def test_pruning_follows_both_thresholds() -> None:
    program, state, data = setup()
    weights, widths = schedule(0, 0.0), schedule(0, 0.0)
    step = jax.jit(algorithm.cycle, static_argnums=0)
    by_weight, _ = step(program, weights._replace(prune_weight=jnp.asarray(0.2)), state, data, data)
    for name, mask in by_weight.mask.items():
        np.testing.assert_array_equal(mask, np.abs(state.params[name]) >= 0.2)
    by_width, _ = step(program, widths._replace(prune_psi=jnp.asarray(0.25)), state, data, data)
    for name, mask in by_width.mask.items():
        W = np.asarray(state.params[name])
        rows = np.linalg.norm(W, axis=1, keepdims=True)
        columns = np.linalg.norm(W, axis=0, keepdims=True)
        np.testing.assert_array_equal(mask, 1 / (1 / rows + 1 / columns) >= 0.25)


def test_training_is_adam_with_a_cosine() -> None:
    """Five epochs against Adam written out in NumPy on autodiff gradients."""
    program, state, data = setup()
    found = jax.jit(algorithm.train, static_argnums=0)(program, schedule(5), state, data)
    p = {k: np.asarray(v) for k, v in state.params.items()}
    m = {k: np.zeros_like(v) for k, v in p.items()}
    v = {k: np.zeros_like(x) for k, x in p.items()}
    gradient = jax.jit(jax.grad(lambda q: algorithm.total_loss(program, q, state, data)))
    for epoch in range(5):
        g = gradient(p)
        rate = 0.01 * 0.5 * (1 + np.cos(np.pi * epoch / 15))
        for k in p:
            m[k] = 0.9 * m[k] + 0.1 * np.asarray(g[k])
            v[k] = 0.999 * v[k] + 0.001 * np.asarray(g[k]) ** 2
            step = m[k] / (1 - 0.9 ** (epoch + 1))
            p[k] = p[k] - rate * step / (np.sqrt(v[k] / (1 - 0.999 ** (epoch + 1))) + 1e-8)
    for k in p:
        np.testing.assert_allclose(found.params[k], p[k], rtol=1e-8)


def test_settings_reach_the_program() -> None:
    program, _, _ = setup(loss="gaussian", aggregation="sum", curvature="exact", structure="shape")
    assert (program.loss, program.aggregation, program.curvature) == ("gaussian", "sum", "exact")
    assert all(len(groups) == 1 and groups[0].axes == () for _, groups in program.groups)
