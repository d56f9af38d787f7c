"""Ensembles: mixtures of posteriors that predict with bands.  One model is a mixture of one."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import jax
import numpy as np
from jaxtyping import Float

from occamid.bands.initial import past_inputs
from occamid.bands.linearised import linearised
from occamid.bands.monte_carlo import (
    Distribution,
    Feedback,
    Mixture,
    ahead_distribution,
    free_run_distribution,
)
from occamid.bands.posterior import Method, Posterior, fit_posterior
from occamid.data.record import Record, as_records
from occamid.data.windows import Regressors, windows
from occamid.errors import DataError, SettingsError, check_choice
from occamid.networks import MLP, Network
from occamid.training.batch import Result
from occamid.training.members import Batch, batch_of
from occamid.training.model import Model

Array = np.ndarray
Weighting = Literal["equal", "score", "evidence"]
Propagation = Literal["linearised", "monte-carlo"]
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


class DivergedWarning(UserWarning):
    """Some posterior samples left the range of the data in free run."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A weighted mixture of Laplace posteriors in one common small network.

    ``inflation`` widens the bands of each output (1: as the posterior says): by what free runs on
    the estimation data ask for, or held-back blocks of them (:mod:`occamid.bands.calibration`).
    ``feedback`` is where the noise enters unless a caller says otherwise: ``process`` for models
    fitted one step ahead, ``none`` (added to the output only) for models refined in free run.
    """

    posteriors: tuple[Posterior, ...]
    weights: Float[Array, " K"]
    batch: Batch  # the members' mean weights
    mixture: Mixture
    inflation: Float[Array, " ny"]
    feedback: Feedback = "process"

    @property
    def first(self) -> Model:
        """The first member, whose scaling and start all members share."""
        return self.posteriors[0].model

    @property
    def network(self) -> Network:
        """The common network of the members."""
        return self.batch.like.network

    @property
    def regressors_in(self) -> Regressors:
        """The regressors that any member uses."""
        return self.batch.like.regressors_in

    @property
    def start(self) -> int:
        """The first sample of a record that is predicted."""
        return self.first.start

    @property
    def regressors(self) -> tuple[str, ...]:
        """Names of the regressors that any member uses."""
        return self.regressors_in.names

    @property
    def parameters(self) -> int:
        """Parameters of all members that are not zero."""
        return sum(p.model.parameters for p in self.posteriors)

    def simulate(
        self,
        u: Float[Array, "N nu"],
        y_init: Float[Array, "n ny"],
        combine: Literal["median", "mean"] = "median",
    ) -> Float[Array, "N ny"]:
        """Free run of every member's mean weights, combined sample by sample.

        ``y_init`` holds at least as many samples as the largest lag of an output.  If it is
        shorter than the largest lag of an input, the inputs before the first sample are inferred
        (:mod:`occamid.bands.initial`).
        """
        inputs, known = _columns(u), _columns(y_init)
        missing = self._missing(len(known))
        if missing and len(known) < len(inputs) and inputs.shape[1] == self._channels[0]:
            past = self._past(inputs, known, missing)
            inputs = np.concatenate([past, inputs])
            known = np.concatenate([np.repeat(known[:1], missing, axis=0), known])
        return self._combined(self.batch.simulate(inputs, known), combine)[missing:]

    @property
    def _channels(self) -> tuple[int, int]:
        return len(self.regressors_in.input_names), len(self.regressors_in.output_names)

    @property
    def _least(self) -> int:
        """How many outputs must be known before a free run."""
        most = self.regressors_in.max_lag
        known = max(1, self.regressors_in.output_lag) if isinstance(self.network, MLP) else most
        return min(most, known)

    def _missing(self, n_init: int) -> int:
        """How many inputs before the record a free run after ``n_init`` outputs must infer."""
        if not isinstance(self.network, MLP) or n_init < max(1, self._least):
            return 0  # too little is known: the model says so
        return max(0, self.regressors_in.max_lag - n_init)

    def _past(
        self, u: Float[Array, "N nu"], known: Float[Array, "n ny"], count: int
    ) -> Float[Array, "k nu"]:
        scaling = self.first.scaling
        found = past_inputs(
            self.network,
            self.regressors_in,
            self.mixture.mean,
            self.mixture.noise_std,
            scaling.apply_u(u),
            scaling.apply_y(known),
        )[-count:]
        return found * scaling.u_scale + scaling.u_offset

    def predict(
        self, record: Record, horizon: int = 1, combine: Literal["median", "mean"] = "median"
    ) -> Float[Array, "N ny"]:
        """``horizon``-step predictions of every member, combined sample by sample."""
        return self._combined(self.batch.predict(record, horizon), combine)

    def _combined(self, runs: Float[Array, "K N ny"], combine: str) -> Float[Array, "N ny"]:
        check_choice("combine", combine, ("median", "mean"))
        if combine == "mean":
            return np.tensordot(self.weights, runs, axes=1)
        order = np.argsort(runs, axis=0)
        share = np.cumsum(self.weights[order], axis=0)
        middle = np.argmax(share >= 0.5 - 1e-12, axis=0)[None]
        upper = np.argmax(share > 0.5 + 1e-12, axis=0)[None]  # ties meet in the middle
        ranked = np.take_along_axis(runs, order, axis=0)
        ends = (np.take_along_axis(ranked, at, axis=0)[0] for at in (middle, upper))
        return np.mean(list(ends), axis=0)

    def simulate_distribution(
        self,
        record: Record,
        n_init: int | None = None,
        *,
        method: Propagation = "linearised",
        feedback: Feedback | None = None,
        levels: tuple[float, ...] = LEVELS,
        samples: int = 10_000,
        seed: int = 0,
        memory_mb: float = 1024.0,
    ) -> Distribution:
        """The distribution of the measured output in free run after ``n_init`` known outputs.

        Only ``record.u`` and the first ``n_init`` rows of ``record.y`` are looked at; inputs from
        before the record are inferred where lags reach that far.  With ``feedback="process"``
        noise is fed back through the model as the training saw it, and the band grows with the
        horizon; with "none" it is only added to the output.  ``samples``, ``seed`` and
        ``memory_mb`` are for ``method="monte-carlo"``.
        """
        n_init = self.start if n_init is None else n_init
        feedback = feedback or self.feedback
        self._check(record, method, feedback)
        if missing := self._missing(n_init):
            past = self._past(record.u, record.y[:n_init], missing)
            longer = replace(
                record,
                u=np.concatenate([past, record.u]),
                y=np.concatenate([np.repeat(record.y[:1], missing, axis=0), record.y]),
            )
            found = self.simulate_distribution(
                longer,
                n_init + missing,
                method=method,
                feedback=feedback,
                levels=levels,
                samples=samples,
                seed=seed,
                memory_mb=memory_mb,
            )
            return found.after(missing)
        if not self.regressors_in.max_lag <= n_init < len(record):
            raise DataError(
                f'record "{record.name}": n_init is {n_init}; it must be at least {self._least} '
                f"and less than the {len(record)} rows."
            )
        start = min(self.start, n_init)
        hidden = np.array(record.y)
        hidden[n_init:] = 0.0  # so that nothing can look at it
        with jax.enable_x64(method == "linearised"):
            scaled = self.first.scaling.apply(replace(record, y=hidden))
            data = windows([scaled], self.regressors_in, start)
            place = (self.network, self.regressors_in, self.mixture, data)
            common = {
                "forced": n_init - start,
                "feedback": feedback,
                "levels": levels,
            }
            if method == "linearised":
                found = linearised(*place, horizon=None, **common)  # type: ignore[arg-type]
            else:
                found = free_run_distribution(
                    *place,
                    samples=samples,
                    seed=seed,
                    memory_mb=memory_mb,
                    **common,  # type: ignore[arg-type]
                )
        return self._finish(found, record.y[:n_init], n_init - start)

    def free_run(self, record: Record, n_init: int | None = None, **options: Any) -> Distribution:
        """The median free run of :meth:`simulate` with the band of its distribution."""
        n_init = self.start if n_init is None else n_init
        found = self.simulate_distribution(record, n_init, **options)
        return replace(found, mean=self.simulate(record.u, record.y[:n_init]))

    def predict_distribution(
        self,
        record: Record,
        horizon: int = 1,
        *,
        method: Propagation = "linearised",
        feedback: Feedback | None = None,
        levels: tuple[float, ...] = LEVELS,
        samples: int = 10_000,
        seed: int = 0,
        memory_mb: float = 1024.0,
    ) -> Distribution:
        """The distribution of the measured output ``horizon`` steps ahead."""
        if horizon < 1:
            raise SettingsError(f"the horizon is {horizon}; it must be 1 or more.")
        feedback = feedback or self.feedback
        self._check(record, method, feedback)
        with jax.enable_x64(method == "linearised"):
            data = windows([self.first.scaling.apply(record)], self.regressors_in, self.start)
            place = (self.network, self.regressors_in, self.mixture, data)
            common = {"horizon": horizon, "feedback": feedback, "levels": levels}
            if method == "linearised":
                found = linearised(*place, forced=0, **common)  # type: ignore[arg-type]
            else:
                found = ahead_distribution(
                    *place,
                    samples=samples,
                    seed=seed,
                    memory_mb=memory_mb,
                    **common,  # type: ignore[arg-type]
                )
        return self._finish(found, record.y[: self.start], 0)

    def _check(self, record: Record, method: str, feedback: str) -> None:
        self.first.check([record])
        check_choice("method", method, get_args(Propagation))
        check_choice("feedback", feedback, get_args(Feedback))

    def _finish(self, found: Distribution, known: Float[Array, "n ny"], skip: int) -> Distribution:
        """The user's units, the inflation, the known rows in front; a word about divergence."""
        if found.diverged:
            warnings.warn(
                f"{found.diverged:.1%} of the posterior diverged in free run, set aside; "
                "use a sparser model (a later cycle or a larger lam), the full posterior instead "
                "of the diagonal one, or an ensemble.",
                DivergedWarning,
                stacklevel=3,
            )
        scale = self.first.scaling
        widen = self.inflation
        mean = found.mean[skip:]
        certain = np.zeros_like(known)

        def spread(x: Float[Array, "T ny"]) -> Float[Array, "N ny"]:
            return np.concatenate([certain, widen * x[skip:] * scale.y_scale])

        quantiles = scale.undo_y(mean + widen * (found.quantiles[:, skip:] - mean))
        front = np.broadcast_to(known, (len(found.levels), *known.shape))
        return Distribution(
            mean=np.concatenate([known, scale.undo_y(mean)]),
            std=spread(found.std),
            epistemic_std=spread(found.epistemic_std),
            aleatoric_std=spread(found.aleatoric_std),
            levels=found.levels,
            quantiles=np.concatenate([front, quantiles], axis=1),
            diverged=found.diverged,
        )


