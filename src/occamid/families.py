"""What the automatic mode tries: a few families of models, from simple to flexible.

Everything is derived from the records (their length, their proposed lags) and from the effort;
nothing is tuned to one record.  Whatever the user fixes in the plan is fixed in every family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from occamid.data.record import Record
from occamid.data.scaling import fit_scaling
from occamid.errors import SettingsError
from occamid.regressors import propose_lags
from occamid.settings import Lags, Positive, Settings, Units, readable

Effort = Literal["quick", "standard", "thorough"]
LONGEST_RESPONSE = 50  # lags of the family without output feedback
LONG_DELAY = 30  # proposed input lags beyond this make nonlinear families too wide
OUTPUT_LAGS = 10


@dataclass(frozen=True)
class Budget:
    """How much is tried: folds of the cross-validation, restarts, members, refinement steps."""

    folds: int
    restarts: int
    members: int
    iterations: int


BUDGETS: dict[str, Budget] = {
    "quick": Budget(folds=2, restarts=8, members=5, iterations=30),
    "standard": Budget(folds=3, restarts=20, members=10, iterations=60),
    "thorough": Budget(folds=5, restarts=60, members=25, iterations=120),
}


class Plan(BaseModel):
    """What the user may fix; ``auto`` and unset values are decided by the data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    effort: Effort = Field("standard", description="how much is tried: quick, standard, thorough")
    network: Literal["auto", "mlp", "lstm", "rnn"] = Field(
        "auto", description="auto tries several families; a named one is taken as it is"
    )
    hidden: tuple[Units, ...] | None = Field(None, description="units of each hidden layer")
    activation: str | None = Field(None, description="of an mlp or rnn")
    input_lags: Lags = Field("auto", description="largest lag of the inputs")
    output_lags: Lags = Field("auto", description="largest lag of the outputs")
    lam: tuple[Positive, ...] | Literal["auto"] = Field("auto", description="λ, one or several")
    restarts: Annotated[int, Field(ge=1)] | None = Field(None, description="initialisations")
    cycles: Annotated[int, Field(ge=1)] | None = Field(None, description="identification cycles")
    epochs: Annotated[int, Field(ge=1)] | None = Field(None, description="epochs in each cycle")
    single: bool = Field(False, description="one model instead of an ensemble")
    seed: int = Field(0, ge=0, lt=2**31, description="fixes everything that is random")

    @field_validator("hidden", "lam", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return (value,)
        return tuple(value) if isinstance(value, list) else value

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(readable(error, tuple(type(self).model_fields))) from None

    @property
    def budget(self) -> Budget:
        """The effort in numbers."""
        return BUDGETS[self.effort]

    def fixed(self) -> dict[str, Any]:
        """Settings that the user fixed, for every family."""
        names = ("hidden", "activation", "input_lags", "output_lags", "lam", "cycles", "epochs")
        found = {name: getattr(self, name) for name in names}
        return {k: v for k, v in found.items() if v is not None and v != "auto"}


@dataclass(frozen=True)
class Family:
    """Settings of a batch, and whether its models are refined in free run."""

    name: str
    about: str
    settings: Settings
    refined: bool = False


def families(plan: Plan, records: Sequence[Record]) -> list[Family]:
    """The families to try on these records, the simplest first."""
    scaling = fit_scaling(records, "standardize")
    wanted = {plan.input_lags, plan.output_lags} - {"auto"}
    inputs, outputs = (
        (0, 0) if len(wanted) == 2 else propose_lags([scaling.apply(r) for r in records])
    )
    base = {"seed": plan.seed, "restarts": plan.restarts or plan.budget.restarts}
    if plan.network in ("lstm", "rnn"):
        own = {"network": plan.network, "input_lags": inputs, "output_lags": outputs}
        settings = Settings(
            **(base | own | {"hidden": (10,), "learning_rate": 5e-3} | plan.fixed())
        )
        return [Family(plan.network, f"{plan.network} on lagged inputs and outputs", settings)]
    rows = sum(map(len, records)) // records[0].u.shape[1]
    found = [
        *_linear(base, inputs, outputs),
        *_response(base, inputs, rows),
        *_curved(base, inputs),
    ]
    fixed = plan.fixed()
    kept = [f for f in found if not _contradicts(f.settings, fixed)]
    return [Family(f.name, f.about, f.settings.replace(**fixed), f.refined) for f in kept or found]


def _contradicts(settings: Settings, fixed: dict[str, Any]) -> bool:
    """Whether a family is pointless with what the user fixed."""
    if "activation" in fixed and fixed["activation"] != settings.activation:
        return True
    if fixed.get("hidden") and settings.activation == "identity" and "activation" not in fixed:
        return True
    return settings.output_lags == 0 and bool(fixed.get("output_lags"))


def _linear(base: dict[str, Any], inputs: int, outputs: int) -> list[Family]:
    """Linear models, as predicted one step ahead and as simulated."""
    settings = Settings(
        **base,
        activation="identity",
        bias=False,  # the records are centred
        lam=(3e-4, 1e-3, 3e-3),
        input_lags=inputs,
        output_lags=outputs,
    )
    settings = settings.replace(restarts=max(2, settings.restarts // 3))
    return [
        Family("linear", "linear in lagged inputs and outputs", settings),
        Family("linear-refined", "the same, refined in free run", settings, refined=True),
    ]


def _response(base: dict[str, Any], inputs: int, rows: int) -> list[Family]:
    """A nonlinear function of past inputs alone: its free run cannot drift."""
    lags = min(LONGEST_RESPONSE, rows // 10)
    if inputs > LONG_DELAY or lags < 5:
        return []
    settings = Settings(
        **base, activation="relu", input_lags=lags, output_lags=0, epochs=300, **_GENTLE
    )
    return [Family("response", "nonlinear in past inputs alone", settings)]


def _curved(base: dict[str, Any], inputs: int) -> list[Family]:
    """A linear path and a few smooth units beside it, as predicted and as simulated."""
    if inputs > LONG_DELAY:
        return []
    settings = Settings(
        **base,
        activation="tanh",
        hidden=(10,),
        skip=True,
        input_lags=max(OUTPUT_LAGS, inputs),
        output_lags=OUTPUT_LAGS,
        lam=(1e-3, 3e-3),
        epochs=300,
        cycles=4,
        **_GENTLE,
    )
    return [
        Family("curved", "linear path and smooth units on lagged inputs and outputs", settings),
        Family("curved-refined", "the same, refined in free run", settings, refined=True),
    ]


# Refinement prunes by evidence in free run; before it only what is certainly useless goes.
_GENTLE = {"prune_psi": 1e-4, "prune_weight": 1e-4}
