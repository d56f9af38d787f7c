"""Settings of an identification: frozen, validated, one to one with a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from occamid.errors import FileError, SettingsError
from occamid.networks import ACTIVATIONS

Lags = int | Literal["auto"]


class Settings(BaseModel):
    """What to identify and how.  λ and the thresholds live in the units of the scaled data."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=False)

    # The model
    network: Literal["mlp", "lstm", "rnn"] = Field("mlp", description="family of networks")
    hidden: tuple[int, ...] = Field((20,), description="units of each hidden layer")
    activation: str = Field("tanh", description="of an mlp or rnn; an lstm has its own")
    bias: bool = Field(True, description="whether the layers have biases")
    input_lags: Lags = Field("auto", description="largest lag of the inputs, or from the data")
    output_lags: Lags = Field("auto", description="largest lag of the outputs, or from the data")
    input_delay: int = Field(0, ge=0, description="smallest lag of the inputs (nk)")
    scaling: Literal["standardize", "detrend", "none"] = Field(
        "standardize", description="what is done to every channel with estimation statistics"
    )

    # The prior and its update
    structure: Literal["shape", "row", "column", "row+column"] = Field(
        "row+column", description="which weights share a prior (Table C.1)"
    )
    lam: tuple[float, ...] = Field((2e-3,), description="λ; several values are one batch")
    lam_scale: dict[str, float] = Field(
        {}, description='factor on λ by "matrix/group" pattern, such as "layer0.W/column"'
    )
    loss: Literal["rmse", "gaussian"] = Field("rmse", description="data term")
    aggregation: Literal["mean", "sum"] = Field("mean", description="of α over a group")
    curvature: Literal["recursive", "gauss-newton", "exact"] = Field(
        "recursive", description="which Hessian diagonal"
    )
    curvature_count: Literal["once", "per-group"] = Field(
        "per-group", description="how often H/λ enters the posterior width of a weight"
    )
    horizon: int | None = Field(None, description="τ of the recurrent curvature; none: unlimited")

    # The loop
    cycles: int = Field(6, ge=1, description="C, identification cycles")
    epochs: int = Field(500, ge=1, description="E, epochs of Adam in each cycle")
    learning_rate: float = Field(1e-2, gt=0, description="at the start of the cosine")
    prune_psi: float = Field(1e-3, ge=0, description="κ_ψ, prior widths below it are pruned")
    prune_weight: float = Field(1e-3, ge=0, description="κ_W, weights below it are pruned")
    restarts: int = Field(20, ge=1, description="M, random initialisations")
    seed: int = Field(0, ge=0, description="fixes everything that is random")

    # The choice of the best model and the resources
    tolerance: float = Field(
        0.05, ge=0, description="share by which a better evidenced model may miss the best score"
    )
    memory_mb: float = Field(2048.0, gt=0, description="budget; larger batches are chunked")
    precision: Literal["single", "double"] = Field("single", description="of the training")

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if not self.hidden or any(units < 1 for units in self.hidden):
            raise ValueError("hidden: give at least one layer, each with at least one unit")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: {self.activation!r} is unknown; choose one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        if not self.lam or any(not 0 < value < float("inf") for value in self.lam):
            raise ValueError("lam: give one or more positive numbers")
        if len(set(self.lam)) < len(self.lam):
            raise ValueError("lam: values repeat")
        for name in ("input_lags", "output_lags"):
            value = getattr(self, name)
            if value != "auto" and value < 0:
                raise ValueError(f"{name}: {value} is negative")
        if self.input_lags == 0 and self.output_lags == 0:
            raise ValueError("input_lags and output_lags are both 0: a static map has no dynamics")
        if self.input_lags != "auto" and self.input_delay > self.input_lags:
            raise ValueError(
                f"input_delay: {self.input_delay} exceeds input_lags ({self.input_lags}), "
                "so no input would be left"
            )
        if self.horizon is not None and self.horizon < 1:
            raise ValueError("horizon: give a whole number above 0, or leave it out")
        if self.horizon is not None and self.network == "mlp":
            raise ValueError("horizon: an mlp has no recurrence; use network = lstm or rnn")
        return self

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(_readable(error)) from None

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed, validated again."""
        return Settings(**{**self.model_dump(), **changes})

    def to_toml(self) -> str:
        """The settings as a TOML document; an unlimited horizon is left out."""
        values = {k: v for k, v in self.model_dump().items() if v is not None}
        return tomli_w.dumps(values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Settings:
        """Read a TOML file; missing keys take their defaults, unknown ones are refused."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise FileError(f"cannot read the settings file {path}: {reason}.") from None
        try:
            return cls(**tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"{path} is not valid TOML: {error}.") from None
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None


def _readable(error: ValidationError) -> str:
    """One line for people from a validation error: the first problem, named by its setting."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"setting {place} is unknown; known are {', '.join(Settings.model_fields)}."
    if not place:
        return f"setting {message}."
    name = place.split(".")[0]
    return f"setting {name}: {message[0].lower()}{message[1:]} (got {first['input']!r})."