def _columns(data: Float[Array, ...]) -> Float[Array, "N n"]:
    """One-dimensional data as one column."""
    found = np.atleast_1d(np.asarray(data, dtype=np.float64))
    return found[:, None] if found.ndim == 1 else found


def combine(
    posteriors: Sequence[Posterior],
    weights: Float[Array, " K"] | None = None,
    feedback: Feedback = "process",
) -> Ensemble:
    """A mixture of posteriors of the same family of networks on the same data."""
    members = tuple(posteriors)
    _check_alike(members)
    share = np.ones(len(members)) if weights is None else np.asarray(weights, dtype=np.float64)
    batch = batch_of([p.model for p in members])
    diagonal = all(p.factor.ndim == 1 for p in members)
    most = max(len(p.positions) for p in members)
    factors = np.zeros(batch.weights.shape if diagonal else (*batch.weights.shape, most))
    for k, (p, place) in enumerate(zip(members, batch.places, strict=True)):
        rows = place[p.positions]
        if diagonal:
            factors[k, rows] = p.factor
        else:
            F = np.diag(p.factor) if p.factor.ndim == 1 else p.factor
            factors[k, rows[:, None], np.arange(F.shape[1])] = F
    noise = np.sqrt(np.stack([p.noise_variance for p in members]))
    share = share / share.sum()
    return Ensemble(
        posteriors=members,
        weights=share,
        batch=batch,
        mixture=Mixture(batch.weights, factors, noise, share),
        inflation=np.ones(noise.shape[1]),
        feedback=feedback,
    )


