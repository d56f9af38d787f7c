"""The library as a scikit-learn regressor: ``fit(X, y)`` with inputs X and outputs y in time order.

A dynamic model is not a map from rows to rows: the output at a row depends on the rows before it.
Rows must stay in order, so split with ``TimeSeriesSplit``, or whole experiments with a group
splitter (scikit-learn's metadata routing and ``set_fit_request(groups=True)`` then pass the labels
on), never with a shuffled one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import Tags
    from sklearn.utils.validation import (
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError:
    raise ImportError(
        'SparseNARX needs scikit-learn; install it with pip install "occamid[sklearn]".'
    ) from None

from occamid.bands.ensemble import Ensemble
from occamid.data.record import Record
from occamid.errors import DataError, SettingsError
from occamid.identification.identify import identify

Array = np.ndarray
OPTIONS = (
    *("network", "hidden", "input_lags", "output_lags", "lam", "restarts"),
    *("effort", "seed", "single"),
)
NO_Y = "no_validation"  # scikit-learn's word for a y that is not there


def _identify(records: Sequence[Record], params: Mapping[str, Any]) -> Ensemble:
    """The models of some records for the constructor's parameters."""
    return identify(records, **{name: params[name] for name in OPTIONS}).model


class SparseNARX(RegressorMixin, BaseEstimator):
    """A sparse Bayesian neural model of a dynamic system.

    Args:
        network: "auto" tries several families; "mlp", "lstm", "rnn" or "state-space" is taken.
        hidden: units of each hidden layer; none: as the effort says.
        input_lags: largest lag of the inputs, or "auto"; pruning removes what is not needed.
        output_lags: likewise of the outputs.
        lam: λ of the sparse prior, one or several, or "auto".
        restarts: random initialisations; none: as the effort says.
        effort: how much is tried: "quick", "standard" or "thorough".
        seed: fixes everything that is random; the same seed gives the same model.
        single: keep one model, the nearest to the mixture, instead of the mixture.
        sampling_time: seconds between rows.

    Attributes:
        model_: the models, an :class:`occamid.Ensemble`; it has more than is offered here.
        regressors_: names of the lagged inputs and outputs that survived, such as ``u[t-3]``.
        max_lag_: the largest of those lags: how many outputs must be known before a free run.
        n_features_in_: number of inputs.
        feature_names_in_: their names, where X was a data frame with text columns.
        inputs_used_: false for an input that was constant over the training data; it is left out.
        n_outputs_: number of outputs.
        output_names_: their names; from pandas, else ``y`` or ``y1, y2, …``.
        output_mean_: the mean outputs of the training data.
        sampling_time_: seconds between rows.

    X is (rows, inputs), y is (rows,) or (rows, outputs), both in time order.  Several experiments
    are lists of such arrays, or one long array with ``groups``: consecutive rows with one label
    are one experiment.  If y was pandas in ``fit``, so is what comes back, with the index of X.
    """

    def __init__(
        self,
        *,
        network: str = "auto",
        hidden: int | Sequence[int] | None = None,
        input_lags: int | str = "auto",
        output_lags: int | str = "auto",
        lam: float | Sequence[float] | str = "auto",
        restarts: int | None = None,
        effort: str = "standard",
        seed: int = 0,
        single: bool = False,
        sampling_time: float = 1.0,
    ) -> None:
        self.network = network
        self.hidden = hidden
        self.input_lags = input_lags
        self.output_lags = output_lags
        self.lam = lam
        self.restarts = restarts
        self.effort = effort
        self.seed = seed
        self.single = single
        self.sampling_time = sampling_time

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None) -> SparseNARX:
        """Identify the system.

        A constant input is left out, with a warning.  A constant output has no dynamics to
        identify: that is an error.
        """
        pairs = _experiments(self, X, y, groups, reset=True)
        parts = y if _several(X) else [y]
        self._outputs = outputs = _Outputs.of(parts[0])
        for part in parts:
            outputs.check(part)
        u = np.concatenate([u for u, _ in pairs])
        moves = np.ptp(u, axis=0) > 1e-12 * np.abs(u).max(axis=0)  # as the scaling wants it
        names = np.asarray(getattr(self, "feature_names_in_", _default("u", u.shape[1])))
        if not moves.any():
            raise DataError("every input is constant; use data in which an input moves.")
        if not moves.all():
            warnings.warn(
                f"constant over the training data, so left out: {', '.join(names[~moves])}.",
                UserWarning,
                stacklevel=2,
            )
        self.inputs_used_ = moves
        self.n_outputs_ = len(outputs.names)
        self.output_names_ = np.array(outputs.names, dtype=object)
        self.output_mean_ = np.mean(np.concatenate([y for _, y in pairs]), axis=0)
        self._record = partial(
            Record,
            sampling_time=self.sampling_time,
            input_names=tuple(map(str, names[moves])),
            output_names=outputs.names,
        )
        records = [
            self._record(u=u[:, moves], y=y, name=f"experiment {k + 1}")
            for k, (u, y) in enumerate(pairs)
        ]
        self.model_ = _identify(records, self.get_params(deep=False))
        self.regressors_ = self.model_.regressors
        self.max_lag_ = self.model_.terms.max_lag
        self.sampling_time_ = records[0].sampling_time
        return self

    def predict(self, X: Any, y: Any = None, horizon: int = 1, groups: Any = None) -> Any:
        """Predictions for every row.

        With measured outputs ``y``: ``horizon`` steps ahead, each from the outputs measured until
        then.  The first rows, for which the lags reach before the data, are the measured ones.

        Without ``y``, as scikit-learn calls it: a free run from an unknown state.  The first
        ``max_lag_`` outputs are taken to be the mean of the training data and returned as such.
        Prefer :meth:`simulate` where the first outputs are known.
        """
        check_is_fitted(self)
        if not (isinstance(horizon, Integral) and horizon >= 1):
            raise SettingsError(f"the horizon is {horizon!r}; give a whole number above 0.")
        pairs = _experiments(self, X, NO_Y if y is None else y, groups, reset=False)
        runs = [self._predict(*pair, horizon) for pair in pairs]
        if not _several(X):
            return self._outputs.like(np.concatenate(runs), X, y)
        ys = [None] * len(X) if y is None else y
        return [self._outputs.like(*part) for part in zip(runs, X, ys, strict=True)]

    def simulate(self, X: Any, y_init: Any, return_std: bool = False) -> Any:
        """Free run of one experiment after its known first outputs ``y_init``.

        ``y_init`` has at least ``max_lag_`` rows and comes back as the first rows.  With
        ``return_std`` also the standard deviation of the measured outputs around the free run
        (zero where they are known); ``model_.simulate`` has the quantiles.
        """
        check_is_fitted(self)
        if _several(X):
            raise DataError("simulate takes one experiment at a time, not a list of them.")
        ((u, _),) = _experiments(self, X, NO_Y, None, reset=False)
        u, known = u[:, self.inputs_used_], self._outputs.values(y_init)
        if not return_std:
            return self._outputs.like(self.model_.free_run(u, known), X)
        filled = np.concatenate([known, np.zeros((len(u) - len(known), self.n_outputs_))])
        run = self.model_.simulate(self._record(u=u, y=filled), len(known))
        return self._outputs.like(run.mean, X), self._outputs.like(run.spread, X)

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """R² of free runs that start from the first ``max_lag_`` measured outputs.

        Only the rows after those count, over all experiments together; several outputs are
        averaged.  A free run that diverges scores −∞.
        """
        check_is_fitted(self)
        measured, modelled = [], []
        for u, outputs in _experiments(self, X, y, groups, reset=False):
            if len(u) < self.max_lag_ + 2:
                raise DataError(
                    f"{len(u)} rows are too few for a score: the first {self.max_lag_} start the "
                    "free run, and at least two more are needed."
                )
            run = self.model_.free_run(u[:, self.inputs_used_], outputs[: self.max_lag_])
            measured.append(outputs[self.max_lag_ :])
            modelled.append(run[self.max_lag_ :])
        free = np.concatenate(modelled)
        if not np.isfinite(free).all():
            return -np.inf
        return float(r2_score(np.concatenate(measured), free))

    def _predict(
        self, u: Float[Array, "N nu"], y: Float[Array, "N ny"] | None, horizon: int
    ) -> Float[Array, "N ny"]:
        u = u[:, self.inputs_used_]
        if y is not None:
            return self.model_.predict(self._record(u=u, y=y), int(horizon)).mean
        start = np.tile(self.output_mean_, (min(self.max_lag_, len(u)), 1))
        return start if len(u) <= self.max_lag_ else self.model_.free_run(u, start)


