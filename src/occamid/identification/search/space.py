"""What a search may vary: λ, lags, delay, widths, activations, orders.

A trial is a set of :class:`Options` in which everything is fixed, so that ``identify`` with these
options does again what the trial did.  Whatever the user fixes is not varied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from occamid.errors import DataError, SettingsError
from occamid.identification.folds import Fold
from occamid.identification.options import Options
from occamid.networks import ACTIVATIONS
from occamid.training.model import FIRST_OUTPUTS

Range = tuple[int, int]
LADDER = (1.0, 3.0)  # times the λ of a trial: values that are trained side by side
CYCLES, EPOCHS = 4, 300  # as of the smooth families of the automatic mode, at full pace
LAGGED = ("hidden", "activation", "input_lags", "output_lags", "input_delay", "lam")


class Suggests(Protocol):
    """What proposes values: a trial of optuna, or a test."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """A whole number of a range."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number of a range."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of several values."""


@dataclass(frozen=True)
class Space:
    """Ranges, both ends included.

    Args:
        networks: families of networks; the recurrent ones ("lstm", "rnn") are slow.
        activations: of a perceptron or plain recurrent network.
        input_lags: from the first input that is seen, after the delay, to the last.
        output_lags: 0 is a model of past inputs alone.
        input_delay: samples before an input can act.
        layers: hidden layers, all of one width.
        width: units of each layer.
        lam: λ; every trial trains it and three times it.
        order: states of a state-space model.
        units: of a state-space model; 0 is a linear one.
    """

    networks: tuple[str, ...] = ("mlp", "state-space")
    activations: tuple[str, ...] = ("tanh", "relu", "silu", "identity")
    input_lags: Range = (1, 30)
    output_lags: Range = (0, 10)
    input_delay: Range = (0, 5)
    layers: Range = (1, 2)
    width: Range = (2, 20)
    lam: tuple[float, float] = (1e-4, 3e-2)
    order: Range = (1, 8)
    units: Range = (0, 15)

    def __post_init__(self) -> None:
        known = {"networks": ("mlp", "lstm", "rnn", "state-space"), "activations": ACTIVATIONS}
        least = {"output_lags": 0, "input_delay": 0, "units": 0, "lam": 1e-12}
        for name, values in asdict(self).items():
            if name in known:
                if not values or not set(values) <= set(known[name]):
                    raise SettingsError(f"{name} of a search are of {', '.join(known[name])}.")
            elif len(values) != 2 or not least.get(name, 1) <= values[0] <= values[1]:
                raise SettingsError(
                    f"{name} of a search is a range, from {least.get(name, 1)} at least; got "
                    f"{values}."
                )

    def within(self, options: Options, held: Sequence[Fold]) -> Space:
        """What is left to vary where some is fixed, with lags that held-back parts leave room for.

        The longest part of every fold must be twice as long as what a model may know of it, and
        every piece that is learned from longer.
        """
        room = min(max(len(part.record) for part in fold.parts) for fold in held) // 2
        room = min(room, *(len(record) - 1 for fold in held for record in fold.records))
        top = replace(self, networks=self._networks(options))
        delay = min(self.input_delay[1], room // 4)
        span = min(self.input_lags[1], room - delay)
        order = min(self.order[1], room // FIRST_OUTPUTS)
        if span < 1 or order < 1:
            raise DataError("the parts that can be held back are too short for a search.")
        return replace(
            top,
            input_lags=_capped(self.input_lags, span),
            output_lags=_capped(self.output_lags, room),
            input_delay=_capped(self.input_delay, delay),
            order=_capped(self.order, order),
        )

    def _networks(self, options: Options) -> tuple[str, ...]:
        """Those in which everything that the user fixed has a meaning; all where there is none."""
        if options.network != "auto":
            return (options.network,)
        lags = any(name in options.fixed() for name in LAGGED)
        states = options.order is not None or options.units is not None
        found = [n for n in self.networks if not (lags if n == "state-space" else states)]
        return tuple(found) or self.networks

    def widest(self, options: Options, dead: int = 0) -> int:
        """The most outputs that any model of this space may know at the start of a run.

        A state-space model sees no effect of an input before ``dead`` samples are over.
        """
        fixed = options.fixed()
        delay = fixed.get("input_delay", self.input_delay[1])
        inputs = fixed.get("input_lags", delay + self.input_lags[1])
        lags = max(inputs, fixed.get("output_lags", self.output_lags[1]))
        states = dead + FIRST_OUTPUTS * (options.order or self.order[1])
        return max(states if n == "state-space" else lags for n in self.networks)


def _capped(values: Range, most: int) -> Range:
    return min(values[0], most), min(values[1], most)


def propose(trial: Suggests, space: Space, options: Options) -> Options:
    """The options of a trial: what the user fixed, and a value for everything else."""
    network: str = options.network
    if network == "auto":
        network = space.networks[0]
        if len(space.networks) > 1:
            network = trial.suggest_categorical("network", space.networks)
    told = options.given() | {"network": network}
    if network == "state-space":
        lagged = (*LAGGED, "skip", "refined", "cycles", "epochs")
        told = {k: v for k, v in told.items() if k not in lagged}
        return Options(**told | _states(trial, space, options))
    told = {k: v for k, v in told.items() if k not in ("order", "units")}
    told = {k: v for k, v in told.items() if v is not None and v != "auto"}
    return Options(**_lagged(trial, space, options, network) | told)


def _states(trial: Suggests, space: Space, options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if options.order is None:
        found["order"] = trial.suggest_int("order", *space.order)
    if options.units is None:
        found["units"] = trial.suggest_int("units", *space.units)
    return found


def _lagged(trial: Suggests, space: Space, options: Options, network: str) -> dict[str, Any]:
    """Values of everything that a network on lagged signals has; fixed ones are not asked for."""
    fixed = options.fixed()
    found: dict[str, Any] = {"cycles": CYCLES, "epochs": round(options.budget.pace * EPOCHS)}
    if "input_delay" not in fixed:
        most = min(space.input_delay[1], fixed.get("input_lags", space.input_delay[1]))
        low = min(space.input_delay[0], most)
        found["input_delay"] = trial.suggest_int("input_delay", low, most)
    if "input_lags" not in fixed:
        span = trial.suggest_int("input_lags", *space.input_lags, log=True)
        found["input_lags"] = fixed.get("input_delay", found.get("input_delay", 0)) + span
    if "output_lags" not in fixed:
        least = max(space.output_lags[0], int(fixed.get("input_lags") == 0))
        found["output_lags"] = trial.suggest_int("output_lags", least, space.output_lags[1])
    if "hidden" not in fixed:
        layers = trial.suggest_int("layers", *space.layers)
        found["hidden"] = (trial.suggest_int("width", *space.width, log=True),) * layers
    if "activation" not in fixed and network != "lstm":
        found["activation"] = trial.suggest_categorical("activation", space.activations)
    if "lam" not in fixed:
        lam = trial.suggest_float("lam", *space.lam, log=True)
        found["lam"] = tuple(float(f"{step * lam:.3g}") for step in LADDER)
    if network == "mlp":
        told = options.given()
        for name in ("skip", "refined"):
            if name not in told:
                found[name] = trial.suggest_categorical(name, (False, True))
    return found
