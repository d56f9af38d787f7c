"""Models of one family in one common network, so that all of them run as one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.data.windows import Terms, Windows
from occamid.networks import MLP, Network, Observer, Recurrent, reads_regressors
from occamid.networks.flat import flatten, size, unflatten
from occamid.training.batch import free_runs
from occamid.training.model import Model, k_steps

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Members:
    """Several models side by side.

    Attributes:
        like: network, terms, scaling and start of all of them.
        weights: flat, a row for each model.
        places: where each model's own flat parameters lie in its row.
    """

    like: Model
    weights: Float[Array, "K P"]
    places: tuple[Array, ...]

    def __len__(self) -> int:
        return len(self.weights)

    def model(self, k: int) -> Model:
        """One of them, in the common network."""
        return replace(self.like, weights=unflatten(self.like.network, self.weights[k]))

    def free_run(
        self, u: Float[Array, "N nu"], y_init: Float[Array, "n ny"]
    ) -> Float[Array, "K N ny"]:
        """Free runs after the known first outputs, as :meth:`Model.free_run`."""
        with jax.enable_x64(True):
            data, known, forced = self.like.prepare(u, y_init)
            runs = free_runs(*self.program(), data, forced)
            return self._in_user_units(known, np.asarray(runs)[:, forced:])

    def predict(self, record: Record, horizon: int) -> Float[Array, "K N ny"]:
        """``horizon``-step predictions, as :meth:`Model.predict`."""
        with jax.enable_x64(True):
            data = self.like.origins(record, horizon)
            runs = _predictions(*self.program(), data, horizon)
            return self._in_user_units(record.y[: self.like.start], np.asarray(runs))

    def program(self) -> tuple[Network, Terms, Any]:
        """What their common program is compiled for, and the weights it takes."""
        params = jax.tree.map(jax.numpy.asarray, unflatten(self.like.network, self.weights))
        return self.like.network, self.like.terms, params

    def _in_user_units(
        self, known: Float[Array, "n ny"], rows: Float[Array, "K T ny"]
    ) -> Float[Array, "K N ny"]:
        front = np.broadcast_to(known, (len(self), *known.shape))
        return np.concatenate([front, self.like.scaling.undo_y(rows)], axis=1)


def members_of(models: Sequence[Model]) -> Members:
    """The models in the smallest network and regressors that all of them fit into."""
    first = models[0]
    sides = [
        sorted({t for m in models for t in getattr(m.terms, side)}, key=lambda t: (t[0], -t[1]))
        for side in ("inputs", "outputs")
    ]
    terms = replace(first.terms, inputs=tuple(sides[0]), outputs=tuple(sides[1]))
    hidden = tuple(max(units) for units in zip(*(m.network.hidden for m in models), strict=True))
    assert isinstance(first.network, (MLP, Observer, Recurrent))
    bias = any(m.network.bias for m in models)  # type: ignore[attr-defined]
    network = replace(first.network, n_in=len(terms), hidden=hidden, bias=bias)
    weights = np.zeros((len(models), size(network)))
    places = tuple(_places(model, network, terms) for model in models)
    for row, place, model in zip(weights, places, models, strict=True):
        row[place] = flatten(model.network, model.weights)
    like = replace(
        first,
        network=network,
        terms=terms,
        weights=unflatten(network, weights[0]),
        prior_widths=None,
    )
    return Members(like, weights, places)


def _places(model: Model, network: Network, terms: Terms) -> Array:
    """Where each flat parameter of ``model`` lies in the flat parameters of ``network``."""
    columns = [terms.names.index(name) for name in model.terms.names]
    large = {
        name: np.arange(int(np.prod(spec.shape))).reshape(spec.shape)
        for name, spec in network.specs().items()
    }
    offsets, total = {}, 0
    for name, grid in large.items():
        offsets[name] = total
        total += grid.size
    found = []
    for name, spec in model.network.specs().items():
        rows = np.arange(spec.shape[0])
        if len(spec.shape) == 1:
            found.append(offsets[name] + rows)
            continue
        inside = np.array(columns, int) if reads_regressors(name) else np.arange(spec.shape[1])
        inside = inside[: spec.shape[1]]  # an observer's matrices read inputs, not last outputs
        found.append(offsets[name] + large[name][np.ix_(rows, inside)].ravel())
    return np.concatenate(found)


@partial(jax.jit, static_argnums=(0, 1, 4))
def _predictions(
    network: Network, terms: Terms, params: Any, data: Windows, horizon: int
) -> Float[jax.Array, "K T ny"]:
    return jax.vmap(lambda p: k_steps(network, terms, p, data, horizon)[0])(params)
