"""From records to a family's model: everything that is trained on one set of records, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.bands.posterior import (
    Method,
    Posterior,
    faded_posterior,
    fit_posterior,
    observed_posterior,
    refined_posterior,
)
from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.data.windows import Shape, first_row, padded_shape
from occamid.errors import DataError
from occamid.files.checkpoints import Checkpoints
from occamid.identification.dead_time import dead_times, moved
from occamid.identification.families import Family
from occamid.identification.folds import Lesson
from occamid.identification.options import Budget, Options
from occamid.networks import Observer
from occamid.training.batch import Batch
from occamid.training.criterion import WORST, criterion, usable
from occamid.training.fading import fit_fading
from occamid.training.free_run import MOST_WEIGHTS, Refined, refine
from occamid.training.linear import fit_arx, fit_own
from occamid.training.members import members_of
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.state_space import Search, search
from occamid.training.train import Progress, train

Array = np.ndarray
T = TypeVar("T", Model, Refined)
FEWER_STATES = 1.1  # times the smallest error that a model with fewer states is worth
BEYOND = 3, 5_000  # times its rows, and rows at most, that the longest record is continued by
FARTHEST = 10.0  # times the farthest output of the records, where a run may be running away
GROWING = 10.0  # times as far in the second half of what is added as in the first: it is
SIMPLE_ORDERS = 10  # the largest of an output-error model: each costs a refinement, and
SIMPLE_COST = 2.5e8  # rows × outputs × weights², what a step of it costs, is no more than this


@dataclass
class Workshop:
    """One set of records and what is made of it; families of equal settings share a batch.

    Inputs of the records were moved by their ``dead`` times, which the models' terms then say.
    """

    lesson: Lesson
    budget: Budget
    checkpoints: Checkpoints | None = None
    room: Shape | None = None
    dead: tuple[int, ...] = ()
    batches: dict[Settings, Batch] = field(default_factory=dict)

    @classmethod
    def of(cls, lesson: Lesson, options: Options, budget: Budget, **rest: Any) -> Workshop:
        """For a lesson whose dead times are still in it."""
        dead = dead_times(lesson.records, options)
        return cls(moved(lesson, dead), budget, dead=dead, **rest)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that may be learned from."""
        return self.lesson.records

    @property
    def shape(self) -> Shape:
        """What the records are padded to: ``room`` for those of all folds, where there are some."""
        return self.room or padded_shape(self.records)

    def model(self, family: Family, progress: Callable[[Progress], None] | None = None) -> Ensemble:
        """The ensemble of a family's best models on these records."""
        try:
            posteriors = self._posteriors(family, progress)
        except np.linalg.LinAlgError as problem:
            raise DataError(f"its equations cannot be solved ({problem})") from None
        feedback = "process" if family.feeds_back else "none"
        found = [replace(p, model=p.model.later(self.dead)) for p in self._usable(posteriors)]
        return combine(found, feedback=feedback)  # type: ignore[arg-type]

    def _posteriors(
        self, family: Family, progress: Callable[[Progress], None] | None
    ) -> list[Posterior]:
        """Its models with what is not known of them, however they are made."""
        if family.search is not None:
            return self._state_space(family.search)
        if family.fading is not None:
            return [faded_posterior(fit_fading(self.records, family.fading, family.zero))]
        if family.settings is None:
            return self._classical(family)
        return self._trained(family, progress)

    def batch(
        self, settings: Settings, progress: Callable[[Progress], None] | None = None
    ) -> Batch:
        """The training with these settings, perhaps a part of one with more λ values."""
        for trained, batch in self.batches.items():
            if settings.replace(lam=trained.lam) == trained and {*settings.lam} <= {*trained.lam}:
                return batch.only(settings.lam)
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
        """The order with the smallest BIC, of the one-step errors or of the free run.

        What runs away is left out where it can be: a pole beyond the circle fits any drift.
        """
        fits = fit_arx(self.records, family.zero)
        if not family.refined and len(self.records[0].output_names) > 1:
            fits = sorted([fit_own(self.records, family.zero), *fits], key=lambda fit: fit.bic)
        start = max(fit.model.start for fit in fits)
        models = [replace(fit.model, start=start) for fit in fits]
        if not family.refined:
            sane = np.isfinite(free_run_errors(models, self.records))
            return [fit_posterior(fits[int(np.argmax(sane))].model, self.records)]
        rows = self.lesson.rows() * len(self.records[0].output_names)
        orders = [fit.order for fit in fits if rows * fit.model.parameters**2 <= SIMPLE_COST]
        most = min(SIMPLE_ORDERS, max(orders, default=min(fit.order for fit in fits)))
        simple = [m for m, fit in zip(models, fits, strict=True) if fit.order <= most]
        refined = self._refine(simple, shrink=False)
        misses, wild = free_run_misses([r.model for r in refined], self.records)
        free = np.array([len(r.positions) for r in refined])
        largest = int(np.argmax(np.where(wild, 0, free)))
        squares = np.stack([r.noise_variance for r in refined])
        bic = criterion(squares, free, [miss[largest] for miss in misses])
        return [refined_posterior(refined[int(np.argmin(np.where(wild, np.inf, bic)))])]

    def _state_space(self, plan: Search) -> list[Posterior]:
        """State-space models fitted to the free run of whole records, blanks left out."""
        scaling = fit_scaling(self.records, "standardize" if plan.offset else "rescale")
        rows, last = [], self.records[-1]
        for record, seen in self.lesson.blanked:
            scaled = scaling.apply(record)
            rows.append((scaled.u, scaled.y, seen.astype(float)))
        plan = plan.halved() if self.budget.compared else plan
        found = [observed_posterior(fit, last, scaling) for fit in search(rows, plan)]
        return found if self.lesson.rows(True) <= plan.rows else self._of_one_order(found)

    def _of_one_order(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Of a long record those of the smallest order that runs free about as well as the best.

        From a few known outputs a model with more states than the process may begin so badly that
        its better fit is worth nothing, and farther out than it was fitted it errs more.
        """
        models = [p.model for p in posteriors]
        orders = np.array([model.neurons[0] for model in models])
        errors = free_run_errors(models, self.records)
        order = np.min(orders[errors <= FEWER_STATES * np.min(errors)])
        return [p for p, n in zip(posteriors, orders, strict=True) if n == order]

    def _usable(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Members whose free run on these records is not far worse than the others'."""
        errors = free_run_errors([p.model for p in posteriors], self.records)
        if not np.isfinite(errors).any():
            raise DataError(
                "no model is usable in free run; use more data, other lags or more effort."
            )
        finite = np.sort(errors[np.isfinite(errors)])
        worst = WORST * finite[(len(finite) - 1) // 2]  # the better one of two
        return [p for p, e in zip(posteriors, errors, strict=True) if e <= worst]


def free_run_errors(models: Sequence[Model], records: Sequence[Record]) -> Float[Array, " K"]:
    """Free-run error of each model over all outputs, in standard deviations; infinite if wild.

    Wild is what leaves the records and, unless all others are far worse, what would do so after
    them: models of an unstable process do.
    """
    misses, wild = free_run_misses(models, records)
    if not misses:  # too short to tell any from the others
        return np.zeros(len(models))
    with np.errstate(all="ignore"):
        errors = np.sqrt(np.mean(np.concatenate(misses, axis=1) ** 2, axis=(1, 2)))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    return np.where(usable(errors, wild), errors, np.inf)


def free_run_misses(
    models: Sequence[Model], records: Sequence[Record]
) -> tuple[list[Float[Array, "K T ny"]], Bool[Array, " K"]]:
    """Errors of the free runs through every record, in standard deviations, and who runs away.

    The inputs of the longest record come again and again: nothing may leave the outputs' range by
    far then, but for an integrator's drift.
    """
    members = members_of(models)
    scaling = members.like.scaling
    misses, wild = [], np.zeros(len(members), bool)
    longest = max(records, key=len)
    for r in records:
        first = first_row(r, members.like.terms, members.like.start)
        more = min(BEYOND[0] * len(r), BEYOND[1]) if r is longest else 0
        if isinstance(members.like.network, Observer):  # outputs before a piece are no outputs
            r = r[r.lead :] if r.lead else r
            first = members.like.window
        if first >= len(r):
            continue
        u = np.concatenate([r.u, np.resize(r.u, (more, r.u.shape[1]))])
        with np.errstate(all="ignore"):
            run = members.free_run(u, r.y[:first])
            misses.append((run[:, : len(r)] - r.y)[:, first:] / scaling.y_std)
            if more:
                far = np.max(np.abs(r.y - scaling.y_mean), axis=0)
                wild = runs_away((run - scaling.y_mean) / far, more)
    return misses, wild


def runs_away(run: Float[Array, "K T ny"], more: int) -> Bool[Array, " K"]:
    """Which runs leave the range, where one is as far as any output of a record is.

    An integrator whose input is not zero in the mean drifts, and so would the process: in the
    second half of the ``more`` rows after the record it moves as far as in the first, three times
    as far where a step is integrated twice.  An exponential moves farther and farther; one that
    grows by less than :data:`GROWING` counts as a drift, for estimated poles scatter around one.
    """
    end, half = run.shape[1] - more, run.shape[1] - more // 2
    with np.errstate(all="ignore"):
        first, second = (
            np.max(np.abs(run[:, a:b] - run[:, [a - 1]]), axis=(1, 2))
            for a, b in ((end, half), (half, run.shape[1]))
        )
        inside = np.max(np.abs(run), axis=(1, 2)) <= FARTHEST
        return ~(inside | (second <= GROWING * first))


def best_models(batch: Batch, count: int) -> list[Model]:
    """The best models on the estimation data as Occam ranks them, one for each λ and restart.

    Always the same number (the best ones again where there are fewer), so that what is compiled
    for one fold serves the next.
    """
    order = batch.ranking(count)
    return [batch.model(index) for index in (order * count)[:count]]


def nearest_member(ensemble: Ensemble, records: tuple[Record, ...]) -> Ensemble:
    """The member whose free runs are nearest to the ensemble's, with the width of its bands."""
    distance = np.zeros(len(ensemble.weights))
    for record in records:
        known = record.y[: min(ensemble.window, len(record) - 1)]
        apart = ensemble.members.free_run(record.u, known) - ensemble.free_run(record.u, known)
        distance += np.sum((apart / ensemble.first.scaling.y_std) ** 2, axis=(1, 2))
    member = ensemble.posteriors[int(np.argmin(distance))]
    alone = combine([member], feedback=ensemble.feedback)
    return replace(alone, inflation=ensemble.inflation, regions=ensemble.regions)


def _method(model: Model) -> Method:
    return "full" if model.compact().parameters <= MOST_WEIGHTS else "diagonal"


def _distinct(found: Sequence[T]) -> list[T]:
    """Each model once."""
    seen: dict[bytes, T] = {}
    for one in found:
        weights = (one.model if isinstance(one, Refined) else one).weights
        seen.setdefault(b"".join(np.asarray(v).tobytes() for v in weights.values()), one)
    return list(seen.values())
