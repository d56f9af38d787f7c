"""From a trained batch to the model with bands: the best members, their posteriors, the mixture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from occamid.bands.ensemble import Ensemble, combine, widen_to_residuals
from occamid.bands.mixture import Feedback
from occamid.bands.posterior import LARGEST as MOST_WEIGHTS
from occamid.bands.posterior import Method, Posterior, fit_posterior, refined_posterior
from occamid.data.record import Record
from occamid.errors import DataError
from occamid.identification.families import Family
from occamid.identification.options import Options
from occamid.training.batch import Batch
from occamid.training.free_run import refine
from occamid.training.members import members_of
from occamid.training.model import Model

WORST = 1.5  # members whose free-run error exceeds the median by this factor are left out


def best_models(batch: Batch, count: int) -> list[Model]:
    """The best models on the estimation data as Occam ranks them, one for each λ and restart.

    Always the same number (the best ones again where there are fewer), so that what is compiled
    for one fold serves the next.
    """
    order = batch.ranking(count)
    return [batch.model(index) for index in (order * count)[:count]]


def assemble(
    batch: Batch, family: Family, records: tuple[Record, ...], options: Options
) -> Ensemble:
    """The ensemble of a family's best models, or the one nearest to it where one is asked for."""
    models = _distinct(best_models(batch, options.budget.members))
    if family.refined:
        refined = refine(models, records, iterations=options.budget.iterations)
        posteriors = [refined_posterior(r) for r in refined]
    else:
        posteriors = [fit_posterior(m, records, _method(m)) for m in models]
    feedback: Feedback = "none" if family.refined or family.settings.output_lags == 0 else "process"
    ensemble = combine(_usable(posteriors, records), feedback=feedback)
    if options.single:
        return nearest_member(ensemble, records)
    return widen_to_residuals(ensemble, records)


def _method(model: Model) -> Method:
    small = model.compact()
    return "full" if small.parameters <= MOST_WEIGHTS else "diagonal"


def _distinct(models: Sequence[Model]) -> list[Model]:
    """Each model once."""
    seen: dict[bytes, Model] = {}
    for model in models:
        seen.setdefault(b"".join(np.asarray(v).tobytes() for v in model.weights.values()), model)
    return list(seen.values())


def _usable(posteriors: Sequence[Posterior], records: tuple[Record, ...]) -> list[Posterior]:
    """Members whose free run on the estimation data is not far worse than the others'."""
    members = members_of([p.model for p in posteriors])
    start = members.like.start
    squares = []
    with np.errstate(all="ignore"):
        for r in records:
            miss = (members.free_run(r.u, r.y[:start]) - r.y)[:, start:]
            squares.append((miss / members.like.scaling.y_scale) ** 2)
        errors = np.sqrt(np.mean(np.concatenate(squares, axis=1), axis=(1, 2)))
    finite = np.where(np.isfinite(errors), errors, np.inf)
    if not np.isfinite(finite).any():
        raise DataError("no model is usable in free run; use more data, other lags or more effort.")
    worst = WORST * np.median(finite[np.isfinite(finite)])
    return [p for p, e in zip(posteriors, finite, strict=True) if e <= worst]


def nearest_member(ensemble: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """The member whose free runs are nearest to the ensemble's, by itself."""
    distance = np.zeros(len(ensemble.weights))
    for record in records:
        known = record.y[: ensemble.start]
        apart = ensemble.members.free_run(record.u, known) - ensemble.free_run(record.u, known)
        distance += np.sum((apart / ensemble.first.scaling.y_scale) ** 2, axis=(1, 2))
    member = ensemble.posteriors[int(np.argmin(distance))]
    return widen_to_residuals(combine([member], feedback=ensemble.feedback), records)
