"""The steps of a preparation, as settings: one to one with a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from occamid.errors import SettingsError

Range = tuple[float, float]


class Steps(BaseModel):
    """What is done to records, one to one with a TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    fill: int = Field(0, ge=0, description="rows missing between pieces that are interpolated")
    keep_rows: tuple[Range, ...] = Field((), description="first and last row to keep")
    drop_rows: tuple[Range, ...] = Field((), description="the same of ranges to leave out")
    keep_times: tuple[Range, ...] = Field((), description="ranges to keep, in seconds of the log")
    drop_times: tuple[Range, ...] = Field((), description="ranges to leave out, in seconds")
    mask_outliers: bool = Field(False, description="spikes are replaced by interpolation")
    resample: float | None = Field(None, gt=0, description="interpolate to steps of these seconds")
    decimate: int = Field(1, ge=1, description="keep every so many-th sample, filtered before")
    low_pass: float | None = Field(None, gt=0, description="Hz above which nothing is left")
    high_pass: float | None = Field(None, gt=0, description="Hz below which nothing is left")
    remove: Literal["nothing", "means", "trends"] = Field("nothing", description="what is removed")
    merge: bool = Field(False, description="experiments are joined end to end")
    offsets: Mapping[str, float] = Field(
        default_factory=dict, description="means removed from each channel, as found on the log"
    )

    @field_validator("keep_rows", "drop_rows", "keep_times", "drop_times", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """One range, or several."""
        listed = tuple(value) if isinstance(value, list | tuple) else value
        pair = isinstance(listed, tuple) and len(listed) == 2
        return (listed,) if pair and not isinstance(listed[0], list | tuple) else listed

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            what = first["msg"][:1].lower() + first["msg"][1:]
            if first["type"] == "extra_forbidden":
                what = f"unknown; there are {', '.join(type(self).model_fields)}"
            raise SettingsError(f"step {first['loc'][0]}: {what}.") from None

    def given(self) -> dict[str, Any]:
        """Only what is set."""
        default = type(self)().model_dump(mode="json")
        return {k: v for k, v in self.model_dump(mode="json").items() if v != default[k]}
