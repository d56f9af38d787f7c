"""Ensembles: mixtures of posteriors that predict with bands.  One model is a mixture of one.

An ensemble of one family may have others beside it: then runs are the mean of all by their shares,
while everything that is looked into (regressors, poles, code) is that of the leading one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Float, Int

from occamid.assessment.run import Run
from occamid.bands import modelfile
from occamid.bands.blend import blended, widened
from occamid.bands.calibration import HORIZONS
from occamid.bands.initial import with_past
from occamid.bands.linearised import linearised
from occamid.bands.mixture import Feedback, Mixture, weighted_median
from occamid.bands.monte_carlo import Sampling, ahead_distribution, free_run_distribution
from occamid.bands.posterior import Method, Posterior, fit_posterior
from occamid.bands.start import Before, Initial, Tail, before, tail_of
from occamid.bands.units import in_user_units, tell_divergence
from occamid.data.record import Record, as_record, as_records
from occamid.data.windows import Terms, windows
from occamid.errors import DataError, SettingsError, check_choice
from occamid.networks import MLP, Network
from occamid.networks.flat import size
from occamid.training.batch import Batch
from occamid.training.first_outputs import begun
from occamid.training.members import Members, members_of
from occamid.training.model import Model, columns
from occamid.training.stepping import Stepper

Array = np.ndarray
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A weighted mixture of Laplace posteriors in one common small network.

    ``inflation`` widens the bands of each output (1: as the posterior says) by what held-back
    data ask for, one row for each of ``calibration.HORIZONS``.  ``feedback`` is where the noise
    enters unless a caller says otherwise: ``process`` for models fitted one step ahead, ``none``
    (added to the output only) for models refined in free run.  ``tail`` is the end of the
    estimation data, inputs and outputs: where "last" starts from.  ``candidates`` is the number
    of parameters before pruning.  ``beside`` are ensembles of other families with their shares of
    every run; ``inflation`` is then that of all together, and theirs is not used.
    """

    posteriors: tuple[Posterior, ...]
    weights: Float[Array, " K"]
    members: Members  # the posteriors' means
    mixture: Mixture
    inflation: Float[Array, "H ny"]
    feedback: Feedback = "process"
    tail: Tail | None = None
    candidates: int | None = None
    beside: tuple[Beside, ...] = ()

    @property
    def first(self) -> Model:
        """The first member, whose scaling and start all members share."""
        return self.posteriors[0].model

    @property
    def network(self) -> Network:
        """The common network of the members."""
        return self.members.like.network

    @property
    def terms(self) -> Terms:
        """The lagged channels that any member reads."""
        return self.members.like.terms

    @property
    def start(self) -> int:
        """The first sample of a record that is predicted."""
        return self.first.start

    @property
    def window(self) -> int:
        """How many first outputs a run starts from unless told otherwise."""
        own = max(p.model.window for p in self.posteriors)
        return max([own, *(other.model.window for other in self.beside)])

    @property
    def sampling_time(self) -> float:
        """Seconds between samples."""
        return self.first.sampling_time

    @property
    def regressors(self) -> tuple[str, ...]:
        """Names of the regressors that any member uses."""
        return self.terms.names

    @property
    def parameters(self) -> int:
        """Weights and biases of the median member that are not zero: the size of the model."""
        counts = sorted(p.model.parameters for p in self.posteriors)
        return counts[(len(counts) - 1) // 2]

    @property
    def parameters_in_all(self) -> int:
        """Those of all members together, and of what is beside them."""
        own = sum(p.model.parameters for p in self.posteriors)
        return own + sum(other.model.parameters_in_all for other in self.beside)

    @property
    def sparsity(self) -> float:
        """Share of the candidate parameters, of the network before pruning, that were pruned."""
        return 1.0 - self.parameters / max(self.candidates or 0, self.parameters, 1)

    @property
    def fewest_known(self) -> int:
        """How many first outputs must be known before a free run."""
        most = self.terms.max_lag
        known = max(1, self.terms.output_lag) if isinstance(self.network, MLP) else most
        return min(most, known)

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write a model file; ``about`` is kept in its header for people."""
        modelfile.write(path, self._contents(), about)

    def _contents(self) -> modelfile.Contents:
        return modelfile.Contents(
            self.posteriors,
            self.weights,
            self.inflation,
            self.feedback,
            self.tail,
            self.candidates,
            tuple((other.model._contents(), other.share) for other in self.beside),
        )

    def _parts(
        self, enough: Callable[[Ensemble], bool]
    ) -> tuple[list[Ensemble], Float[Array, " m"]]:
        """The leading family and those beside it whose needs are met, with their shares.

        The shares add up to one, whoever is there.
        """
        there = [other for other in self.beside if enough(other.model)]
        own = 1.0 - sum(other.share for other in self.beside)
        shares = np.array([own, *(other.share for other in there)])
        return [replace(self, beside=()), *(b.model for b in there)], shares / shares.sum()

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N ny"]:
        """The centre of the members' free runs to ``u`` after the known first outputs, no band.

        ``y_init`` holds at least as many samples as the largest lag of an output.  If it is
        shorter than the largest lag of an input, the inputs before the first sample are inferred
        (:mod:`occamid.bands.initial`).
        """
        inputs, known = columns(u), columns(y_init)
        parts, shares = self._parts(lambda other: other.fewest_known <= len(known))
        return np.tensordot(shares, [part._middle(inputs, known) for part in parts], axes=1)

    def _middle(self, u: Float[Array, "N nu"], y_init: Float[Array, "n ny"]) -> Array:
        """The centre of this family's own free runs."""
        inputs, known, missing = self._with_past(u, y_init)
        return self._centre(self.members.free_run(inputs, known))[missing:]

    def simulate(
        self,
        record: Record | Float[Array, "N nu"] | Float[Array, " N"],
        n_init: int | None = None,
        *,
        initial: Initial | None = None,
        samples: int | None = None,
        feedback: Feedback | None = None,
        levels: tuple[float, ...] = LEVELS,
        seed: int = 0,
        memory_mb: float = 1024.0,
    ) -> Run:
        """Free run after ``n_init`` known outputs, with the distribution of the measured output.

        Only ``record.u`` and the first ``n_init`` rows of ``record.y`` are looked at; inputs from
        before the record are inferred where lags reach that far.  With ``feedback="process"``
        noise is fed back through the model as the training saw it, and the band grows with the
        horizon; with "none" it is only added to the output.  Bands are of first order, or by
        Monte Carlo with this many ``samples``.

        With ``initial`` no output is looked at, and ``record`` may be an array of inputs: the run
        begins at its first row, after a record whose last rows came just before it, after the end
        of the estimation data ("last"), or from rest under the first inputs ("steady"), whose
        doubt is in the band.
        """
        if feedback is not None:
            check_choice("feedback", feedback, get_args(Feedback))
        known = len(initial) if isinstance(initial, Record) else None
        if initial is None:
            record = as_record(record)
            self.first.check([record])
            known = n_init = self._known(record) if n_init is None else n_init
        elif n_init is not None:
            raise SettingsError("give `n_init` or `initial`, not both.")
        runs = []
        parts, shares = self._parts(lambda m: known is None or m.fewest_known <= known)
        for part in parts:
            place = feedback or part.feedback
            drawn = Sampling(samples or 0, place, levels, seed, memory_mb)
            runs.append(part._simulate(record, n_init, initial, drawn))
        run = widened(blended([run for run, _ in runs], shares), self.inflation_at(runs[0][1]))
        return tell_divergence(run)

    def _known(self, record: Record) -> int:
        """How many first outputs of a record a run starts from unless told otherwise."""
        own = max(p.model.window_in(record) for p in self.posteriors)
        return max([own, *(other.model._known(record) for other in self.beside)])

    def _simulate(
        self,
        record: Record | Float[Array, "N nu"] | Float[Array, " N"],
        n_init: int | None,
        initial: Initial | None,
        drawn: Sampling,
    ) -> tuple[Run, Int[Array, " T"]]:
        """This family's own free run as its posterior says, and how many steps ahead its rows are.

        One number where all are as in a long run.
        """
        if initial is None:
            assert isinstance(record, Record)
            assert n_init is not None
            return self._free_run(record, Before(record.y[: max(0, n_init)]), n_init, drawn)
        u = columns(record.u if isinstance(record, Record) else record)
        blank = self._record(u, np.zeros((len(u), len(self.terms.output_names))))
        start = before(self.members.like, self.mixture, self.tail, u, initial, drawn.feedback)
        if drawn.samples and start.doubt is not None:
            raise SettingsError("a start at rest has bands of first order; leave `samples` out.")
        assert start.u is not None
        joined = np.concatenate([start.u, u]), np.concatenate([start.y, blank.y])
        known = len(start.y)
        run, ahead = self._free_run(self._record(*joined), start, known, drawn)
        return run.after(known), ahead

    def _record(self, u: Float[Array, "N nu"], y: Float[Array, "N ny"]) -> Record:
        names = self.terms.input_names, self.terms.output_names
        return Record(
            u=u, y=y, name="simulate", input_names=names[0], output_names=names[1],
            sampling_time=self.sampling_time,
        )  # fmt: skip

    def _free_run(
        self, record: Record, given: Before, n_init: int, drawn: Sampling
    ) -> tuple[Run, Int[Array, " T"]]:
        """The free run after the known outputs; nothing else of the record is looked at."""
        u, known, missing = self._with_past(record.u, given.y)
        total = n_init + missing
        if not self.terms.max_lag <= total < len(u):
            raise DataError(
                f'record "{record.name}": n_init is {n_init}; it must be at least '
                f"{self.fewest_known} and less than the {len(record)} rows."
            )
        start, samples = min(self.start, total), drawn.samples
        hidden = np.zeros((len(u), known.shape[1]))
        hidden[:total] = known
        with jax.enable_x64(not samples):
            scaled = self.first.scaling.apply(replace(record, u=u, y=hidden))
            data = windows([scaled], self.terms, start)
            mean = begun(self.network, self.mixture.mean, data, total - start)
            place = (self.network, self.terms, self.mixture._replace(mean=mean), data)
            if samples:
                run = free_run_distribution(*place, total - start, drawn)
            else:
                run = linearised(
                    *place,
                    forced=total - start,
                    horizon=None,
                    feedback=drawn.feedback,
                    levels=drawn.levels,
                    doubt=given.doubt,
                )
        centre = self._centre(self.members.free_run(u, known)) if samples else None
        known_start = given.u is not None and given.doubt is None
        ahead = np.arange(1, len(u) - total + 1) if known_start else np.array([HORIZONS[-1]])
        found = in_user_units(run, self.first.scaling, known, total - start, centre)
        return found.after(missing), ahead

    def predict(
        self,
        record: Record,
        horizon: int = 1,
        *,
        samples: int | None = None,
        feedback: Feedback | None = None,
        levels: tuple[float, ...] = LEVELS,
        seed: int = 0,
        memory_mb: float = 1024.0,
    ) -> Run:
        """Predictions ``horizon`` steps ahead, with the distribution of the measured output."""
        record = as_record(record)
        if horizon < 1:
            raise SettingsError(f"the horizon is {horizon}; it must be 1 or more.")
        self.first.check([record])
        if feedback is not None:
            check_choice("feedback", feedback, get_args(Feedback))
        runs = []
        parts, shares = self._parts(lambda other: other.start < len(record))
        for part in parts:
            place = feedback or part.feedback
            drawn = Sampling(samples or 0, place, levels, seed, memory_mb)
            runs.append(part._predict(record, horizon, drawn))
        run = widened(blended(runs, shares), self.inflation_at(np.array([horizon])))
        return tell_divergence(run)

    def _predict(self, record: Record, horizon: int, drawn: Sampling) -> Run:
        """This family's own predictions as its posterior says."""
        with jax.enable_x64(not drawn.samples):
            data = windows([self.first.scaling.apply(record)], self.terms, self.start)
            place = (self.network, self.terms, self.mixture, data)
            if drawn.samples:
                run = ahead_distribution(*place, horizon, drawn)
            else:
                run = linearised(
                    *place, forced=0, horizon=horizon, feedback=drawn.feedback, levels=drawn.levels
                )
        centre = self._centre(self.members.predict(record, horizon)) if drawn.samples else None
        return in_user_units(run, self.first.scaling, record.y[: self.start], 0, centre)

    def step_function(self) -> Stepper:
        """The recursion as a pure function of JAX, for loops of one's own; its centre, no band."""
        network, terms, params = self.members.program()
        like = self.members.like
        return Stepper(network, terms, params, self.weights, like.scaling, like.start)

    def _centre(self, runs: Float[Array, "K N ny"]) -> Float[Array, "N ny"]:
        return weighted_median(runs, self.weights)

    def inflation_at(self, horizon: int | Int[Array, " T"]) -> Float[Array, "... ny"]:
        """The factor on the bands so many steps ahead, between those of ``HORIZONS``."""
        at = np.log(np.minimum(horizon, HORIZONS[-1]))
        logs = [np.interp(at, np.log(HORIZONS), column) for column in np.log(self.inflation).T]
        return np.exp(np.stack(logs, axis=-1))

    def _with_past(
        self, u: Float[Array, "N nu"], known: Float[Array, "n ny"]
    ) -> tuple[Float[Array, "M nu"], Float[Array, "m ny"], int]:
        scaling = self.first.scaling
        return with_past(self.network, self.terms, self.mixture, scaling, u, known)


class Beside(NamedTuple):
    """An ensemble of another family and its share of every run."""

    model: Ensemble
    share: float


def load(path: str | Path) -> Ensemble:
    """The model of a model file or of a run folder; anything else is refused with the reason."""
    return _made_of(modelfile.read(path))


def _made_of(found: modelfile.Contents) -> Ensemble:
    ensemble = combine(found.posteriors, found.weights, found.feedback)
    return replace(
        ensemble,
        inflation=found.inflation,
        tail=found.tail,
        candidates=found.candidates,
        beside=tuple(Beside(_made_of(own), share) for own, share in found.beside),
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
    most = max(len(p.positions) for p in posteriors)
    factors = np.zeros(members.weights.shape if diagonal else (*members.weights.shape, most))
    for k, (p, place) in enumerate(zip(posteriors, members.places, strict=True)):
        rows = place[p.positions]
        if diagonal:
            factors[k, rows] = p.factor
        else:
            F = np.diag(p.factor) if p.factor.ndim == 1 else p.factor
            factors[k, rows[:, None], np.arange(F.shape[1])] = F
    noise = np.sqrt(np.stack([p.noise_variance for p in posteriors]))
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
