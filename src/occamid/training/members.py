"""Models of one family in one common network, so that all of them run as one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from occamid.data.record import Record
from occamid.data.windows import Terms, Windows, roomy
from occamid.networks import MLP, Network, Observer, Recurrent
from occamid.networks.flat import flatten, size, unflatten
from occamid.training.batch import free_runs
from occamid.training.first_outputs import begun
from occamid.training.model import Model, k_steps
from occamid.training.programs import kept
from occamid.training.wide import again, places_in, widen

Array = np.ndarray
# Free runs cost little: what they are compiled for comes in multiples of so many
FREE, ROWS = 20, 4096  # terms (half as many units and models), rows that may be run through


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
            wide, rows = widen(self.like.network, self.like.terms, FREE), data.y.shape[1]
            weights = begun(self.like.network, self.weights, data, forced)
            own = wide.spread(weights[again(len(self), FREE // 2)])
            params = jax.device_put(unflatten(wide.network, own))
            data = wide.windows(data, roomy(rows, ROWS, 1))
            runs = np.asarray(free_runs(wide.network, wide.terms, params, data, forced, rows))
            return self._in_user_units(known, runs[: len(self), forced:rows])

    def predict(self, record: Record, horizon: int) -> Float[Array, "K N ny"]:
        """``horizon``-step predictions, as :meth:`Model.predict`."""
        with jax.enable_x64(True):
            data = self.like.origins(record, horizon)
            runs = _predictions(*self.program(), data, horizon)
            return self._in_user_units(record.y[: self.like.start], np.asarray(runs))

    def program(self) -> tuple[Network, Terms, Any]:
        """What their common program is compiled for, and the weights it takes."""
        params = jax.device_put(unflatten(self.like.network, self.weights))
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
    places = tuple(
        places_in(m.network, network, np.array([terms.names.index(n) for n in m.terms.names], int))
        for m in models
    )
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


@kept((0, 1, 4))
def _predictions(
    network: Network, terms: Terms, params: Any, data: Windows, horizon: int
) -> Float[jax.Array, "K T ny"]:
    return jax.vmap(lambda p: k_steps(network, terms, p, data, horizon)[0])(params)
