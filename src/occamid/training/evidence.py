"""Prior widths, their convex-concave update, the objective it descends, and the evidence.

For one matrix ``W`` with families of groups g (rows, columns, …), each with a width ψ_g per
group, the prior precision of a weight is ``1/ψ = Σ_g 1/ψ_g``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from occamid.networks import Group, group_norm

LOW, HIGH = 1e-10, 1e10  # clamp of ψ and ω, METHOD section 3

Widths = tuple[Float[Array, "..."], ...]  # one array per family, reduced axes of size 1


class Prior(NamedTuple):
    """The state of the prior of one matrix."""

    psi: Widths
    omega: Widths


def initial_prior(W: Float[Array, "out in"], groups: tuple[Group, ...]) -> Prior:
    """``ψ = 1`` and ``ω = 1``: the first cycle is the plain sparse group lasso."""
    ones = tuple(jnp.ones_like(jnp.sum(W, axis=g.axes, keepdims=True)) for g in groups)
    return Prior(ones, ones)


def penalty(
    W: Float[Array, "out in"], omega: Widths, groups: tuple[Group, ...]
) -> Float[Array, ""]:
    """``ρ(ω, W) = Σ_g Σ ω_g ‖W_g‖`` (Table C.1)."""
    terms = (jnp.sum(w * group_norm(W, g)) for g, w in zip(groups, omega, strict=True))
    return sum(terms, jnp.zeros(()))


def combined_width(psi: Widths) -> Float[Array, "out in"]:
    """``1 / Σ_g 1/ψ_g``, broadcast to the weights the families share."""
    return 1.0 / sum((1.0 / p for p in psi), jnp.zeros(()))


def update_prior(
    W: Float[Array, "out in"],
    prior: Prior,
    curvature: Float[Array, "out in"],
    groups: tuple[Group, ...],
    aggregation: str,
) -> Prior:
    """One convex-concave step: ψ from the previous ω, then α and ω (Table C.1, Eqs. 15–16).

    ``curvature`` is the Hessian diagonal of the (tempered) energy, negative entries count as 0.
    ``Σ = 1/(H + 1/ψ)``, ``α_g = 1/ψ_g − Σ/ψ_g²``, ``ω_g = sqrt(agg α_g)``.
    """
    psi = tuple(
        jnp.clip(group_norm(W, g) / w, LOW, HIGH) for g, w in zip(groups, prior.omega, strict=True)
    )
    sigma = 1.0 / (jnp.maximum(curvature, 0.0) + 1.0 / combined_width(psi))
    aggregate = jnp.mean if aggregation == "mean" else jnp.sum
    omega = []
    for g, p in zip(groups, psi, strict=True):
        # 1/ψ − Σ/ψ² with the difference taken first: α = (1 − Σ/ψ)/ψ never cancels below 0
        alpha = jnp.maximum(1.0 - sigma / p, 0.0) / p
        omega.append(jnp.clip(jnp.sqrt(aggregate(alpha, axis=g.axes, keepdims=True)), LOW, HIGH))
    return Prior(psi, tuple(omega))


def objective(
    W: Float[Array, "out in"],
    psi: Widths,
    curvature: Float[Array, "out in"],
    shifted_gradient: Float[Array, "out in"],
    groups: tuple[Group, ...],
) -> Float[Array, ""]:
    """Eq. 17 for a diagonal H and ``ĝ = g − H W*``, without its constant.

    ``WᵀHW + 2Wᵀĝ + WᵀΨ⁻¹W + Σ_g log|Ψ_g| + log|H + Ψ⁻¹|``.

    Differs from the paper: with two families the prior is the product of two normalised
    Gaussians, so both log-determinants count; only then is α the gradient of the concave part.
    The constant is ``+T log(2πσ²)``; the paper prints it with a minus.
    """
    precision = sum(jnp.broadcast_to(1.0 / p, W.shape) for p in psi)
    log_widths = sum(jnp.broadcast_to(jnp.log(p), W.shape) for p in psi)
    per_weight = (
        (curvature + precision) * W**2
        + 2 * W * shifted_gradient
        + log_widths
        + jnp.log(curvature + precision)
    )
    return jnp.sum(per_weight)


class Noise(NamedTuple):
    """Noise variance and the effective number of parameters behind it."""

    variance: Float[Array, ""]
    effective: Float[Array, ""]


def estimate_noise(
    energy: Float[Array, ""],
    count: Float[Array, ""],
    curvature: dict[str, Array],
    psi: dict[str, Array],
    mask: dict[str, Bool[Array, "out in"]],
) -> Noise:
    """MacKay's rule ``σ² = 2E/(T − γ)``, ``γ = Σ (1 − Σ_ii/ψ_i)`` over the surviving weights.

    γ depends on σ²; the fixed point is found in a few steps from ``2E/T``.
    """

    def effective(variance: Float[Array, ""]) -> Float[Array, ""]:
        parts = (
            jnp.sum(jnp.where(mask[n], ratio / (1.0 + ratio), 0.0))
            for n in psi
            for ratio in (psi[n] * jnp.maximum(curvature[n], 0.0) / variance,)
        )
        return sum(parts, jnp.zeros(()))

    tiny = jnp.finfo(energy.dtype).tiny
    variance = jnp.maximum(2 * energy / count, tiny)
    gamma = effective(variance)
    for _ in range(4):
        variance = jnp.maximum(2 * energy / jnp.maximum(count - gamma, 1.0), tiny)
        gamma = effective(variance)
    return Noise(variance, gamma)


def log_evidence(
    params: dict[str, Array],
    energy: Float[Array, ""],
    count: Float[Array, ""],
    curvature: dict[str, Array],
    psi: dict[str, Array],
    mask: dict[str, Bool[Array, "out in"]],
    variance: Float[Array, ""],
) -> Float[Array, ""]:
    """``log p(D | ψ, σ²)`` by Laplace, with the untempered likelihood, so λ can be compared.

    ``−½ [2E/σ² + T log 2πσ² + Σ W²/ψ + Σ log(1 + ψ H/σ²)]`` over the surviving weights; a pruned
    weight has ψ → 0 and adds nothing.
    """
    fit = 2 * energy / variance + count * jnp.log(2 * jnp.pi * variance)
    occam = (
        jnp.sum(
            jnp.where(
                mask[n],
                params[n] ** 2 / psi[n]
                + jnp.log1p(psi[n] * jnp.maximum(curvature[n], 0.0) / variance),
                0.0,
            )
        )
        for n in psi
    )
    return -0.5 * (fit + sum(occam, jnp.zeros(())))
