"""From records to a family's model: everything that is trained on one set of records, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from occamid.bands.ensemble import Ensemble, combine
from occamid.bands.posterior import LARGEST as MOST_WEIGHTS
from occamid.bands.posterior import (
    Method,
    Posterior,
    fit_posterior,
    observed_posterior,
    refined_posterior,
)
from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.data.windows import first_row, padded_shape
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.families import Family
from occamid.identification.folds import Lesson
from occamid.identification.options import Budget
from occamid.networks import Observer
from occamid.training.batch import Batch
from occamid.training.free_run import Refined, refine
from occamid.training.linear import fit_arx
from occamid.training.members import members_of
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.state_space import Search, search
from occamid.training.train import Progress, train

Array = np.ndarray
T = TypeVar("T", Model, Refined)
WORST = 1.5  # members whose free-run error exceeds the median by this factor are left out
SIMPLE_ORDERS = 10  # the largest of an output-error model: each costs a refinement


@dataclass
class Workshop:
    """One set of records and what is made of it; families of equal settings share a batch."""

    lesson: Lesson
    budget: Budget
    checkpoints: Checkpoints | None = None
    batches: dict[Settings, Batch] = field(default_factory=dict)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that may be learned from."""
        return self.lesson.records

    @property
    def shape(self) -> tuple[int, int]:
        """What the records are padded to."""
        return padded_shape(self.records)

    def model(self, family: Family, progress: Callable[[Progress], None] | None = None) -> Ensemble:
        """The ensemble of a family's best models on these records."""
        if family.search is not None:
            posteriors = self._state_space(family.search)
        elif family.settings is None:
            posteriors = self._classical(family)
        else:
            posteriors = self._trained(family, progress)
        feedback = "process" if family.feeds_back else "none"
        return combine(self._usable(posteriors), feedback=feedback)  # type: ignore[arg-type]

    def batch(
        self, settings: Settings, progress: Callable[[Progress], None] | None = None
    ) -> Batch:
        """The training with these settings."""
        if settings not in self.batches:
            self.batches[settings] = train(
                self.records,
                settings.replace(restarts=min(settings.restarts, self.budget.restarts)),
                shape=self.shape,
                progress=progress,
                checkpoints=self.checkpoints,
            )
        return self.batches[settings]

    def _trained(
        self, family: Family, progress: Callable[[Progress], None] | None
    ) -> list[Posterior]:
        assert family.settings is not None
        models = best_models(self.batch(family.settings, progress), self.budget.members)
        if family.refined:
            return [refined_posterior(r) for r in _distinct(self._refine(models))]
        distinct = _distinct(models)
        return [fit_posterior(m, self.records, _method(m), shape=self.shape) for m in distinct]

    def _refine(self, models: Sequence[Model], shrink: bool = True) -> list[Refined]:
        return refine(
            models,
            self.records,
            iterations=self.budget.iterations,
            shrink=shrink,
            shape=self.shape,
        )

    def _classical(self, family: Family) -> list[Posterior]:
        """The order with the smallest BIC, of the one-step errors or of the free run."""
        fits = fit_arx(self.records)
        if not family.refined:
            return [fit_posterior(fits[0].model, self.records)]
        start = max(fit.model.start for fit in fits)
        models = [replace(fit.model, start=start) for fit in fits if fit.order <= SIMPLE_ORDERS]
        refined = self._refine(models, shrink=False)
        rows = sum(len(r) - r.lead - start for r in self.records)
        bic = [
            rows * np.sum(np.log(r.noise_variance)) + len(r.positions) * np.log(rows)
            for r in refined
        ]
        return [refined_posterior(refined[int(np.argmin(bic))])]

    def _state_space(self, plan: Search) -> list[Posterior]:
        """State-space models fitted to the free run of whole records, blanks left out."""
        scaling = fit_scaling(self.records, "standardize")
        rows, last = [], self.records[-1]
        for record, seen in self.lesson.blanked:
            scaled = scaling.apply(record)
            rows.append((scaled.u, scaled.y, seen.astype(float)))
        plan = plan.halved() if self.budget.compared else plan
        return [observed_posterior(fit, last, scaling) for fit in search(rows, plan)]

    def _usable(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Members whose free run on these records is not far worse than the others'."""
        errors = free_run_errors([p.model for p in posteriors], self.records)
        if not np.isfinite(errors).any():
            raise DataError(
                "no model is usable in free run; use more data, other lags or more effort."
            )
        worst = WORST * np.median(errors[np.isfinite(errors)])
        return [p for p, e in zip(posteriors, errors, strict=True) if e <= worst]


def free_run_errors(models: Sequence[Model], records: Sequence[Record]) -> Float[Array, " K"]:
    """Free-run error of each model over all outputs, in standard deviations; infinite if wild."""
    members = members_of(models)
    squares = []
    with np.errstate(all="ignore"):
        for r in records:
            first = first_row(r, members.like.terms, members.like.start)
            if isinstance(members.like.network, Observer):  # outputs before a piece are no outputs
                r = r[r.lead :] if r.lead else r
                first = members.like.window
            if first >= len(r):
                continue
            miss = (members.free_run(r.u, r.y[:first]) - r.y)[:, first:]
            squares.append((miss / members.like.scaling.y_std) ** 2)
        if not squares:  # too short to tell any from the others
            return np.zeros(len(members))
        errors = np.sqrt(np.mean(np.concatenate(squares, axis=1), axis=(1, 2)))
    return np.where(np.isfinite(errors), errors, np.inf)


def best_models(batch: Batch, count: int) -> list[Model]:
    """The best models on the estimation data as Occam ranks them, one for each λ and restart.

    Always the same number (the best ones again where there are fewer), so that what is compiled
    for one fold serves the next.
    """
    order = batch.ranking(count)
    return [batch.model(index) for index in (order * count)[:count]]


def nearest_member(ensemble: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """The member whose free runs are nearest to the ensemble's, by itself, with its inflation."""
    distance = np.zeros(len(ensemble.weights))
    for record in records:
        known = record.y[: min(ensemble.window, len(record) - 1)]
        apart = ensemble.members.free_run(record.u, known) - ensemble.free_run(record.u, known)
        distance += np.sum((apart / ensemble.first.scaling.y_std) ** 2, axis=(1, 2))
    member = ensemble.posteriors[int(np.argmin(distance))]
    alone = combine([member], feedback=ensemble.feedback)
    return replace(alone, inflation=ensemble.inflation)


def _method(model: Model) -> Method:
    return "full" if model.compact().parameters <= MOST_WEIGHTS else "diagonal"


def _distinct(found: Sequence[T]) -> list[T]:
    """Each model once."""
    seen: dict[bytes, T] = {}
    for one in found:
        weights = (one.model if isinstance(one, Refined) else one).weights
        seen.setdefault(b"".join(np.asarray(v).tobytes() for v in weights.values()), one)
    return list(seen.values())
