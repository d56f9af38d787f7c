"""The result of an identification: every (λ, restart, cycle), and the best of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.data.scaling import Scaling
from occamid.data.windows import Terms, Windows, windows
from occamid.errors import DataError
from occamid.networks import Network, is_matrix, simulate
from occamid.training.model import Model
from occamid.training.programs import kept
from occamid.training.settings import Settings

Array = np.ndarray
STATUS = ("ok", "empty", "diverged", "non-finite")
DIVERGED = 1e3  # a free run beyond this many standard deviations of the output has diverged


class Index(NamedTuple):
    """Where a model stands in the batch: λ and restart from 0, cycle from 0."""

    lam: int
    restart: int
    cycle: int


class Row(NamedTuple):
    """One model in numbers; errors per output in the user's units, on the estimation data."""

    lam: float
    restart: int
    cycle: int
    status: str
    one_step_rmse: tuple[float, ...]
    free_run_rmse: tuple[float, ...]
    sparsity: float
    n_regressors: int
    n_neurons: int
    log_evidence: float
    noise_std: tuple[float, ...]
    effective_parameters: float


@dataclass(frozen=True, eq=False)
class Batch:
    """All models of one identification; arrays lead with (λ, restart, cycle).

    Attributes:
        settings: as run, automatic lags resolved.
        params: weights after each cycle, pruned ones exactly zero.
        count: number of residuals the models were fitted to.
        psi: prior widths of each matrix, one array for each family of groups.
        table: columns of :class:`Row` as arrays.
        seconds: time spent compiling and running.
        provenance: version, machine, and what else a reader needs to repeat the run.
    """

    settings: Settings
    network: Network
    terms: Terms
    scaling: Scaling
    sampling_time: float
    count: int
    params: Mapping[str, Float[Array, "L M C ..."]]
    psi: Mapping[str, tuple[Float[Array, "L M C ..."], ...]]
    table: Mapping[str, Array]
    seconds: Mapping[str, float]
    provenance: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(number of λ values, restarts, cycles)."""
        a, b, c = self.table["status"].shape
        return a, b, c

    @property
    def start(self) -> int:
        """The first sample of a record that is predicted."""
        return self.terms.max_lag

    def row(self, index: Index) -> Row:
        """One model in numbers."""
        at = tuple(index)
        t = self.table
        floats = lambda name: tuple(float(v) for v in t[name][at])  # noqa: E731
        return Row(
            lam=self.settings.lam[index.lam],
            restart=index.restart,
            cycle=index.cycle + 1,
            status=STATUS[int(t["status"][at])],
            one_step_rmse=floats("one_step_rmse"),
            free_run_rmse=floats("free_run_rmse"),
            sparsity=float(t["sparsity"][at]),
            n_regressors=int(t["n_regressors"][at]),
            n_neurons=int(t["n_neurons"][at]),
            log_evidence=float(t["log_evidence"][at]),
            noise_std=floats("noise_std"),
            effective_parameters=float(t["effective_parameters"][at]),
        )

    def rows(self) -> Iterator[Row]:
        """Every model, cycles fastest."""
        return (self.row(Index(*at)) for at in np.ndindex(*self.shape))

    def model(self, index: Index) -> Model:
        """The model after one cycle of one restart."""
        return Model(
            network=self.network,
            terms=self.terms,
            scaling=self.scaling,
            weights={
                n: np.asarray(v[tuple(index)], dtype=np.float64) for n, v in self.params.items()
            },
            start=self.start,
            sampling_time=self.sampling_time,
            prior_widths={
                n: 1.0 / sum(1.0 / w[tuple(index)].astype(np.float64) for w in widths)
                + np.zeros(self.params[n].shape[3:])
                for n, widths in self.psi.items()
            },
        )

    @property
    def score(self) -> Float[Array, "L M C"]:
        """Expected free-run error over all outputs in scaled units; inf if not ok.

        The free-run error on the estimation data times Akaike's ``sqrt((T + γ)/(T − γ))`` for
        the γ effective parameters that were fitted to its T samples (T − γ no less than 2 % of T,
        so that even hopelessly large models have an order).
        """
        errors = self.table["free_run_rmse"] / self.scaling.y_scale
        count, used = self.count, self.table["effective_parameters"]
        with np.errstate(all="ignore"):
            penalty = np.sqrt((count + used) / np.maximum(count - used, 0.02 * count))
            usable = self.table["status"] == 0
            return np.where(usable, np.sqrt(np.mean(errors**2, axis=-1)) * penalty, np.inf)

    @property
    def best_index(self) -> Index:
        """Occam's choice: of the models with nearly the best score, the one with most evidence.

        Nearly: within ``settings.tolerance``.  Nothing but the estimation data is looked at.
        """
        return self.ranking(1)[0]

    def ranking(self, count: int) -> list[Index]:
        """The best models, at most one for each λ and restart, in the order Occam takes them."""
        score = self.score
        if not np.isfinite(score).any():
            counts = [int(np.sum(self.table["status"] == k)) for k in range(len(STATUS))]
            said = ", ".join(f"{n} {s}" for n, s in zip(counts, STATUS, strict=True) if n)
            remedy = (
                "a smaller lam or smaller pruning thresholds"
                if np.argmax(counts) == STATUS.index("empty")
                else "a larger lam, a smaller learning_rate, more restarts or fewer units"
            )
            raise DataError(f"no model is usable ({said}); try {remedy}.")
        near = score <= (1 + self.settings.tolerance) * score.min()
        by_score, by_evidence = _rank(score), _rank(-self.table["log_evidence"])
        place = np.where(near, by_evidence, score.size + by_score)
        cycles = np.argmin(place, axis=-1)  # the best cycle of each λ and restart
        order = sorted(np.ndindex(*cycles.shape), key=lambda at: place[(*at, cycles[at])])
        found = [Index(lam, restart, int(cycles[lam, restart])) for lam, restart in order]
        return [index for index in found if np.isfinite(score[index])][:count]

    @property
    def best(self) -> Model:
        """The model at :attr:`best_index`."""
        return self.model(self.best_index)

    def later(self, delays: Sequence[int]) -> Batch:
        """The models of inputs that come so many samples sooner than those they were trained on."""
        return replace(self, terms=self.terms.later(delays))

    def only(self, lam: Sequence[float]) -> Batch:
        """The models of some of the λ values."""
        at = [self.settings.lam.index(value) for value in lam]
        return replace(
            self,
            settings=self.settings.replace(lam=tuple(lam)),
            params={name: values[at] for name, values in self.params.items()},
            psi={name: tuple(w[at] for w in widths) for name, widths in self.psi.items()},
            table={name: values[at] for name, values in self.table.items()},
        )

    def free_runs(self, record: Record, n_init: int | None = None) -> Float[Array, "L M C N ny"]:
        """Free runs of every model on one record, the first ``n_init`` outputs measured."""
        n_init = self.start if n_init is None else n_init
        if not self.start <= n_init < len(record):
            raise DataError(
                f'record "{record.name}": n_init is {n_init}; it must be at least {self.start} '
                f"(the largest lag) and less than the {len(record)} rows."
            )
        self.model(Index(0, 0, 0)).check([record])
        data = windows([self.scaling.apply(record)], self.terms, self.start)
        flat = {n: v.reshape(-1, *v.shape[3:]) for n, v in self.params.items()}
        per_model = 8 * (data.y.size + 2 * sum(v[0].size for v in flat.values()))
        chunk = max(1, int(self.settings.memory_mb * 2**20 / per_model))
        count = int(np.prod(self.shape))
        runs = [
            free_runs(
                self.network,
                self.terms,
                jax.device_put({n: v[k : k + chunk] for n, v in flat.items()}),
                data,
                n_init - self.start,
                data.y.shape[1],
            )
            for k in range(0, count, chunk)
        ]
        scaled = np.concatenate([np.asarray(run, dtype=np.float64) for run in runs])
        rows = self.scaling.undo_y(scaled)[:, n_init - self.start :]
        known = np.broadcast_to(record.y[:n_init], (count, n_init, record.y.shape[1]))
        return np.concatenate([known, rows], axis=1).reshape(*self.shape, *record.y.shape)


def _rank(values: Float[Array, "L M C"]) -> Array:
    """The place of each entry when all are sorted upwards."""
    flat = np.empty(values.size, int)
    flat[np.argsort(values, axis=None)] = np.arange(values.size)
    return flat.reshape(values.shape)


def summarise(network: Network, params: Mapping[str, Array]) -> dict[str, Array]:
    """Sparsity, live regressors and neurons of a whole batch of weights."""
    masks = {n: v != 0 for n, v in params.items() if is_matrix(n)}
    kept = sum(m.sum(axis=(-2, -1)) for m in masks.values())
    total = sum(int(np.prod(m.shape[-2:])) for m in masks.values())
    live = network.live(masks)
    return {
        "weights": np.asarray(kept),
        "sparsity": 1.0 - np.asarray(kept) / total,
        "n_regressors": live.regressors.sum(axis=-1),
        "n_neurons": sum((alive.sum(axis=-1) for alive in live.neurons), start=np.zeros((), int)),
    }


@kept((0, 1))
def free_runs(
    network: Network, terms: Terms, params: Any, data: Windows, forced: int, count: int
) -> Float[jax.Array, "B T ny"]:
    """Free runs of a batch of weights on the first rows, so many, of the one experiment."""
    experiment = jax.tree.map(lambda x: x[0], data)
    return jax.vmap(lambda p: simulate.free_run(network, terms, p, experiment, forced, count))(
        params
    )
