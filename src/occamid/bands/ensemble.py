"""Ensembles: mixtures of posteriors that predict with bands.  One model is a mixture of one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import jax
import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.bands import modelfile
from occamid.bands.calibration import HORIZONS
from occamid.bands.initial import past_inputs
from occamid.bands.linearised import linearised
from occamid.bands.mixture import Feedback, Mixture, weighted_median
from occamid.bands.monte_carlo import Sampling, ahead_distribution, free_run_distribution
from occamid.bands.posterior import Method, Posterior, fit_posterior
from occamid.data.record import Record, as_record, as_records
from occamid.data.windows import Terms, windows
from occamid.errors import DataError, SettingsError, check_choice
from occamid.networks import MLP, Network
from occamid.training.batch import Batch
from occamid.training.members import Members, members_of
from occamid.training.model import Model, columns

Array = np.ndarray
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


class DivergedWarning(UserWarning):
    """Some posterior samples left the range of the data in free run."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A weighted mixture of Laplace posteriors in one common small network.

    ``inflation`` widens the bands of each output (1: as the posterior says) by what held-back
    data ask for, one row for each of ``calibration.HORIZONS``.  ``feedback`` is where the noise
    enters unless a caller says otherwise: ``process`` for models fitted one step ahead, ``none``
    (added to the output only) for models refined in free run.
    """

    posteriors: tuple[Posterior, ...]
    weights: Float[Array, " K"]
    members: Members  # the posteriors' means
    mixture: Mixture
    inflation: Float[Array, "H ny"]
    feedback: Feedback = "process"

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
    def sampling_time(self) -> float:
        """Seconds between samples."""
        return self.first.sampling_time

    @property
    def regressors(self) -> tuple[str, ...]:
        """Names of the regressors that any member uses."""
        return self.terms.names

    @property
    def parameters(self) -> int:
        """Parameters of all members that are not zero."""
        return sum(p.model.parameters for p in self.posteriors)

    @property
    def fewest_known(self) -> int:
        """How many first outputs must be known before a free run."""
        most = self.terms.max_lag
        known = max(1, self.terms.output_lag) if isinstance(self.network, MLP) else most
        return min(most, known)

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write a model file; ``about`` is kept in its header for people."""
        modelfile.write(
            path,
            modelfile.Contents(self.posteriors, self.weights, self.inflation, self.feedback),
            about,
        )

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N ny"]:
        """The centre of the members' free runs to ``u`` after the known first outputs, no band.

        ``y_init`` holds at least as many samples as the largest lag of an output.  If it is
        shorter than the largest lag of an input, the inputs before the first sample are inferred
        (:mod:`occamid.bands.initial`).
        """
        inputs, known, missing = self._with_past(columns(u), columns(y_init))
        return self._centre(self.members.free_run(inputs, known))[missing:]

    def simulate(
        self,
        record: Record,
        n_init: int | None = None,
        *,
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
        """
        record = as_record(record)
        n_init = self.start if n_init is None else n_init
        feedback = self._check(record, feedback)
        u, known, missing = self._with_past(record.u, record.y[:n_init])
        total = n_init + missing
        if not self.terms.max_lag <= total < len(u):
            raise DataError(
                f'record "{record.name}": n_init is {n_init}; it must be at least '
                f"{self.fewest_known} and less than the {len(record)} rows."
            )
        start = min(self.start, total)
        hidden = np.zeros((len(u), known.shape[1]))
        hidden[:total] = known  # nothing else of the record can be looked at
        with jax.enable_x64(samples is None):
            scaled = self.first.scaling.apply(replace(record, u=u, y=hidden))
            data = windows([scaled], self.terms, start)
            place = (self.network, self.terms, self.mixture, data)
            if samples is None:
                run = linearised(
                    *place, forced=total - start, horizon=None, feedback=feedback, levels=levels
                )
            else:
                sampling = Sampling(samples, feedback, levels, seed, memory_mb)
                run = free_run_distribution(*place, total - start, sampling)
        centre = None if samples is None else self._centre(self.members.free_run(u, known))
        return self._finish(run, known, total - start, centre, HORIZONS[-1]).after(missing)

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
        feedback = self._check(record, feedback)
        with jax.enable_x64(samples is None):
            data = windows([self.first.scaling.apply(record)], self.terms, self.start)
            place = (self.network, self.terms, self.mixture, data)
            if samples is None:
                run = linearised(
                    *place, forced=0, horizon=horizon, feedback=feedback, levels=levels
                )
            else:
                sampling = Sampling(samples, feedback, levels, seed, memory_mb)
                run = ahead_distribution(*place, horizon, sampling)
        centre = None if samples is None else self._centre(self.members.predict(record, horizon))
        return self._finish(run, record.y[: self.start], 0, centre, horizon)

    def _centre(self, runs: Float[Array, "K N ny"]) -> Float[Array, "N ny"]:
        return weighted_median(runs, self.weights)

    def inflation_at(self, horizon: int) -> Float[Array, " ny"]:
        """The factor on the bands so many steps ahead, between those of ``HORIZONS``."""
        at = np.log(min(horizon, HORIZONS[-1]))
        logs = [np.interp(at, np.log(HORIZONS), column) for column in np.log(self.inflation).T]
        return np.exp(logs)

    def _with_past(
        self, u: Float[Array, "N nu"], known: Float[Array, "n ny"]
    ) -> tuple[Float[Array, "N+k nu"], Float[Array, "n+k ny"], int]:
        """Inputs and known outputs from as far back as the lags reach, and how far that is.

        Too little that is known, or other channels: nothing is inferred, and the model says so.
        """
        enough = isinstance(self.network, MLP) and len(known) >= max(1, self.fewest_known)
        missing = max(0, self.terms.max_lag - len(known)) if enough else 0
        shapes = (len(self.terms.input_names), len(self.terms.output_names))
        if not missing or len(known) >= len(u) or (u.shape[1], known.shape[1]) != shapes:
            return u, known, 0
        scaling = self.first.scaling
        past = past_inputs(
            self.network,
            self.terms,
            self.mixture.mean,
            self.mixture.noise_std,
            scaling.apply_u(u),
            scaling.apply_y(known),
            scaling.y_spread,
        )[-missing:]
        past = past * scaling.u_scale + scaling.u_offset
        longer = np.concatenate([np.repeat(known[:1], missing, axis=0), known])
        return np.concatenate([past, u]), longer, missing

    def _check(self, record: Record, feedback: Feedback | None) -> Feedback:
        self.first.check([record])
        chosen = feedback or self.feedback
        check_choice("feedback", chosen, get_args(Feedback))
        return chosen

    def _finish(
        self,
        run: Run,
        known: Float[Array, "n ny"],
        skip: int,
        centre: Float[Array, "N ny"] | None,
        horizon: int,
    ) -> Run:
        """The user's units, the inflation, the known rows in front; a word about divergence.

        Spread and inflation are about the centre, which is not the mean of a few samples.
        """
        if run.diverged:
            done = "which widens the band" if centre is None else "set aside"
            warnings.warn(
                f"{run.diverged:.1%} of the posterior diverged in free run, {done}; "
                "use a sparser model (a later cycle or a larger lam), the full posterior instead "
                "of the diagonal one, or an ensemble.",
                DivergedWarning,
                stacklevel=3,
            )
        scale, widen = self.first.scaling, self.inflation_at(horizon)
        certain, front = np.zeros_like(known), [known] * len(run.levels)
        mean = scale.undo_y(run.mean[skip:])
        whole = np.concatenate([known, mean]) if centre is None else centre
        middle = whole[len(known) :]
        assert run.std is not None
        assert run.epistemic_std is not None
        assert run.aleatoric_std is not None
        assert run.quantiles is not None
        with np.errstate(invalid="ignore", over="ignore"):  # where nothing is left in the range
            aside = (mean - middle) / scale.y_scale
            std, epistemic = (np.hypot(x[skip:], aside) for x in (run.std, run.epistemic_std))
            quantiles = middle + widen * (scale.undo_y(run.quantiles[:, skip:]) - middle)

        def spread(x: Float[Array, "T ny"]) -> Float[Array, "N ny"]:
            return np.concatenate([certain, widen * x * scale.y_scale])

        return Run(
            mean=whole,
            n_init=len(known),
            std=spread(std),
            epistemic_std=spread(epistemic),
            aleatoric_std=spread(run.aleatoric_std[skip:]),
            levels=run.levels,
            quantiles=np.concatenate([front, quantiles], axis=1),
            diverged=run.diverged,
        )


def load(path: str | Path) -> Ensemble:
    """The model of a model file or of a run folder; anything else is refused with the reason."""
    found = modelfile.read(path)
    ensemble = combine(found.posteriors, found.weights, found.feedback)
    return replace(ensemble, inflation=found.inflation)


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
    return widen_to_residuals(combine(posteriors), data)


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
