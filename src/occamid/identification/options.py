"""What an identification can be told: how much effort, and what is fixed beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from occamid.errors import SettingsError
from occamid.training.settings import Lags, Positive, Units, readable
from occamid.training.state_space import Search

Effort = Literal["quick", "standard", "thorough"]


SEARCH = Search((1, 2, 3, 4, 6, 8), units=10, restarts=8, members=5)


@dataclass(frozen=True)
class Budget:
    """How much is tried: folds of the cross-validation, restarts, members, refinement steps.

    ``pace`` scales the epochs of every cycle, ``rows`` is the most that models on lagged signals
    are trained on.  From ``hidden`` rows on state-space models are looked for, as ``search`` says;
    they are compared on up to ``stream`` rows.  From ``recurrent`` rows on an RNN and an LSTM are
    trained, too.  Models that are only ``compared`` get half of that.
    """

    folds: int
    restarts: int
    members: int
    iterations: int
    pace: float = 1.0
    rows: int = 10_000
    hidden: int = 100
    recurrent: float = math.inf
    stream: int = 25_000
    search: Search = SEARCH
    compared: bool = False

    def for_folds(self) -> Budget:
        """Half of it, and a third of the refinement: many models are tried, and only compared."""
        return replace(
            self,
            restarts=max(2, self.restarts // 2),
            members=max(3, self.members // 2),
            iterations=max(1, self.iterations // 3),
            compared=True,
        )


BUDGETS: dict[str, Budget] = {
    "quick": Budget(
        folds=3,
        restarts=8,
        members=5,
        iterations=30,
        pace=0.5,
        rows=2_000,
        hidden=1_500,
        stream=2_000,
        search=Search((1, 2, 3, 4, 6), 6, 2, 3, screening=20, iterations=40, rows=2_000),
    ),
    "standard": Budget(folds=5, restarts=20, members=10, iterations=60, rows=6_000),
    "thorough": Budget(
        folds=8,
        restarts=60,
        members=25,
        iterations=120,
        recurrent=1_000,
        search=Search((1, 2, 3, 4, 5, 6, 8, 10), 15, 8, 8, 40, 150, rows=5_000),
    ),
}


class Options(BaseModel):
    """What ``identify`` can be told; ``auto`` and unset values are decided by the data."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    effort: Effort = Field("standard", description="how much is tried: quick, standard, thorough")
    network: Literal["auto", "mlp", "lstm", "rnn", "state-space"] = Field(
        "auto", description="auto tries several families; a named one is taken as it is"
    )
    order: Annotated[int, Field(ge=1, le=50)] | None = Field(
        None, description="states of a state-space model"
    )
    units: Annotated[int, Field(ge=0, le=200)] | None = Field(
        None, description="units of a state-space model; 0 is a linear one"
    )
    hidden: tuple[Units, ...] | None = Field(None, description="units of each hidden layer")
    activation: str | None = Field(None, description="of an mlp or rnn")
    input_lags: Lags = Field("auto", description="largest lag of the inputs")
    output_lags: Lags = Field("auto", description="largest lag of the outputs")
    input_delay: Annotated[int, Field(ge=0, le=10_000)] | None = Field(
        None, description="smallest lag of the inputs"
    )
    skip: bool = Field(False, description="a linear path beside the units of a named mlp")
    refined: bool = Field(
        False, description="a named mlp, lstm or rnn is fitted again, to its free run"
    )
    lam: tuple[Positive, ...] | Literal["auto"] = Field("auto", description="λ, one or several")
    restarts: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="initialisations"
    )
    cycles: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        None, description="identification cycles"
    )
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="epochs in each cycle"
    )
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

    def given(self) -> dict[str, Any]:
        """What was told, without what is left at its default."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    def fixed(self) -> dict[str, Any]:
        """Settings that the user fixed, for every family."""
        names = (
            *("hidden", "activation", "input_lags", "output_lags", "input_delay"),
            *("lam", "cycles", "epochs"),
        )
        found = {name: getattr(self, name) for name in names}
        return {k: v for k, v in found.items() if v is not None and v != "auto"}
