"""Prior updates, the CCCP objective, evidence and noise against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import multivariate_normal

from occamid.networks import STRUCTURES, group_norm
from occamid.training import evidence
from occamid.training.evidence import Prior

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("structure", STRUCTURES)
def test_cccp_objective_never_rises(structure: str, rng: np.random.Generator) -> None:
    """Exact convex-concave steps with H and ĝ fixed: Eq. 17 goes down, or stays."""
    groups = STRUCTURES[structure]
    H = jnp.asarray(rng.uniform(0.1, 30.0, (4, 5)))
    g_hat = jnp.asarray(rng.normal(size=(4, 5)) * np.array([0.05, 1.0, 5.0, 0.5])[:, None])
    W = jnp.asarray(-g_hat / (H + 1))
    prior = evidence.initial_prior(W, groups)
    values = [float(evidence.objective(W, prior.psi, H, g_hat, groups))]
    for _ in range(12):
        for _ in range(400):  # the convex step: minimise u + 2 Σ ω‖W‖ by alternating with ψ
            widths = [
                np.maximum(group_norm(W, g), 1e-14) / w
                for g, w in zip(groups, prior.omega, strict=True)
            ]
            W = jnp.asarray(-g_hat / (H + sum(1 / w for w in widths)))
        prior = evidence.update_prior(W, prior, H, groups, "sum")
        values.append(float(evidence.objective(W, prior.psi, H, g_hat, groups)))
    steps = np.diff(values)
    assert np.all(steps <= 1e-9)
    assert values[-1] < values[0] - 1.0


@pytest.mark.parametrize("structure", STRUCTURES)
def test_alpha_is_the_gradient_of_the_concave_part(
    structure: str, rng: np.random.Generator
) -> None:
    """ω² with sum aggregation equals ∂/∂ψ of Σ log|Ψ_g| + log|H + Ψ⁻¹| by autodiff."""
    groups = STRUCTURES[structure]
    W, H = jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.uniform(0.1, 9, (3, 4)))
    prior = evidence.update_prior(W, evidence.initial_prior(W, groups), H, groups, "sum")

    def concave(psi: evidence.Widths) -> jax.Array:
        return evidence.objective(jnp.zeros_like(W), psi, H, jnp.zeros_like(W), groups)

    for gradient, omega in zip(jax.grad(concave)(prior.psi), prior.omega, strict=True):
        np.testing.assert_allclose(omega**2, gradient, rtol=1e-9)


def test_table_c1_by_hand() -> None:
    """Row and column updates of one small matrix, written out."""
    W = np.array([[3.0, 4.0], [0.0, 2.0]])
    H = np.array([[1.0, 2.0], [3.0, 4.0]])
    omega = (jnp.array([[2.0], [1.0]]), jnp.array([[1.0, 4.0]]))
    groups = STRUCTURES["row+column"]
    for aggregation, agg in (("sum", np.sum), ("mean", np.mean)):
        new = evidence.update_prior(
            jnp.asarray(W), Prior(omega, omega), jnp.asarray(H), groups, aggregation
        )
        row, column = np.array([[2.5], [2.0]]), np.array([[3.0, np.sqrt(20) / 4]])
        np.testing.assert_allclose(new.psi[0], row)
        np.testing.assert_allclose(new.psi[1], column)
        sigma = 1 / (H + 1 / row + 1 / column)
        for found, psi, axis in ((new.omega[0], row, 1), (new.omega[1], column, 0)):
            alpha = 1 / psi - sigma / psi**2
            np.testing.assert_allclose(found, np.sqrt(agg(alpha, axis=axis, keepdims=True)))


def test_penalties_of_the_four_structures() -> None:
    W = jnp.array([[3.0, 4.0], [0.0, 2.0]])
    expected = {"shape": 9.0, "row": 7.0, "column": 3 + 20**0.5, "row+column": 10 + 20**0.5}
    for structure, value in expected.items():
        groups = STRUCTURES[structure]
        omega = evidence.initial_prior(W, groups).omega
        assert float(evidence.penalty(W, omega, groups)) == pytest.approx(value)


def test_group_norm_has_no_gradient_at_zero() -> None:
    for group in STRUCTURES["row+column"]:
        gradient = jax.grad(lambda W, g=group: jnp.sum(group_norm(W, g)))(jnp.zeros((2, 3)))
        np.testing.assert_array_equal(gradient, 0.0)


def test_widths_are_clamped() -> None:
    groups = STRUCTURES["shape"]
    W = jnp.array([[0.0, 1e30]])
    new = evidence.update_prior(
        W, evidence.initial_prior(W, groups), jnp.ones((1, 2)), groups, "sum"
    )
    assert float(new.psi[0][0, 0]) == evidence.LOW
    assert float(new.psi[0][0, 1]) == evidence.HIGH
    assert np.all(np.isfinite(new.omega[0]))


@pytest.fixture
def linear_case(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """An orthogonal design: the Hessian is diagonal and Laplace is exact."""
    T, n, variance = 40, 4, 0.3
    Z = np.linalg.qr(rng.normal(size=(T, n)))[0] * np.array([1.0, 3.0, 6.0, 10.0])
    psi = np.array([0.5, 1.0, 0.1, 2.0])
    y = Z @ rng.normal(size=n) + np.sqrt(variance) * rng.normal(size=T)
    H = np.sum(Z**2, axis=0)
    W = (Z.T @ y / variance) / (H / variance + 1 / psi)
    return {"Z": Z, "psi": psi, "y": y, "H": H, "W": W, "variance": np.array(variance)}


def test_log_evidence_equals_the_marginal_likelihood(linear_case: dict[str, np.ndarray]) -> None:
    c = linear_case
    energy = 0.5 * np.sum((c["y"] - c["Z"] @ c["W"]) ** 2)
    one = lambda v: {"W": jnp.asarray(v)[None]}  # noqa: E731
    found = evidence.log_evidence(
        one(c["W"]),
        jnp.asarray(energy),
        jnp.asarray(40.0),
        one(c["H"]),
        one(c["psi"]),
        one(np.ones(4, bool)),
        jnp.asarray(c["variance"]),
    )
    cov = c["variance"] * np.eye(40) + (c["Z"] * c["psi"]) @ c["Z"].T
    assert float(found) == pytest.approx(multivariate_normal(cov=cov).logpdf(c["y"]), rel=1e-10)


def test_pruned_weights_add_nothing(linear_case: dict[str, np.ndarray]) -> None:
    """Masking a weight equals leaving its column out of the design."""
    c = linear_case
    W, keep = c["W"] * [1, 1, 0, 1], np.array([True, True, False, True])
    energy = 0.5 * np.sum((c["y"] - c["Z"] @ W) ** 2)
    one = lambda v: {"W": jnp.asarray(v)[None]}  # noqa: E731
    found = evidence.log_evidence(
        one(W),
        jnp.asarray(energy),
        jnp.asarray(40.0),
        one(c["H"]),
        one(c["psi"]),
        one(keep),
        jnp.asarray(c["variance"]),
    )
    Z = c["Z"][:, keep]
    cov = c["variance"] * np.eye(40) + (Z * c["psi"][keep]) @ Z.T
    assert float(found) == pytest.approx(multivariate_normal(cov=cov).logpdf(c["y"]), rel=1e-10)


def test_noise_is_the_fixed_point_of_mackays_rule(linear_case: dict[str, np.ndarray]) -> None:
    c = linear_case
    energy = 0.5 * np.sum((c["y"] - c["Z"] @ c["W"]) ** 2)
    one = lambda v: {"W": jnp.asarray(v)[None]}  # noqa: E731
    found = evidence.estimate_noise(
        jnp.asarray(energy), jnp.asarray(40.0), one(c["H"]), one(c["psi"]), one(np.ones(4, bool))
    )

    def miss(variance: float) -> float:
        gamma = np.sum(1 - 1 / (c["H"] / variance + 1 / c["psi"]) / c["psi"])
        return variance - 2 * energy / (40 - gamma)

    expected = brentq(miss, 1e-3, 10.0)
    assert float(found.variance) == pytest.approx(expected, rel=1e-4)
    assert 0 < float(found.effective) < 4
