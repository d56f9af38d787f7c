"""Networks with room to spare: models of about one size share what is compiled for them.

Pruning leaves every model with terms and units of its own, and a program for each would take longer
to compile than to run.  Here a small network becomes part of a larger one of a rounded size, whose
other weights are zero; its windows get columns and rows of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float, Int

from occamid.data.windows import Terms, Windows, roomy
from occamid.networks import MLP, Network, Observer, reads_regressors
from occamid.networks.flat import size

Array = np.ndarray
STEP = 5  # terms, lags, units and models come in multiples of this, or larger ones
STATES = 4  # and the states of an observer in multiples of this
MANY_TERMS = 30  # beyond these a unit is dearer in refinement than a program is to compile


@dataclass(frozen=True, eq=False)
class Wide:
    """A larger network, and where the smaller one lies in it.

    Attributes:
        network: the larger one.
        terms: all outputs up to a lag; of the inputs only the number counts.
        columns: where the terms of the smaller one are.
        places: where its flat parameters are.
    """

    network: Network
    terms: Terms
    columns: Int[Array, " nz"]
    places: Int[Array, " P"]

    def spread(self, x: Float[Array, ...], axis: int = -1, rest: float = 0.0) -> Array:
        """Values for each flat parameter along an axis; those of the larger one alone are new."""
        shape = list(x.shape)
        shape[axis] = size(self.network)
        found = np.full(shape, rest, x.dtype)
        np.moveaxis(found, axis, -1)[..., self.places] = np.moveaxis(x, axis, -1)
        return found

    def windows(self, data: Windows, rows: int | None = None) -> Windows:
        """The windows of the smaller network for the larger one, and perhaps for more rows."""
        rows = rows or data.y.shape[1]
        z, y, valid, history = (np.asarray(x) for x in data[:4])
        wide = np.zeros((len(z), rows, len(self.terms)), z.dtype)
        wide[:, : z.shape[1], self.columns] = z
        past = np.zeros((len(z), self.terms.output_lag, y.shape[2]), history.dtype)
        past[:, len(past[0]) - len(history[0]) :] = history
        z, y, valid, past = jax.device_put((wide, _longer(y, rows), _longer(valid, rows), past))
        return Windows(z, y, valid, past, data.residuals)


def widen(network: Network, terms: Terms, step: int = STEP, dear: bool = False) -> Wide:
    """A perceptron with room for terms and units, an observer with room for states and units.

    Others stay as they are.  Numbers of terms are multiples of ``step``, those of units of half of
    it or of five: where running costs little, larger ones share more.  Where it is ``dear`` and
    there are many terms, there is no room for more units.
    """
    if not isinstance(network, MLP):
        large = roomier(network) if isinstance(network, Observer) else network
        columns = np.arange(len(terms))
        return Wide(large, terms, columns, places_in(network, large, columns))
    ny = len(terms.output_names)
    inputs = roomy(len(terms.inputs), step)
    lags = roomy(terms.output_lag, step)
    outputs = tuple((c, lag) for lag in range(lags, 0, -1) for c in range(ny))
    wide = replace(terms, inputs=tuple((0, k) for k in range(inputs)), outputs=outputs)
    at = {term: inputs + k for k, term in enumerate(outputs)}
    columns = np.array([*range(len(terms.inputs)), *(at[t] for t in terms.outputs)], int)
    exact = dear and len(wide) > MANY_TERMS
    units = max(STEP, step // 2)
    hidden = network.hidden if exact else tuple(_units(n, units) for n in network.hidden)
    large = replace(network, n_in=len(wide), hidden=hidden)
    return Wide(large, wide, columns, places_in(network, large, columns))


def roomier(network: Observer) -> Observer:
    """An observer with states and units to spare."""
    states, units = network.hidden
    return replace(network, hidden=(roomy(states, STATES), _units(units)))


def in_room(
    network: Observer, flat: Float[Array, "... P"]
) -> tuple[Observer, Float[Array, "... Q"]]:
    """A roomier observer, and its flat parameters from those of this one."""
    large = roomier(network)
    wide = np.zeros((*flat.shape[:-1], size(large)))
    wide[..., places_in(network, large, np.arange(network.n_in))] = flat
    return large, wide


def again(count: int, step: int = STEP) -> Int[Array, " K"]:
    """Numbers of so many models, some of them twice: a rounded number, but one alone stays one."""
    return np.arange(roomy(count, step) if count > 1 else 1) % count


def places_in(small: Network, large: Network, columns: Int[Array, " nz"]) -> Int[Array, " P"]:
    """Where each flat parameter of a network lies among those of a larger one.

    ``columns`` says which regressors of the larger one it reads; its units are the first ones.
    """
    offsets, total = {}, 0
    for name, spec in large.specs().items():
        offsets[name] = total
        total += int(np.prod(spec.shape))
    found = []
    for name, spec in small.specs().items():
        place = np.arange(spec.shape[0])
        if len(spec.shape) > 1:
            inside = columns if reads_regressors(name) else np.arange(spec.shape[1])
            inside = inside[: spec.shape[1]]  # an observer's matrices read inputs, not last outputs
            place = np.add.outer(place * large.specs()[name].shape[1], inside).ravel()
        found.append(offsets[name] + place)
    return np.concatenate(found)


def _units(count: int, step: int = STEP) -> int:
    """None, and the one of a model that is linear, stay what they are."""
    return count if count < 2 else roomy(count, step)


def _longer(x: Float[Array, "R T n"], rows: int) -> Float[Array, "R rows n"]:
    return np.pad(x, ((0, 0), (0, rows - x.shape[1]), (0, 0)))
