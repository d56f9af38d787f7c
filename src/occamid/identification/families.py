"""What is tried: a few families of models, from simple to flexible.

Everything is derived from the records (their length, their proposed lags) and from the effort;
nothing is tuned to one record.  Whatever the user fixes is fixed in every family.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occamid.data.lags import propose_lags
from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.errors import DataError, SettingsError
from occamid.identification.options import Options
from occamid.training.fading import Fading
from occamid.training.linear import rests_at_zero
from occamid.training.settings import Settings
from occamid.training.state_space import Search

LONGEST_RESPONSE = 50  # lags of the family without output feedback
WIDEST = 100, 40  # regressors of that family and of those with units on lagged outputs: where
# there are many channels each has fewer lags, for the cost grows with the square of the weights
LONG_DELAY = 30  # proposed input lags beyond this are not taken over by nonlinear families
OUTPUT_LAGS = 10
SUBSPACE_ORDERS = 1, 2, 3, 4, 6, 8, 10, 14
UNITS, FEWEST_UNITS = 10, 3  # beside a linear path; fewer than the first only where
COST = 1e9  # rows × outputs × weights², what a step of refinement costs, would be more
# Proposed lags are rounded up to these, so that folds share what is compiled.
ROUND = np.unique(np.concatenate([np.arange(1, 11), 5 * np.arange(2, 11), 25 * np.arange(2, 11)]))


@dataclass(frozen=True)
class Family:
    """A way to a model: settings of a batch, a search, or least squares; refined or not.

    ``refined`` fits the free run instead of the one-step prediction.  Families of one ``kind``
    are equally simple; the kinds are listed from simple to flexible.
    """

    name: str
    kind: str
    about: str
    settings: Settings | None = None
    refined: bool = False
    search: Search | None = None  # of a state-space model
    fading: Fading | None = None  # lags of a linear model with many
    zero: bool = False  # whether it rests at zero: no offset, and data are not centred

    @property
    def training(self) -> Hashable:
        """What families that share a training have in common: their settings but for λ."""
        if self.settings is None:
            return self.name
        return tuple(self.settings.model_dump(exclude={"lam"}).items())

    @property
    def feeds_back(self) -> bool:
        """Whether the noise of a one-step fit acts through past outputs."""
        has_outputs = self.settings is None or self.settings.output_lags != 0
        return has_outputs and not self.refined


def families(options: Options, records: Sequence[Record], given: int | None = None) -> list[Family]:
    """The families to try on these records, the simplest first.

    ``given`` is how many rows the user gave, where the records are a part of them.
    """
    found = every_family(options, records, given)
    rests = any(family.zero for family in found) and rests_at_zero(records)
    return [family for family in found if rests or not family.zero]


def every_family(
    options: Options, records: Sequence[Record], given: int | None = None
) -> list[Family]:
    """Those that may be tried on records of which these are perhaps a part."""
    if options.skip and options.network != "mlp":
        raise SettingsError("skip is a setting of a named mlp; set network to mlp.")
    if options.refined and options.network in ("auto", "state-space"):
        raise SettingsError("refined is a setting of a named mlp, lstm or rnn; name one of them.")
    _check_lags(options, records)
    scaling = fit_scaling(records, "standardize")
    inputs, outputs = 1, 1  # where the user fixed both, those take their place
    if "auto" in (options.input_lags, options.output_lags):
        proposed = propose_lags([scaling.apply(r) for r in records])
        inputs, outputs = (int(ROUND[np.searchsorted(ROUND, lag)]) for lag in proposed)
    if options.network == "state-space":
        return _state_space(options)[-1:]
    base = {"seed": options.seed, "restarts": options.restarts or options.budget.restarts}
    if options.network != "auto":
        return [_named(options, base, max(inputs, options.input_delay or 0), outputs)]
    rows = sum(len(r) - r.lead for r in records)
    all_rows = sum(map(len, records)) if given is None else given
    channels = records[0].u.shape[1], records[0].y.shape[1]
    found = [
        *_linear(base, inputs, outputs),
        *_response(base, rows // channels[0], channels[0]),
        *_curved(base, inputs, rows, channels),
        *(_recurrent(base) if all_rows >= options.budget.recurrent else []),
    ]
    fixed = options.fixed()
    kept = [f for f in found if not _contradicts(f, fixed)] or found
    free = () if fixed else (*CLASSICAL, *FADING, _subspace(options))
    free = (*free, *(_at_rest(family) for family in free if family.name != "output-error"))
    hidden = [] if fixed or all_rows < options.budget.hidden else _state_space(options)
    return [*free, *hidden[:1], *(_with(f, options.budget.pace, fixed) for f in kept), *hidden[1:]]


def _named(options: Options, base: dict[str, Any], inputs: int, outputs: int) -> Family:
    """The one network the user named, on lags that were proposed or fixed."""
    own: dict[str, Any] = {
        "network": options.network,
        "input_lags": inputs,
        "output_lags": outputs,
        "skip": options.skip,
        "hidden": (10,),
        "learning_rate": 1e-2 if options.network == "mlp" else 5e-3,
    }
    own |= _GENTLE if options.refined else {}
    settings = Settings(**(base | own | options.fixed()))
    about = f"{options.network} on lagged inputs and outputs"
    about += ", refined in free run" if options.refined else ""
    return Family(options.network, options.network, about, settings, refined=options.refined)


def _at_rest(family: Family) -> Family:
    """The same without an offset: with one, a slow disturbance is taken for it."""
    about = f"{family.about}, at rest at zero"
    search = family.search and replace(family.search, offset=False)
    return replace(family, name=f"{family.name}-zero", about=about, zero=True, search=search)


def _subspace(options: Options) -> Family:
    """Linear, by projections: what nothing but its order is chosen for."""
    orders = SUBSPACE_ORDERS if options.order is None else (options.order,)
    plan = Search(orders, projected=True, seed=options.seed)
    about = "linear, hidden states by projection"
    return Family("subspace", "linear", about, refined=True, search=plan)


def _state_space(options: Options) -> list[Family]:
    """Hidden states instead of lags: linear, and with smooth units beside the linear path.

    Where records are long this is far ahead; of fewer than a hundred rows there is nothing to tell
    good restarts from bad by.
    """
    plan = replace(options.budget.search, seed=options.seed)
    if options.order is not None:
        plan = replace(plan, orders=(options.order,))
    if options.restarts is not None:
        plan = replace(plan, restarts=options.restarts)
    units = plan.units if options.units is None else options.units
    plan = replace(plan, fixed=options.units is not None)
    about = "hidden states, fitted in free run"
    every = tuple(range(1, max(plan.orders) + 1)) if options.order is None else plan.orders
    linear = Family(
        "state-space-linear", "linear", f"linear, {about}", refined=True,
        search=replace(plan, units=0, orders=every),
    )  # fmt: skip
    # Beside others the members are those that the referee heard; who names it wants its order.
    curved = Family(
        "state-space", "state-space", f"linear path and smooth units on {about}", refined=True,
        search=replace(plan, units=units, told=options.network == "state-space"),
    )  # fmt: skip
    return [linear, curved] if units else [linear]


def _with(family: Family, pace: float, fixed: dict[str, Any]) -> Family:
    """The family at another pace, with what the user fixed."""
    assert family.settings is not None
    changes: dict[str, Any] = {"epochs": round(pace * family.settings.epochs)}
    lags = family.settings.input_lags
    if isinstance(lags, int):  # a delay that the user knows may be longer than what is offered
        changes["input_lags"] = max(lags, fixed.get("input_delay", 0))
    return replace(family, settings=family.settings.replace(**changes | fixed))


CLASSICAL = (
    Family("arx", "linear", "linear, by least squares one step ahead, order by BIC"),
    Family("output-error", "linear", "linear, by least squares in free run", refined=True),
)
FADING = (
    Family(
        "fading-arx", "linear", "linear in many lags, whose coefficients fade by evidence",
        fading=Fading(60, 20, rows=20),
    ),
    Family(
        "fading-response", "linear", "linear in many past inputs alone, fading by evidence",
        fading=Fading(120, 0, rows=10),
    ),
)  # fmt: skip


def _check_lags(options: Options, records: Sequence[Record]) -> None:
    """Refuse lags beyond the shortest record before anything of their size is made."""
    most = max(
        (v for v in (options.input_lags, options.output_lags) if isinstance(v, int)), default=0
    )
    for record in records:
        if len(record) <= most:
            raise DataError(
                f'record "{record.name}" has {len(record)} rows, but the lags need more than '
                f"{most}; use a longer record or fewer lags."
            )


def _contradicts(family: Family, fixed: dict[str, Any]) -> bool:
    """Whether a family is pointless with what the user fixed."""
    settings = family.settings
    assert settings is not None
    if "activation" in fixed and fixed["activation"] != settings.activation:
        return True
    if fixed.get("hidden") and settings.activation == "identity" and "activation" not in fixed:
        return True
    return settings.output_lags == 0 and bool(fixed.get("output_lags"))


def _linear(base: dict[str, Any], inputs: int, outputs: int) -> list[Family]:
    """A linear model as a product of two matrices, which shares strength; with an offset or not.

    Restarts differ little, so there are few.  A short record needs the offset, and in the free run
    of a slow process the errors of one add up: what is better, held-back data say.
    """
    settings = Settings(**base, activation="identity", lam=(3e-4, 1e-3, 3e-3)).replace(
        input_lags=inputs, output_lags=outputs, restarts=max(2, base["restarts"] // 3)
    )
    about = "sparse and linear in lagged inputs and outputs"
    return [
        Family("linear", "linear", about, settings),
        Family("linear-centred", "linear", f"{about}, no offset", settings.replace(bias=False)),
    ]


def _response(base: dict[str, Any], rows: int, inputs: int) -> list[Family]:
    """A nonlinear function of past inputs alone: its free run cannot drift."""
    lags = min(LONGEST_RESPONSE, rows // 10, WIDEST[0] // inputs)
    if lags < 5:
        return []
    settings = Settings(
        **base,
        activation="relu",
        hidden=(10,),
        input_lags=lags,
        output_lags=0,
        lam=(2e-3, 5e-3),
        epochs=250,
        cycles=8,
        **_GENTLE,
    )
    return [Family("response", "response", "nonlinear in past inputs alone", settings)]


def _curved(
    base: dict[str, Any], inputs: int, rows: int, channels: tuple[int, int]
) -> list[Family]:
    """A linear path and a few smooth units beside it, as predicted and as simulated.

    Input lags far beyond the output lags come from a delay or slow dynamics of a linear fit and
    would make the units too wide; they are not taken over.
    """
    nu, ny = channels
    most = max(2, min(OUTPUT_LAGS, WIDEST[1] // (nu + ny)))
    lags = inputs if OUTPUT_LAGS == most <= inputs <= LONG_DELAY else most
    regressors = nu * (lags + 1) + ny * most
    weights = (COST / (rows * ny)) ** 0.5 - ny * regressors  # for units
    units = int(np.clip(weights // (regressors + ny + 1), FEWEST_UNITS, UNITS))
    settings = Settings(
        **base,
        activation="tanh",
        hidden=(units,),
        skip=True,
        input_lags=lags,
        output_lags=most,
        lam=(1e-3, 3e-3),
        epochs=300,
        cycles=4,
        **_GENTLE,
    )
    about = "linear path and smooth units on lagged inputs and outputs"
    loose = settings.replace(lam=(1e-3,))  # refinement prunes by itself
    return [
        Family("curved", "curved", about, settings),
        Family("curved-refined", "curved", f"{about}, refined in free run", loose, refined=True),
    ]


def _recurrent(base: dict[str, Any]) -> list[Family]:
    """States of the network's own beside the last inputs and output, trained, then refined."""
    settings = Settings(
        **base,
        hidden=(6,),
        input_lags=1,
        output_lags=1,
        lam=(1e-3,),
        learning_rate=1e-2,
        epochs=150,
        cycles=2,
        **_GENTLE,
    )
    return [
        Family(
            kind, "recurrent", f"{kind} on the last inputs and output, refined in free run",
            settings.replace(network=kind), refined=True,
        )
        for kind in ("rnn", "lstm")
    ]  # fmt: skip


# Refinement prunes by evidence in free run; before it only what is certainly useless goes.
_GENTLE = {"prune_psi": 1e-4, "prune_weight": 1e-4}
