"""Ensembles: mixtures of posteriors that predict with bands; one model is a mixture of one.

An ensemble of one family may have others beside it: then runs are the mean of all by their shares,
while everything that is looked into (regressors, poles, code) is that of the leading one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int

from occamid.assessment.run import Run
from occamid.bands import modelfile
from occamid.bands.blend import blended, widened
from occamid.bands.calibration import HORIZONS
from occamid.bands.mixture import Feedback, Mixture
from occamid.bands.monte_carlo import Sampling
from occamid.bands.one_family import OneFamily
from occamid.bands.posterior import Posterior
from occamid.bands.regions import Regions, between
from occamid.bands.start import Initial, Tail
from occamid.bands.units import tell_divergence
from occamid.data.record import Record, as_record
from occamid.data.windows import Terms
from occamid.errors import SettingsError, check_choice
from occamid.networks import Network
from occamid.training.members import Members
from occamid.training.model import Model, columns
from occamid.training.stepping import Stepper

Array = np.ndarray
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A weighted mixture of Laplace posteriors in one common small network.

    ``inflation`` widens the bands of each output (1: as the posterior says) by what held-back
    data ask for, one row for each of ``calibration.HORIZONS``, and ``regions`` by what they ask for
    where the output is high or low.  ``feedback`` is where the noise
    enters unless a caller says otherwise: ``process`` for models fitted one step ahead, ``none``
    (added to the output only) for models refined in free run.  ``tail`` is the end of the
    estimation data, inputs and outputs: where "last" starts from.  ``candidates`` is the number
    of parameters before pruning.  ``beside`` are ensembles of other families with their shares of
    every run; ``inflation`` and ``regions`` are then those of all together, theirs are not used.
    """

    posteriors: tuple[Posterior, ...]
    weights: Float[Array, " K"]
    members: Members  # the posteriors' means
    mixture: Mixture
    inflation: Float[Array, "H ny"]
    regions: Regions | None = None
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
        return self._own.fewest_known

    def save(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write a model file; ``about`` is kept in its header for people."""
        modelfile.write(path, self.contents(), about)

    def contents(self) -> modelfile.Contents:
        """What a model file holds."""
        return modelfile.Contents(
            self.posteriors,
            self.weights,
            self.inflation,
            self.regions,
            self.feedback,
            self.tail,
            self.candidates,
            tuple((other.model.contents(), other.share) for other in self.beside),
        )

    @property
    def _own(self) -> OneFamily:
        """The leading family."""
        return OneFamily(self.members, self.mixture, self.tail)

    def _parts(
        self, enough: Callable[[Ensemble], bool]
    ) -> tuple[list[Ensemble], Float[Array, " m"]]:
        """The leading family and those beside it whose needs are met, with their shares.

        The shares add up to one, whoever is there.
        """
        there = [other for other in self.beside if enough(other.model)]
        own = 1.0 - sum(other.share for other in self.beside)
        shares = np.array([own, *(other.share for other in there)])
        return [self, *(other.model for other in there)], shares / shares.sum()

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
        return np.tensordot(shares, [part._own.free_run(inputs, known) for part in parts], axes=1)

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
            runs.append(part._own.simulate(record, n_init, initial, drawn))
        return self._widened(blended([run for run, _ in runs], shares), runs[0][1])

    def _known(self, record: Record) -> int:
        """How many first outputs of a record a run starts from unless told otherwise."""
        own = max(p.model.window_in(record) for p in self.posteriors)
        return max([own, *(other.model._known(record) for other in self.beside)])

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
            runs.append(part._own.predict(record, horizon, drawn))
        return self._widened(blended(runs, shares), np.full(len(record), horizon))

    def step_function(self) -> Stepper:
        """The recursion as a pure function of JAX, for loops of one's own; its centre, no band."""
        network, terms, params = self.members.program()
        like = self.members.like
        return Stepper(network, terms, params, self.weights, like.scaling, like.start)

    def _widened(self, run: Run, steps: Int[Array, " N"]) -> Run:
        """The run with its band as wide as held-back data ask for."""
        return tell_divergence(widened(run, self.inflation_at(steps, run.mean)))

    def inflation_at(
        self, steps: Int[Array, " N"], mean: Float[Array, "N ny"] | None = None
    ) -> Float[Array, "N ny"]:
        """The factor on the band of every row, so many steps ahead, where its centre is there.

        Between ``HORIZONS`` it is interpolated, linear in the logarithms of both.
        """
        near = between(np.log(np.minimum(steps, HORIZONS[-1])), np.log(HORIZONS))
        logs = np.log(self.inflation)[:, None]
        if self.regions is not None and mean is not None:
            logs = logs + np.log(self.regions.at(mean))
        return np.exp(np.sum(near.T[:, :, None] * logs, axis=0))


class Beside(NamedTuple):
    """An ensemble of another family and its share of every run."""

    model: Ensemble
    share: float
