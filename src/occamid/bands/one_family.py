"""The runs of one family of networks, with bands as its own posteriors say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, Int

from occamid.assessment.run import Run
from occamid.bands.calibration import HORIZONS
from occamid.bands.initial import with_past
from occamid.bands.linearised import linearised
from occamid.bands.mixture import Mixture, weighted_median
from occamid.bands.monte_carlo import Sampling, ahead_distribution, free_run_distribution
from occamid.bands.start import Before, Initial, Tail, before
from occamid.bands.units import in_user_units
from occamid.data.record import Record
from occamid.data.windows import windows
from occamid.errors import DataError, SettingsError
from occamid.training.first_outputs import begun
from occamid.training.members import Members
from occamid.training.model import Model, columns

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class OneFamily:
    """Members in one common network, the mixture of their posteriors, and the data's end.

    What :class:`occamid.bands.ensemble.Ensemble` asks each of its families for: their own runs,
    not widened, not blended with others.
    """

    members: Members
    mixture: Mixture
    tail: Tail | None

    @property
    def like(self) -> Model:
        """Network, terms, scaling and start of all members."""
        return self.members.like

    @property
    def fewest_known(self) -> int:
        """How many first outputs must be known before a free run."""
        terms = self.like.terms
        return min(terms.max_lag, max(1, terms.output_lag))

    def free_run(self, u: Float[Array, "N nu"], y_init: Float[Array, "n ny"]) -> Array:
        """The centre of this family's own free runs."""
        inputs, known, missing = self._with_past(u, y_init)
        return self._centre(self.members.free_run(inputs, known))[missing:]

    def simulate(
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
            return self._after(record, Before(record.y[: max(0, n_init)]), n_init, drawn)
        u = columns(record.u if isinstance(record, Record) else record)
        blank = self._record(u, np.zeros((len(u), len(self.like.terms.output_names))))
        start = before(self.like, self.mixture, self.tail, u, initial, drawn.feedback)
        if drawn.samples and start.doubt is not None:
            raise SettingsError("a start at rest has bands of first order; leave `samples` out.")
        assert start.u is not None
        joined = np.concatenate([start.u, u]), np.concatenate([start.y, blank.y])
        known = len(start.y)
        run, ahead = self._after(self._record(*joined), start, known, drawn)
        return run.after(known), ahead

    def _record(self, u: Float[Array, "N nu"], y: Float[Array, "N ny"]) -> Record:
        terms, step = self.like.terms, self.like.sampling_time
        return Record(
            u=u, y=y, name="simulate", input_names=terms.input_names,
            output_names=terms.output_names, sampling_time=step,
        )  # fmt: skip

    def _after(
        self, record: Record, given: Before, n_init: int, drawn: Sampling
    ) -> tuple[Run, Int[Array, " T"]]:
        """The free run after the known outputs; nothing else of the record is looked at."""
        u, known, missing = self._with_past(record.u, given.y)
        like, total = self.like, n_init + missing
        if not like.terms.max_lag <= total < len(u):
            raise DataError(
                f'record "{record.name}": n_init is {n_init}; it must be at least '
                f"{self.fewest_known} and less than the {len(record)} rows."
            )
        start, samples = min(like.start, total), drawn.samples
        hidden = np.zeros((len(u), known.shape[1]))
        hidden[:total] = known
        with jax.enable_x64(not samples):
            scaled = like.scaling.apply(replace(record, u=u, y=hidden))
            data = windows([scaled], like.terms, start)
            mean = begun(like.network, self.mixture.mean, data, total - start)
            place = (like.network, like.terms, self.mixture._replace(mean=mean), data)
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
        found = in_user_units(run, like.scaling, known, total - start, centre)
        return found.after(missing), ahead

    def predict(self, record: Record, horizon: int, drawn: Sampling) -> Run:
        """This family's own predictions as its posterior says."""
        like = self.like
        with jax.enable_x64(not drawn.samples):
            data = windows([like.scaling.apply(record)], like.terms, like.start)
            place = (like.network, like.terms, self.mixture, data)
            if drawn.samples:
                run = ahead_distribution(*place, horizon, drawn)
            else:
                run = linearised(
                    *place, forced=0, horizon=horizon, feedback=drawn.feedback, levels=drawn.levels
                )
        centre = self._centre(self.members.predict(record, horizon)) if drawn.samples else None
        return in_user_units(run, like.scaling, record.y[: like.start], 0, centre)

    def _centre(self, runs: Float[Array, "K N ny"]) -> Float[Array, "N ny"]:
        return weighted_median(runs, self.mixture.weights)

    def _with_past(
        self, u: Float[Array, "N nu"], known: Float[Array, "n ny"]
    ) -> tuple[Float[Array, "M nu"], Float[Array, "m ny"], int]:
        like = self.like
        return with_past(like.network, like.terms, self.mixture, like.scaling, u, known)
