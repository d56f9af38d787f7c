"""Output-error refinement: the surviving structure refitted to its own free run, with evidence.

One-step training minimises ``Σ (y − f(measured past))²``.  What a simulation needs is a small
``Σ (y − ŷ)²`` of the free run ``ŷ``, whose regressors are its own past outputs.  Here the free run
over the whole record is differentiated, and Levenberg's and Marquardt's method minimises

    ``E(w) = Σ_k ‖y_k − ŷ_k(w)‖² / (2 σ_k²) + ½ Σ_g α_g ‖w_g‖²``,

while the precisions α of the groups and the noise variances σ² follow from MacKay's fixed point
(1992): ``α_g = γ_g / ‖w_g‖²``, ``γ_g = n_g − α_g tr_g A⁻¹``, ``σ² = ‖r‖² / (T − γ)``, with
``A = Σ_k J_kᵀ J_k / σ_k² + diag α``.  A group is a regressor's column in a matrix that reads the
terms, or another matrix or bias as a whole; a group whose α grows without bound is pruned.
All members are refined together in one compiled program; ``A⁻¹`` is the covariance of the bands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from occamid.data.record import Record, as_records
from occamid.data.windows import Shape, Terms
from occamid.errors import DataError, SettingsError
from occamid.networks import MLP, Network, Recurrent, is_matrix, reads_regressors
from occamid.networks.flat import flatten, size, unflatten
from occamid.training.cores import cores, on_cpu, side_by_side
from occamid.training.lanes import Lanes, in_lanes, runs, sensitivities
from occamid.training.levenberg import FIRST_DAMPING, damped, lower, next_damping
from occamid.training.members import members_of
from occamid.training.model import Model
from occamid.training.programs import kept
from occamid.training.wide import widen

Array = np.ndarray
MOST_WEIGHTS = 5_000  # of a dense precision or covariance: 200 MB in double precision
RANGE = 8.0  # outputs beyond this many standard deviations count as this far, and do not explode
PRUNED = 1e6  # precision of a group, in units of its weights, beyond which it is zero
FIRST_UPDATE, EVERY = 6, 3  # iterations before the first update of α, and between updates
SMALLEST, LARGEST = 1e-4, 1e7  # bounds of α
DEAR = 5e9  # multiplications in all, half a second: less is done sooner than a program is compiled,
COARSE = 10  # and its numbers of terms are rounded to multiples of this
FLATTEST = 1e-12  # curvature of a direction over that of its weights, told apart from none


class State(NamedTuple):
    """One member in refinement; ``w`` is flat, ``mask`` is 1 where a weight is free."""

    w: Float[jax.Array, " P"]
    mask: Float[jax.Array, " P"]
    alpha: Float[jax.Array, " G"]
    variance: Float[jax.Array, " ny"]
    damping: Float[jax.Array, ""]


class Fit(NamedTuple):
    """What refinement leaves of one member."""

    w: Float[jax.Array, " P"]
    mask: Float[jax.Array, " P"]
    precision: Float[jax.Array, "P P"]
    prior: Float[jax.Array, " P"]
    variance: Float[jax.Array, " ny"]
    effective: Float[jax.Array, ""]
    log_evidence: Float[jax.Array, ""]


class Refined(NamedTuple):
    """A refined, compact model and the precision of its free parameters, scaled units."""

    model: Model
    positions: Int[Array, " n"]  # of the free parameters in the model's flat vector
    precision: Float[Array, "n n"]
    widths: Float[Array, " n"]  # prior variances
    noise_variance: Float[Array, " ny"]
    effective: float
    log_evidence: float


def groups(network: Network) -> tuple[Array, int]:
    """For every flat parameter the number of its group, and how many groups there are."""
    found, count = [], 0
    for name, spec in network.specs().items():
        columns = spec.shape[1] if reads_regressors(name) else 1
        number = count + np.arange(columns) if reads_regressors(name) else count
        found.append(np.broadcast_to(number, spec.shape).ravel())
        count += columns
    return np.concatenate(found), count


def refine(
    models: Sequence[Model],
    records: Record | Iterable[Record],
    *,
    iterations: int = 60,
    shrink: bool = True,
    shape: Shape | None = None,
) -> list[Refined]:
    """Refit models of one identification in free run; each comes back with its precision.

    Args:
        models: as trained; all of one family, with common scaling.
        records: the estimation records.
        iterations: of Levenberg and Marquardt.
        shrink: whether evidence sets the precisions and prunes; else the priors stay wide.
        shape: what to pad the records to, see :func:`occamid.data.windows.windows`.
    """
    small = [collapse(model).compact() for model in models]
    members = members_of(small)
    first, network, terms = small[0], members.like.network, members.like.terms
    _check(network)
    estimation = as_records(records)
    work = len(small) * iterations * sum(r.y.size for r in estimation) * size(network) ** 2
    wide = widen(network, terms, dear=True) if work > DEAR else widen(network, terms, COARSE)
    matrices = np.concatenate(
        [np.full(int(np.prod(s.shape)), is_matrix(n)) for n, s in network.specs().items()]
    )
    own = np.zeros(members.weights.shape, bool)
    for row, place in zip(own, members.places, strict=True):
        row[place] = True
    mask = np.where(own & ((members.weights != 0) | ~matrices), 1.0, 0.0)
    with jax.enable_x64(True):
        padded = wide.windows(members.like.windows(estimation, first.start, shape))
        data = in_lanes(padded, wide.terms, shape.lanes if shape else 1)
        units = wide.spread(_units(members.like), rest=1.0)
        sizes = (units, first.scaling.y_centre, first.scaling.y_spread)
        # On a CPU one after the other: batched linear algebra in a loop can lock up in XLA there.
        together = 1 if on_cpu() else len(small)
        settings = (together, iterations, shrink, data, _Scale(*jax.device_put(sizes)))
        both = (wide.network, wide.terms, *settings)
        starts, masks = wide.spread(members.weights), wide.spread(mask)

    def some(k: Int[Array, " n"]) -> Fit:
        with jax.enable_x64(True):  # each thread has its own
            found: Fit = jax.device_get(_refine(*both, starts[k], masks[k]))
            return found

    parts = _evenly(len(small), cores() if together == 1 else 1)
    found = side_by_side([partial(some, k) for k in parts])
    fits = jax.tree.map(lambda *x: np.concatenate(x)[: len(small)], *found)
    at = wide.places
    fits = fits._replace(
        **{name: getattr(fits, name)[:, at] for name in ("w", "mask", "prior")},
        precision=fits.precision[:, at[:, None], at],
    )
    return [
        _refined(first, network, terms, jax.tree.map(lambda x, k=k: x[k], fits))
        for k in range(len(small))
    ]


def _check(network: Network) -> None:
    """Refuse what has no refinement, or one that does not fit into memory."""
    if not isinstance(network, (MLP, Recurrent)):
        raise SettingsError("only an mlp, an lstm or an rnn can be refined in free run.")
    if size(network) > MOST_WEIGHTS:
        raise DataError(
            f"{size(network)} weights are too many to be refined in free run "
            f"({MOST_WEIGHTS} at most); use fewer units or lags."
        )


def _evenly(count: int, parts: int) -> list[Int[Array, " n"]]:
    """Numbers below ``count`` in as many parts, of equal length: the last one again at the end."""
    size = -(-count // parts)
    return [np.minimum(np.arange(k, k + size), count - 1) for k in range(0, count, size)]


class _Scale(NamedTuple):
    """Sizes in scaled units: 1 everywhere and 0 for the centre where data are standardised."""

    unit: Float[jax.Array, " P"]  # of each parameter: priors and thresholds count in these
    centre: Float[jax.Array, " ny"]
    spread: Float[jax.Array, " ny"]


def _units(model: Model) -> Float[Array, " P"]:
    """What a weight of ordinary size is: it turns a spread of its input into one of its output."""
    network, terms, scaling = model.network, model.terms, model.scaling
    reads = np.array(
        [scaling.u_spread[c] for c, _ in terms.inputs]
        + [scaling.y_spread[c] for c, _ in terms.outputs]
    )
    last = f"layer{len(network.hidden)}"
    tree = {}
    for name, spec in network.specs().items():
        into_output = name.startswith(("skip", last, "out"))
        out = scaling.y_spread if into_output else np.ones(spec.shape[0])
        if len(spec.shape) == 1:
            tree[name] = out
        else:
            inward = 1 / reads if reads_regressors(name) else np.ones(spec.shape[1])
            tree[name] = np.outer(out, inward)
    return flatten(network, tree)


def collapse(model: Model) -> Model:
    """A linear network as one matrix: the product is refined, not its factors.

    Other models come back as they are.
    """
    network = model.network
    if not isinstance(network, MLP) or network.activation != "identity":
        return model
    direct, offset = network.matrix(model.weights)
    flat = replace(network, hidden=(1,), skip=True)
    weights = {name: np.zeros(spec.shape) for name, spec in flat.specs().items()}
    weights["skip.W"] = direct
    if network.bias:
        weights["layer1.b"] = offset
    return replace(model, network=flat, weights=weights, prior_widths=None)


@kept((0, 1, 2))
def _refine(
    network: Network,
    terms: Terms,
    together: int,
    iterations: int | jax.Array,
    shrink: bool | jax.Array,
    data: Lanes,
    scale: _Scale,
    start: Float[jax.Array, "K P"],
    mask: Float[jax.Array, "K P"],
) -> Fit:
    number, count = groups(network)
    rows = jnp.sum(data.valid)
    place = _Place(network, terms, data, rows, jnp.asarray(number), count, scale, shrink)
    first = jnp.where(shrink, 1.0, SMALLEST) * jnp.ones(count)

    def one(pair: tuple[jax.Array, jax.Array]) -> Fit:
        w, m = pair
        squares = jnp.sum(_residual(place, w) ** 2, axis=0)
        variance = jnp.maximum(squares / rows, 1e-10 * scale.spread**2)
        state = State(w, m, first, variance, jnp.asarray(FIRST_DAMPING))
        state = jax.lax.fori_loop(0, iterations, partial(_step, place), state)
        return _finish(place, state)

    return jax.lax.map(one, (start, mask), batch_size=together)


class _Place(NamedTuple):
    """What does not change during refinement."""

    network: Network
    terms: Terms
    data: Lanes
    rows: Float[jax.Array, ""]
    number: jax.Array  # of the group of each weight
    groups: int
    scale: _Scale
    shrink: bool | jax.Array


def _residual(place: _Place, w: Float[jax.Array, " P"]) -> Float[jax.Array, "LT ny"]:
    return _miss(runs(place.network, place.terms, w, place.data)[0], place)


class _Local(NamedTuple):
    """The quadratic expansion at the current weights."""

    r: Float[jax.Array, "LT ny"]
    gradient: Float[jax.Array, " P"]
    precision: Float[jax.Array, "P P"]
    prior: Float[jax.Array, " P"]


def _miss(ran: Float[jax.Array, "L T ny"], place: _Place) -> Float[jax.Array, "LT ny"]:
    """Errors of free runs within the range, zero in the padding."""
    data, centre, far = place.data, place.scale.centre, RANGE * place.scale.spread
    away = jnp.where(jnp.isnan(ran), far, ran - centre)
    miss = (centre + jnp.clip(away, -far, far) - data.y) * data.valid
    return miss.reshape(-1, miss.shape[-1])


def _expand(place: _Place, state: State) -> _Local:
    """Residuals, gradient and Gauss-Newton precision; masked weights get a unit diagonal."""
    data = place.data
    ran, J = sensitivities(place.network, place.terms, state.w, data)
    r = _miss(ran, place)
    far = RANGE * place.scale.spread
    within = (jnp.abs(ran - place.scale.centre) < far)[..., None] & jnp.isfinite(J)
    J = jnp.where(within, J, 0.0)  # the derivative of what is clipped
    J = (J * data.valid[..., None] * state.mask).reshape(*r.shape, -1)
    prior = state.alpha[place.number] * state.mask / place.scale.unit**2
    flat = (J / jnp.sqrt(state.variance)[:, None]).reshape(-1, state.w.size)
    gradient = (r / jnp.sqrt(state.variance)).ravel() @ flat + prior * state.w
    precision = flat.T @ flat + jnp.diag(jnp.where(state.mask > 0, prior, 1.0))
    return _Local(r, gradient, precision, prior)


def _step(place: _Place, k: jax.Array, state: State) -> State:
    """One damped step, kept if it lowers the energy; now and then new α and σ²."""
    at = _expand(place, state)

    def energy(w: jax.Array, r: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(r**2 / state.variance) + 0.5 * jnp.sum(at.prior * w**2)

    w = state.w - state.mask * damped(at.precision, at.gradient, state.damping)
    better = lower(energy(w, _residual(place, w)), energy(state.w, at.r))
    update = (k >= FIRST_UPDATE) & ((k - FIRST_UPDATE) % EVERY == 0)
    due = update | (k < FIRST_UPDATE)  # the inverse is as dear as the step itself
    alpha, variance = jax.lax.cond(
        due,
        lambda: _evidence_update(place, state, at.r, _determined(state, at)),
        lambda: (state.alpha, state.variance),
    )
    return State(
        w=jnp.where(better, w, state.w),
        mask=state.mask,
        alpha=jnp.where(update & place.shrink, alpha, state.alpha),
        variance=variance,
        damping=next_damping(state.damping, better),
    )


def _scaled(
    precision: Float[jax.Array, "P P"],
) -> tuple[Float[jax.Array, " P"], Float[jax.Array, "P P"]]:
    """A size for each weight and the precision in these units, with every direction curved.

    Data without noise leave directions that nothing but the prior tells, too flat for doubles.
    """
    size = jnp.sqrt(jnp.diag(precision))
    return size, precision / jnp.outer(size, size) + FLATTEST * jnp.eye(len(size))


def _determined(state: State, at: _Local) -> Float[jax.Array, " P"]:
    """``γ``: how far each weight is determined by the data, from 0 to 1."""
    size, scaled = _scaled(at.precision)
    gamma = 1.0 - at.prior / size**2 * jnp.diag(jnp.linalg.inv(scaled))
    return jnp.clip(gamma, 0.0, 1.0) * state.mask


def _evidence_update(
    place: _Place, state: State, r: Float[jax.Array, "LT ny"], gamma: Float[jax.Array, " P"]
) -> tuple[jax.Array, jax.Array]:
    """MacKay's fixed point for the precisions of the groups and the noise of each output."""
    total = partial(jax.ops.segment_sum, segment_ids=place.number, num_segments=place.groups)
    squares = total(state.mask * (state.w / place.scale.unit) ** 2)
    alpha = jnp.maximum(total(gamma), 1e-6) / jnp.maximum(squares, 1e-12)
    freedom = jnp.maximum(place.rows - jnp.sum(gamma) / r.shape[1], 0.1 * place.rows)
    variance = jnp.maximum(jnp.sum(r**2, axis=0) / freedom, 1e-10 * place.scale.spread**2)
    return jnp.clip(alpha, SMALLEST, LARGEST), variance