@dataclass(frozen=True)
class _Outputs:
    """How y looked in ``fit``, so that predictions look the same."""

    names: tuple[str, ...]
    flat: bool  # one-dimensional
    pandas: bool
    label: Any  # the name of a series, the columns of a data frame

    @classmethod
    def of(cls, y: Any) -> _Outputs:
        shape, pandas = np.asarray(y).shape, hasattr(y, "iloc")
        count = 1 if len(shape) == 1 else shape[1]
        label = getattr(y, "columns", getattr(y, "name", None)) if pandas else None
        if label is None:
            names = _default("y", count)
        else:
            names = tuple(map(str, label)) if len(shape) == 2 else (str(label),)
        return cls(names, len(shape) == 1, pandas, label)

    def check(self, y: Any) -> None:
        """Refuse outputs of another number or, in a data frame, of other names."""
        shape = np.asarray(y).shape
        count = shape[1] if len(shape) == 2 else 1
        if count != len(self.names):
            raise DataError(
                f"y has {count} columns, but the model {len(self.names)}: {', '.join(self.names)}."
            )
        named = self.pandas and not self.flat
        found = tuple(map(str, getattr(y, "columns", ()))) if named else ()
        if found and found != self.names:
            raise DataError(
                f"y has the columns {', '.join(found)}; the model was fitted on "
                f"{', '.join(self.names)}, in this order."
            )

    def values(self, y: Any) -> Float[Array, "N ny"]:
        """Measured outputs as columns."""
        self.check(y)
        return np.asarray(y, dtype=np.float64).reshape(-1, len(self.names))

    def like(self, values: Float[Array, "N ny"], x: Any, y: Any = None) -> Any:
        """Modelled outputs in the form of y in ``fit``, with the index of X, else of this y."""
        values = values[:, 0] if self.flat else values
        if not self.pandas:
            return values
        import pandas as pd

        index = next((data.index for data in (x, y) if hasattr(data, "iloc")), None)
        if self.flat:
            return pd.Series(values, index=index, name=self.label)
        return pd.DataFrame(values, index=index, columns=self.label)


