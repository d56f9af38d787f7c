"""Settings of an identification: frozen, validated, one to one with a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from occamid.errors import FileError, SettingsError
from occamid.networks import ACTIVATIONS

Lags = int | Literal["auto"]
Units = Annotated[int, Field(ge=1, le=10_000)]
Positive = Annotated[float, Field(gt=0)]

# What to give instead, by setting or by kind of error.
REMEDIES = {
    "hidden": "give at least one layer, each of 1 to 10000 units",
    "lam": "give one or more positive numbers",
    "input_lags": 'give a whole number or "auto"',
    "output_lags": 'give a whole number or "auto"',
    "reach": "give a whole number above 0, or leave it out",
    "int_type": "give a whole number",
    "int_parsing": "give a whole number",
    "float_type": "give a number",
    "float_parsing": "give a number",
    "string_type": "give text",
    "tuple_type": "give a list",
    "finite_number": "give a finite number",
    "bool_type": "give true or false",
}


class Settings(BaseModel):
    """What to identify and how.  λ and the thresholds live in the units of the scaled data."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    # The model
    network: Literal["mlp", "lstm", "rnn"] = Field("mlp", description="family of networks")
    hidden: tuple[Units, ...] = Field((20,), min_length=1, description="units of each hidden layer")
    activation: str = Field("tanh", description="of an mlp or rnn; an lstm has its own")
    bias: bool = Field(True, description="whether the layers have biases")
    skip: bool = Field(False, description="a direct linear path beside an mlp's hidden layers")
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
    lam: tuple[Positive, ...] = Field(
        (2e-3,), min_length=1, description="λ; several values are one batch"
    )
    loss: Literal["rmse", "gaussian"] = Field("rmse", description="data term")
    aggregation: Literal["mean", "sum"] = Field("mean", description="of α over a group")
    curvature: Literal["recursive", "gauss-newton", "exact"] = Field(
        "recursive", description="which Hessian diagonal"
    )
    curvature_count: Literal["once", "per-group"] = Field(
        "per-group", description="how often H/λ enters the posterior width of a weight"
    )
    reach: int | None = Field(
        None, ge=1, description="τ of the recurrent curvature; none: unlimited"
    )

    # The loop
    cycles: int = Field(6, ge=1, description="C, identification cycles")
    epochs: int = Field(500, ge=1, description="E, epochs of Adam in each cycle")
    learning_rate: float = Field(1e-2, gt=0, description="at the start of the cosine")
    prune_psi: float = Field(1e-3, ge=0, description="κ_ψ, prior widths below it are pruned")
    prune_weight: float = Field(1e-3, ge=0, description="κ_W, weights below it are pruned")
    restarts: int = Field(20, ge=1, description="M, random initialisations")
    seed: int = Field(0, ge=0, lt=2**31, description="fixes everything that is random")

    # The choice of the best model and the resources
    tolerance: float = Field(
        0.1, ge=0, description="share by which a better evidenced model may miss the best score"
    )
    memory_mb: float = Field(2048.0, gt=0, description="budget; larger batches are chunked")
    precision: Literal["single", "double"] = Field("single", description="of the training")

    @field_validator("hidden", "lam", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return value if isinstance(value, tuple) else (value,)

    @field_validator("*", mode="before")  # runs before the one above
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return _python(value)

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation: {self.activation!r} is unknown; choose one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        if len(set(self.lam)) < len(self.lam):
            raise ValueError(f"lam: values repeat (got {list(self.lam)})")
        for name in ("input_lags", "output_lags"):
            value = getattr(self, name)
            if value != "auto" and value < 0:
                raise ValueError(f"{name}: {value} is negative; give 0 or more")
        if self.network == "mlp" and self.input_lags == 0 and self.output_lags == 0:
            raise ValueError(
                "input_lags and output_lags are both 0: a static map has no dynamics; give lags"
            )
        if self.input_lags != "auto" and self.input_delay > self.input_lags:
            raise ValueError(
                f"input_delay: {self.input_delay} exceeds input_lags ({self.input_lags}), "
                "so no input would be left"
            )
        if self.skip and self.network != "mlp":
            raise ValueError(f"skip: only an mlp has a direct path; network is {self.network}")
        if self.reach is not None and self.network == "mlp":
            raise ValueError("reach: an mlp has no recurrence; use network = lstm or rnn")
        return self

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(readable(error, tuple(Settings.model_fields))) from None

    def replace(self, /, **changes: Any) -> Settings:
        """A copy with some settings changed, validated again."""
        return Settings(**{**self.model_dump(), **changes})

    def to_toml(self) -> str:
        """The settings as a TOML document; an unlimited reach is left out."""
        values = {k: v for k, v in self.model_dump().items() if v is not None}
        return tomli_w.dumps(values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Settings:
        """Read a TOML file; missing keys take their defaults, unknown ones are refused."""
        content = read_toml(path)
        try:
            return cls(**content)
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise FileError(f"cannot read the settings file {path}: {reason}.") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None


def _python(value: Any) -> Any:
    """NumPy's numbers as Python's, and lists and arrays as tuples: strict types take no others."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    return tuple(_python(v) for v in value) if isinstance(value, (list, tuple)) else value


def readable(error: ValidationError, known: tuple[str, ...]) -> str:
    """One line for people from a validation error: the first problem, named by its setting."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return f"setting {message}."
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"setting {name} is unknown; known are {', '.join(known)}."
    message = f"{message[0].lower()}{message[1:]}"
    remedy = REMEDIES.get(name) or REMEDIES.get(first["type"], message)
    return f"setting {name}: {remedy} (got {first['input']!r})."
