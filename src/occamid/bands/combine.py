"""Ensembles made of posteriors, of the best models of a batch, or of a model file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from occamid.bands import modelfile
from occamid.bands.calibration import HORIZONS
from occamid.bands.ensemble import Beside, Ensemble
from occamid.bands.mixture import Feedback, Mixture
from occamid.bands.posterior import Method, Posterior, fit_posterior
from occamid.bands.start import tail_of
from occamid.data.record import Record, as_records
from occamid.errors import SettingsError
from occamid.networks.flat import size
from occamid.training.batch import Batch
from occamid.training.members import members_of
from occamid.training.model import Model

Array = np.ndarray
ROUNDING = 1e-12  # shares whose sum is this near to one are left as they are, as those of a file


def load(path: str | Path) -> Ensemble:
    """The model of a model file or of a run folder; anything else is refused with the reason."""
    return made_of(modelfile.read(path))


def made_of(found: modelfile.Contents) -> Ensemble:
    """The ensemble that its contents were taken from, to the last bit."""
    ensemble = combine(found.posteriors, found.weights, found.feedback)
    return replace(
        ensemble,
        inflation=found.inflation,
        regions=found.regions,
        tail=found.tail,
        candidates=found.candidates,
        beside=tuple(Beside(made_of(own), share) for own, share in found.beside),
    )


def combine(
    posteriors: Sequence[Posterior],
    weights: Float[Array, " K"] | None = None,
    feedback: Feedback = "process",
) -> Ensemble:
    """A mixture of posteriors of the same family of networks on the same data."""
    posteriors = tuple(posteriors)
    _check_alike(posteriors)
    share = np.ones(len(posteriors)) if weights is None else np.asarray(weights, dtype=np.float64)
    members = members_of([p.model for p in posteriors])
    diagonal = all(p.factor.ndim == 1 for p in posteriors)
    most = max(p.factor.shape[-1] for p in posteriors)
    factors = np.zeros(members.weights.shape if diagonal else (*members.weights.shape, most))
    for k, (p, place) in enumerate(zip(posteriors, members.places, strict=True)):
        rows = place[p.positions]
        if diagonal:
            factors[k, rows] = p.factor
        else:
            F = np.diag(p.factor) if p.factor.ndim == 1 else p.factor
            factors[k, rows[:, None], np.arange(F.shape[1])] = F
    noise = np.sqrt(np.stack([p.noise_variance for p in posteriors]))
    if abs(share.sum() - 1) > ROUNDING:
        share = share / share.sum()
    scaling = posteriors[0].model.scaling
    return Ensemble(
        posteriors=posteriors,
        weights=share,
        members=members,
        mixture=Mixture(members.weights, factors, noise, share, scaling.y_centre, scaling.y_spread),
        inflation=np.ones((len(HORIZONS), noise.shape[1])),
        feedback=feedback,
    )


def _check_alike(members: tuple[Posterior, ...]) -> None:
    """Only models of one identification, or of equal settings on equal data, can be mixed."""
    if not members:
        raise SettingsError("an ensemble needs at least one posterior.")

    def kind(model: Model) -> tuple[object, ...]:
        t, s, network = model.terms, model.scaling, model.network
        scales = tuple(v.tobytes() for v in (s.u_offset, s.u_scale, s.y_offset, s.y_scale))
        shape = (type(network), getattr(network, "kind", ""), network.activation)  # type: ignore[attr-defined]
        return (*shape, len(network.hidden), model.start, t.input_names, t.output_names, scales)

    if len({kind(p.model) for p in members}) > 1:
        raise SettingsError(
            "these models cannot be mixed: they differ in family, depth, activation, channels, "
            "scaling or initial window; identify them together."
        )


def ensemble_of(
    batch: Batch,
    records: Record | Iterable[Record],
    *,
    count: int = 10,
    method: Method = "full",
) -> Ensemble:
    """The best models of a batch as an even mixture, chosen on its own data."""
    data = as_records(records)
    posteriors = [fit_posterior(batch.model(at), data, method) for at in batch.ranking(count)]
    found = widen_to_residuals(combine(posteriors), data)
    return replace(found, tail=tail_of(data, found.start), candidates=size(batch.network))


def widen_to_residuals(ensemble: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """Inflate the bands where free runs on the estimation data already leave them.

    The posterior takes one-step residuals for white.  A slow disturbance makes them correlated,
    and free-run errors larger than white noise would; the estimation data show by how much.
    """
    squares = []
    for record in records:
        run = ensemble.simulate(record)
        rest = run.after(run.n_init)
        squares.append(((record.y[run.n_init :] - rest.mean) / rest.spread) ** 2)
    seen = np.sqrt(np.mean(np.concatenate(squares), axis=0))
    return replace(ensemble, inflation=np.tile(np.maximum(1.0, seen), (len(HORIZONS), 1)))