def _finish(place: _Place, state: State) -> Fit:
    """Prune what has no width left, and expand once more for covariance and evidence."""
    alpha, rows = state.alpha[place.number], place.rows
    mask = state.mask * (alpha < PRUNED)
    prior = alpha / place.scale.unit**2
    state = state._replace(w=state.w * mask, mask=mask)
    at = _expand(place, state)
    gamma = jnp.sum(_determined(state, at))
    fit = jnp.sum(at.r**2 / state.variance) + rows * jnp.sum(jnp.log(2 * jnp.pi * state.variance))
    occam = jnp.sum(at.prior * state.w**2) - jnp.sum(jnp.where(mask > 0, jnp.log(prior), 0.0))
    size, scaled = _scaled(at.precision)
    volume = 2 * jnp.sum(jnp.log(size)) + jnp.linalg.slogdet(scaled)[1]
    return Fit(
        w=state.w,
        mask=mask,
        precision=at.precision,
        prior=prior,
        variance=state.variance,
        effective=gamma,
        log_evidence=-0.5 * (fit + occam + volume),
    )


def _refined(like: Model, network: Network, terms: Terms, fit: Fit) -> Refined:
    """The refined model in compact form with the precision of what is left."""
    weights = unflatten(network, np.asarray(fit.w))
    whole = replace(like, network=network, terms=terms, weights=weights, prior_widths=None)
    model = whole.compact()
    live = network.live({n: v != 0 for n, v in weights.items() if is_matrix(n)})
    numbers = network.select(unflatten(network, np.arange(len(fit.w))), live)
    inside = np.concatenate(
        [numbers.get(n, np.full(v.shape, -1)).ravel() for n, v in model.weights.items()]
    )
    positions = np.flatnonzero((inside >= 0) & (np.asarray(fit.mask)[inside] > 0))
    chosen = inside[positions]
    return Refined(
        model=model,
        positions=positions,
        precision=np.asarray(fit.precision)[np.ix_(chosen, chosen)],
        widths=1.0 / np.asarray(fit.prior)[chosen],
        noise_variance=np.asarray(fit.variance),
        effective=float(fit.effective),
        log_evidence=float(fit.log_evidence),
    )