def _check_alike(members: tuple[Posterior, ...]) -> None:
    """Only models of one identification, or of equal settings on equal data, can be mixed."""
    if not members:
        raise SettingsError("an ensemble needs at least one posterior.")

    def kind(model: Model) -> tuple[object, ...]:
        r, s, network = model.regressors_in, model.scaling, model.network
        scales = tuple(v.tobytes() for v in (s.u_offset, s.u_scale, s.y_offset, s.y_scale))
        shape = (type(network), getattr(network, "kind", ""), network.activation)  # type: ignore[attr-defined]
        return (*shape, len(network.hidden), model.start, r.input_names, r.output_names, scales)

    if len({kind(p.model) for p in members}) > 1:
        raise SettingsError(
            "these models cannot be mixed: they differ in family, depth, activation, channels, "
            "scaling or initial window; identify them together."
        )


def ensemble_of(
    result: Result,
    records: Record | Iterable[Record],
    *,
    count: int = 10,
    weighting: Weighting = "equal",
    method: Method = "full",
    held_back: Sequence[slice] | None = None,
) -> Ensemble:
    """The best models of an identification as a mixture, chosen and weighted on its own data.

    ``equal`` weighs them alike, ``score`` by the Gaussian likelihood of their expected free-run
    error, ``evidence`` by their log-evidence (which often leaves only one).  ``held_back`` are
    the rows that the identification was not given.
    """
    check_choice("weighting", weighting, get_args(Weighting))
    data = as_records(records)
    chosen = result.ranking(count)
    posteriors = [
        fit_posterior(result.model(index), data, method, held_back=held_back) for index in chosen
    ]
    logs = np.zeros(len(chosen))
    if weighting == "evidence":
        logs = np.array([p.log_evidence for p in posteriors])
    elif weighting == "score":
        error = np.array([result.score[index] for index in chosen])
        logs = -0.5 * result.count * (error / error.min()) ** 2
    ensemble = combine(posteriors, np.exp(logs - logs.max()))
    return no_narrower_than_seen(ensemble, data, held_back)


def no_narrower_than_seen(
    ensemble: Ensemble,
    records: tuple[Record, ...],
    held_back: Sequence[slice] | None = None,
) -> Ensemble:
    """Inflate the bands where free runs on the estimation data already leave them.

    The posterior takes one-step residuals for white.  A slow disturbance makes them correlated,
    and free-run errors larger than white noise would; the estimation data show by how much.
    """
    squares = []
    for record, block in zip(records, held_back or (slice(0, 0),) * len(records), strict=True):
        found = ensemble.simulate_distribution(record)
        used = np.arange(len(record)) >= ensemble.start
        used[block] = False
        squares.append(((record.y - found.mean)[used] / found.std[used]) ** 2)
    seen = np.sqrt(np.mean(np.concatenate(squares), axis=0))
    return replace(ensemble, inflation=np.maximum(1.0, seen))
