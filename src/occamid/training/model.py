"""A model: a network with its terms, its scaling and one set of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from occamid.assessment.run import Run
from occamid.data.record import Record, as_record, as_records
from occamid.data.scaling import Scaling
from occamid.data.windows import Shape, Terms, Windows, windows
from occamid.errors import DataError, SettingsError, check_choice
from occamid.networks import Network, Observer, is_matrix, of_filter, simulate
from occamid.networks.flat import flatten, unflatten
from occamid.training.curvature import CURVATURES
from occamid.training.first_outputs import begun
from occamid.training.programs import kept
from occamid.training.stepping import Stepper

Array = np.ndarray
FIRST_OUTPUTS = 5  # for each state that they must tell


@dataclass(frozen=True, eq=False)
class Model:
    """A small dynamic model in the user's units.

    Everything here is computed in double precision.  ``start`` is the first sample the model
    predicted in its training; records are predicted from there, so a compacted model and its
    original give the same outputs sample for sample.  A weight of exactly zero is pruned.
    ``prior_widths`` are the variances ψ of the matrices' weights, for the posterior.
    """

    network: Network
    terms: Terms
    scaling: Scaling
    weights: Mapping[str, Float[Array, ...]]
    start: int
    sampling_time: float = 1.0
    prior_widths: Mapping[str, Float[Array, "out in"]] | None = None

    @property
    def regressors(self) -> tuple[str, ...]:
        """Names of the regressors that still reach the output, such as ``u[t-3]``."""
        live = self.network.live(self._masks()).regressors
        return tuple(n for n, kept in zip(self.terms.names, live, strict=True) if kept)

    @property
    def neurons(self) -> tuple[int, ...]:
        """How many neurons of each hidden layer still carry signal."""
        return tuple(int(np.sum(kept)) for kept in self.network.live(self._masks()).neurons)

    @property
    def max_lag(self) -> int:
        """How many samples must be known before the first prediction."""
        return self.terms.max_lag

    @property
    def sparsity(self) -> float:
        """Share of the matrices' weights that are pruned, biases not counted: the paper's."""
        masks = self._masks()
        total = sum(mask.size for mask in masks.values())
        return 1.0 - sum(int(mask.sum()) for mask in masks.values()) / total if total else 1.0

    @property
    def parameters(self) -> int:
        """Weights and biases that are not zero once the network is compact; no filter's numbers."""
        weights = self.compact().weights.items()
        return sum(int(np.count_nonzero(v)) for name, v in weights if not of_filter(name))

    @property
    def window(self) -> int:
        """How many first outputs a run starts from unless told otherwise: enough for a state."""
        states = self.network.hidden[0] if isinstance(self.network, Observer) else 0
        return self.start + max(0, FIRST_OUTPUTS * states - 1)

    def window_in(self, record: Record) -> int:
        """The same for a record that may be shorter: half of it at most."""
        return max(self.start, min(self.window, len(record) // 2))

    def _masks(self) -> dict[str, Array]:
        return {n: np.asarray(v) != 0 for n, v in self.weights.items() if is_matrix(n)}

    def with_weights(self, weights: Mapping[str, Any]) -> Model:
        """The same model with some or all arrays replaced, by name."""
        changed = dict(self.weights)
        for name, value in weights.items():
            if name not in changed:
                raise SettingsError(f"no weight is called {name}; there are {', '.join(changed)}.")
            array = np.array(value, dtype=np.float64)
            if array.shape != changed[name].shape:
                raise SettingsError(
                    f"{name} has shape {changed[name].shape}, the new values have {array.shape}."
                )
            changed[name] = array
        return replace(self, weights=changed)

    def later(self, delays: Sequence[int]) -> Model:
        """The model of inputs that come so many samples sooner than those it was trained on."""
        if not any(delays):
            return self
        return replace(self, terms=self.terms.later(delays), start=self.start + max(delays))

    def compact(self) -> Model:
        """The smallest network with the same outputs.

        Terms that reach no output, neurons that are constant or read by nobody, and what
        only feeds those, are removed; constants fold into biases.  The largest lag shrinks to
        what survived.
        """
        live = self.network.live(self._masks())
        with jax.enable_x64(True):
            network, weights = self.network.compact(dict(self.weights), live)
        widths = self.prior_widths
        return replace(
            self,
            network=network,
            terms=self.terms.select(live.regressors),
            weights=weights,
            prior_widths=None if widths is None else self.network.select(widths, live),
        )

    def simulate(self, record: Record, n_init: int | None = None) -> Run:
        """Free run after ``n_init`` known outputs, by default those of the initial window.

        Only ``record.u`` and the first ``n_init`` rows of ``record.y`` are looked at.
        """
        record = as_record(record)
        self.check([record])
        n_init = self.window_in(record) if n_init is None else n_init
        return Run(self.free_run(record.u, record.y[:n_init]), n_init)

    def predict(self, record: Record, horizon: int = 1) -> Run:
        """``ŷ(t | t-k)`` for every sample: one step ahead, or ``horizon`` steps.

        The first ``start`` rows are the measured outputs.  Samples nearer to the start than the
        horizon are predicted as far ahead as they can be.
        """
        record = as_record(record)
        with jax.enable_x64(True):
            data = self.origins(record, horizon)
            rows = _predict(self.network, self.terms, self._params(), data, horizon)[0]
            return Run(self._in_user_units(record.y[: self.start], rows), self.start)

    def origins(self, record: Record, horizon: int) -> Windows:
        """What a prediction ``horizon`` steps ahead starts from."""
        if horizon < 1:
            raise SettingsError(f"the horizon is {horizon}; it must be 1 or more.")
        return self.windows([record], self.start)

    def free_run(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> Float[Array, "N ny"]:
        """The outputs to ``u`` after the known first outputs ``y_init``, as an array.

        ``y_init`` holds at least ``max_lag`` samples and is returned as the first rows.  If there
        are more, the state of a recurrent network warms up on them.
        """
        with jax.enable_x64(True):
            data, known, forced = self.prepare(u, y_init)
            flat = begun(self.network, flatten(self.network, self.weights)[None], data, forced)
            params = jax.device_put(unflatten(self.network, flat[0]))
            rows = _free_run(self.network, self.terms, params, data, forced)[0]
            return self._in_user_units(known, rows[forced:])

    def prepare(
        self, u: Float[Array, "N nu"] | Float[Array, " N"], y_init: Float[Array, ...]
    ) -> tuple[Windows, Float[Array, "n ny"], int]:
        """What a free run starts from: its windows, the known outputs, and how many are forced."""
        known, inputs = columns(y_init), np.asarray(u, dtype=np.float64)
        ny, n_init = len(self.terms.output_names), len(known)
        if known.shape[1] != ny:
            raise DataError(f"y_init has {known.shape[1]} columns; the model has {ny} outputs.")
        if n_init < self.max_lag:
            raise DataError(
                f"y_init has {n_init} samples; the model needs the first {self.max_lag} outputs."
            )
        if n_init >= len(inputs):
            raise DataError(
                f"y_init has {n_init} samples and u has {len(inputs)}; nothing is left to simulate."
            )
        filled = np.concatenate([known, np.zeros((len(inputs) - n_init, ny))])
        names = self.terms
        record = Record(
            u=inputs,
            y=filled,
            name="simulate",
            input_names=names.input_names,
            output_names=names.output_names,
            sampling_time=self.sampling_time,
        )
        start = min(max(self.start, self.max_lag), n_init)
        return self.windows([record], start), known, n_init - start

    def energy(self, records: Record | Iterable[Record]) -> float:
        """``½ Σ r²`` of the one-step residuals from ``start`` on, in the user's units."""
        with jax.enable_x64(True):
            data = self.windows(as_records(records), self.start)
            weight = jax.device_put(self.scaling.y_scale**2)
            return float(_energy(self.network, self._params(), data, weight))

    def curvature(
        self,
        records: Record | Iterable[Record],
        method: Literal["recursive", "gauss-newton", "exact"] = "recursive",
    ) -> dict[str, Float[Array, ...]]:
        """Diagonal of the Hessian of :meth:`energy`, by parameter name.

        ``recursive`` is the paper's backward sweep (entries may be negative where it is), the
        others cost one pass for every parameter.
        """
        check_choice("curvature method", method, CURVATURES)
        with jax.enable_x64(True):
            data = self.windows(as_records(records), self.start)
            weight = jax.device_put(self.scaling.y_scale**2)
            found = _curvature(method, self.network, self._params(), data, weight)
            return {name: np.asarray(found[name]) for name in self.weights}

    def step_function(self) -> Stepper:
        """The recursion as a pure function of JAX, for loops of one's own."""
        params = {n: np.asarray(v, dtype=np.float64)[None] for n, v in self.weights.items()}
        return Stepper(self.network, self.terms, params, np.ones(1), self.scaling, self.start)

    def _params(self) -> dict[str, jax.Array]:
        return {name: jax.device_put(np.float64(value)) for name, value in self.weights.items()}

    def windows(self, records: Iterable[Record], start: int, shape: Shape | None = None) -> Windows:
        """The scaled regressors and targets of records from a sample on."""
        found = tuple(records)
        self.check(found)
        return windows([self.scaling.apply(r) for r in found], self.terms, start, shape)

    def check(self, records: Iterable[Record]) -> None:
        """Refuse records with other channels or another sampling time than the model's."""
        mine = (self.terms.input_names, self.terms.output_names)
        for record in records:
            if mine != (record.input_names, record.output_names):
                raise DataError(
                    f'record "{record.name}" has the channels '
                    f"{', '.join(record.input_names + record.output_names)}, but the model was "
                    f"identified on {', '.join(mine[0] + mine[1])}."
                )
            if not np.isclose(record.sampling_time, self.sampling_time, rtol=1e-6):
                raise DataError(
                    f'record "{record.name}" is sampled every {record.sampling_time:g} s, but the '
                    f"model was identified at {self.sampling_time:g} s; resample the record."
                )

    def _in_user_units(self, known: Float[Array, "n ny"], rows: jax.Array) -> Float[Array, "N ny"]:
        return np.concatenate([known, self.scaling.undo_y(np.asarray(rows))])


def columns(data: Float[Array, ...]) -> Float[Array, "N n"]:
    """One-dimensional data as one column."""
    found = np.atleast_1d(np.asarray(data, dtype=np.float64))
    return found[:, None] if found.ndim == 1 else found


def k_steps(
    network: Network, terms: Terms, params: Any, data: Windows, horizon: int
) -> Float[jax.Array, "R T ny"]:
    """``horizon``-step predictions of one model on every experiment."""

    def one(experiment: Windows) -> jax.Array:
        if horizon == 1:
            return simulate.one_step(network, params, experiment.z)
        return simulate.k_step(network, terms, params, experiment, horizon)[0]

    return jax.vmap(one)(data)


_predict = kept((0, 1, 4))(k_steps)


@kept((0, 1))
def _free_run(
    network: Network, terms: Terms, params: Any, data: Windows, forced: int
) -> Float[jax.Array, "R T ny"]:
    return jax.vmap(lambda e: simulate.free_run(network, terms, params, e, forced))(data)


@kept((0,))
def _energy(network: Network, params: Any, data: Windows, weight: jax.Array) -> jax.Array:
    residual = (network.apply(params, data.z) - data.y) * data.valid
    return 0.5 * jnp.sum(weight * residual**2)


@kept((0, 1))
def _curvature(
    method: str, network: Network, params: Any, data: Windows, weight: jax.Array
) -> dict[str, jax.Array]:
    return CURVATURES[method](network, params, data, weight)