def _default(letter: str, count: int) -> tuple[str, ...]:
    """``u``, or ``u1, u2, …``."""
    return (letter,) if count == 1 else tuple(f"{letter}{k + 1}" for k in range(count))


def _several(data: Any) -> bool:
    """Whether this is a list of arrays or data frames, one for each experiment."""
    return (
        isinstance(data, (list, tuple))
        and len(data) > 0
        and all(getattr(item, "ndim", 0) >= 1 for item in data)
    )


def _experiments(
    estimator: SparseNARX, X: Any, y: Any, groups: Any, *, reset: bool
) -> list[tuple[Float[Array, "N nu"], Any]]:
    """Validated inputs and outputs (none without y) of each experiment, outputs as columns."""
    several, absent = _several(X), isinstance(y, str) and y == NO_Y
    if several and groups is not None:
        raise DataError("X is a list of experiments already; leave groups out.")
    if several and not absent and not (_several(y) and len(y) == len(X)):
        raise DataError(f"X is a list of {len(X)} experiments; y must be a list of as many arrays.")
    xs = X if several else [X]
    ys = y if several and not absent else [y] * len(xs)
    pairs = [
        _valid(estimator, x, part, reset and k == 0)
        for k, (x, part) in enumerate(zip(xs, ys, strict=True))
    ]
    for part in () if reset or absent else ys:
        estimator._outputs.check(part)
    if groups is None:
        return pairs
    ((u, outputs),) = pairs
    edges = _edges(groups, u)
    parts = [None] * (len(edges) + 1) if absent else np.split(outputs, edges)
    return list(zip(np.split(u, edges), parts, strict=True))


def _valid(estimator: SparseNARX, X: Any, y: Any, reset: bool) -> tuple[Float[Array, "N nu"], Any]:
    """One array of inputs and one of outputs, checked as scikit-learn checks them."""
    if isinstance(y, str) and y == NO_Y:
        return validate_data(estimator, X, reset=reset, dtype=np.float64), None
    u, outputs = validate_data(
        estimator,
        X,
        y,
        reset=reset,
        dtype=np.float64,
        ensure_min_samples=2 if reset else 1,
        multi_output=True,
        y_numeric=True,
    )
    return u, np.asarray(outputs, dtype=np.float64).reshape(len(u), -1)


def _edges(groups: Any, u: Float[Array, "N nu"]) -> Array:
    """The rows at which another experiment begins."""
    labels = column_or_1d(groups)
    check_consistent_length(u, labels)
    if (labels != labels).any():
        raise DataError("groups holds missing labels; give every row the label of its experiment.")
    return np.flatnonzero(labels[1:] != labels[:-1]) + 1
