"""A run: what a model says about a record, sample by sample, and how good that was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from occamid.assessment import metrics, scores
from occamid.assessment.scores import SHARES, Scores
from occamid.data.record import Record
from occamid.errors import DataError, SettingsError

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Run:
    """Modelled outputs of one record, in the user's units; the first ``n_init`` rows are known.

    ``mean`` is the centre: a single model's run, or the weighted median over the members of an
    ensemble.  ``std`` is the spread of a measurement around it, ``std² = epistemic² +
    aleatoric²``: the epistemic part comes from not knowing the model, the aleatoric part from
    noise.  ``quantiles[j]`` belongs to ``levels[j]``.  ``diverged`` is the share of the posterior
    that left the range.  A model without a posterior has a mean and no band.
    """

    mean: Float[Array, "N ny"]
    n_init: int
    std: Float[Array, "N ny"] | None = None
    epistemic_std: Float[Array, "N ny"] | None = None
    aleatoric_std: Float[Array, "N ny"] | None = None
    levels: tuple[float, ...] = ()
    quantiles: Float[Array, "Q N ny"] | None = None
    diverged: float = 0.0

    def __len__(self) -> int:
        return len(self.mean)

    def after(self, rows: int) -> Run:
        """The same without its first rows."""

        def cut(x: Float[Array, "... N ny"] | None) -> Any:
            return None if x is None else x[..., rows:, :]

        return replace(
            self,
            mean=cut(self.mean),
            n_init=max(0, self.n_init - rows),
            std=cut(self.std),
            epistemic_std=cut(self.epistemic_std),
            aleatoric_std=cut(self.aleatoric_std),
            quantiles=cut(self.quantiles),
        )

    @property
    def spread(self) -> Float[Array, "N ny"]:
        """``std``, or an error where there is no band."""
        if self.std is None:
            raise SettingsError(
                "this run has no band: a single trained model has no posterior; take "
                "fit_posterior(model, records) and combine, or the model of identify."
            )
        return self.std

    def interval(self, share: float = 0.95) -> tuple[Float[Array, "N ny"], Float[Array, "N ny"]]:
        """The central interval that holds this share; its quantiles must have been asked for."""
        low, high = (1 - share) / 2, (1 + share) / 2
        levels = np.asarray(self.levels)
        self.spread  # noqa: B018 - says what is missing
        assert self.quantiles is not None
        if min(abs(levels - low)) > 1e-9 or min(abs(levels - high)) > 1e-9:
            raise SettingsError(
                f"a {share:.0%} interval needs the quantiles {low:g} and {high:g}; ask for them "
                f"with levels=, there are {', '.join(f'{p:g}' for p in self.levels)}."
            )
        at = lambda p: self.quantiles[int(np.argmin(abs(levels - p)))]  # noqa: E731
        return at(low), at(high)

    def rmse(self, record: Record) -> Float[Array, " ny"]:
        """Root mean square error after the known rows."""
        return metrics.rmse(self._measured(record), self.mean, self.n_init)

    def fit(self, record: Record) -> Float[Array, " ny"]:
        """Fit in per cent after the known rows, as MATLAB's ``compare`` counts it."""
        return metrics.fit_percent(self._measured(record), self.mean, self.n_init)

    def coverage(self, record: Record, share: float = 0.95) -> Float[Array, " ny"]:
        """Share of the measurements after the known rows inside the central band."""
        low, high = (edge[self.n_init :] for edge in self.interval(share))
        return scores.covered(self._measured(record)[self.n_init :], (low, high))

    def scores(self, record: Record) -> Scores:
        """Coverage, density, CRPS and width after the known rows."""
        y, rest = self._measured(record)[self.n_init :], self.after(self.n_init)
        low, high = rest.interval(SHARES[-1])
        return Scores(
            coverage={share: scores.covered(y, rest.interval(share)) for share in SHARES},
            log_density=scores.log_density(y, rest.mean, rest.spread),
            crps=scores.crps(y, rest.mean, rest.spread),
            width=np.mean(high - low, axis=0),
        )

    def reliability(self, record: Record) -> tuple[Float[Array, " Q"], Float[Array, "Q ny"]]:
        """Nominal levels of the quantiles, and the share of measurements below each."""
        self.spread  # noqa: B018
        assert self.quantiles is not None
        y = self._measured(record)
        below = np.mean(y[None, self.n_init :] <= self.quantiles[:, self.n_init :], axis=1)
        return np.asarray(self.levels), below

    def _measured(self, record: Record) -> Float[Array, "N ny"]:
        if record.y.shape != self.mean.shape:
            raise DataError(
                f'record "{record.name}" has {len(record)} rows and {record.y.shape[1]} outputs, '
                f"the run {len(self.mean)} and {self.mean.shape[1]}; compare a run with the record "
                "it was made on."
            )
        return record.y
