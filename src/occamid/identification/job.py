"""A job: which data, how much effort.  One to one with the TOML file of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from occamid.data import twins
from occamid.data.record import Record
from occamid.errors import DataError, SettingsError
from occamid.identification.families import families
from occamid.identification.identify import thin
from occamid.identification.options import Options
from occamid.reading.files import read, same_step
from occamid.training.settings import read_toml, readable

Column = str | int
LONGEST_LAG = 200  # that is ever proposed


class Job(BaseModel):
    """Everything ``occamid identify`` can be told; options of the command line override it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    example: str | None = Field(None, description="a simulated process instead of files")
    files: tuple[str, ...] = Field((), description="estimation data")
    inputs: tuple[Column, ...] = Field((), description="input columns, by name or position")
    outputs: tuple[Column, ...] = Field((), description="output columns")
    time: Column | None = Field(None, description="column of seconds or timestamps")
    sampling_time: float | None = Field(None, gt=0, description="seconds between samples")
    experiment: Column | None = Field(None, description="column that tells experiments apart")
    resample: float | bool | None = Field(None, description="interpolate to even steps")
    gaps: Literal["error", "split"] = Field("error", description="what to do about gaps")
    variable: str | None = Field(None, description="variable of a MATLAB or HDF5 file")
    test: tuple[str, ...] = Field((), description="files the model must not see")
    split: float | None = Field(None, gt=0, lt=1, description="share to estimate on, rest to test")
    options: Options = Field(default_factory=Options, description="effort and what is fixed")

    @field_validator("files", "inputs", "outputs", "test", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(readable(error, tuple(type(self).model_fields))) from None

    def to_toml(self) -> str:
        """The job as a TOML document; what is not set is left out."""
        return tomli_w.dumps(_set(self.model_dump(mode="json")))

    def read(self) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        """Estimation and test records."""
        if self.example is not None:
            if self.files:
                raise SettingsError("give files or `example`, not both.")
            if self.test or self.split is not None:
                raise SettingsError(
                    "`example` brings its own test data; leave `test` and `split` out."
                )
            twin = twins.make(self.example, self.options.seed)
            return (twin.estimation,), (twin.test,)
        if not self.files:
            raise SettingsError(
                "name one or more files, or a simulated process with `example`; there are "
                f"{', '.join(twins.TWINS)}."
            )
        if self.test and self.split is not None:
            raise SettingsError("`test` and `split` exclude each other; give one of them.")
        found = self.records(self.files)
        if self.split is not None:
            pairs = [record.split(self.split) for record in found]
            estimation, test = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
        else:
            estimation = found
            test = self.records(self.test, constant=True) if self.test else ()
            test = tuple(same_step([*found, *test])[len(found) :])
        check_test(self.options, estimation, test)
        return estimation, test

    def records(self, files: Sequence[str], constant: bool = False) -> tuple[Record, ...]:
        """Files read as this job says."""
        return read(
            files,
            inputs=self.inputs,
            outputs=self.outputs,
            time=self.time,
            sampling_time=self.sampling_time,
            experiment=self.experiment,
            resample=self.resample,
            gaps=self.gaps,
            variable=self.variable,
            constant=constant,
        )


def check_test(options: Options, estimation: Sequence[Record], test: Sequence[Record]) -> None:
    """Refuse test records too short to be judged, before anything is trained."""
    fixed = [v for v in (options.input_lags, options.output_lags) if isinstance(v, int)]
    if all(len(record) > max([LONGEST_LAG, *fixed]) + 2 for record in test):
        return
    lags = [
        lag
        for family in families(options, thin(tuple(estimation), options.budget.rows))
        if family.settings is not None
        for lag in (family.settings.input_lags, family.settings.output_lags)
        if isinstance(lag, int)
    ]
    for record in test:
        if len(record) < max(lags) + 2:
            raise DataError(
                f'test record "{record.name}" has {len(record)} rows, but the models tried need '
                f"{max(lags) + 2} or more; test on more data, or fix fewer lags with "
                "`input_lags` and `output_lags`."
            )


def job_from(config: Path | None, options: dict[str, Any], fixed: dict[str, Any]) -> Job:
    """The job of a file, if any, with the options that were given in their place."""
    content = read_toml(config) if config else {}
    told = content.pop("options", {})
    if not isinstance(told, dict):
        raise SettingsError(
            f"{config}: options must be a table; write [options] and its settings below."
        )
    if any(options.get(k) for k in ("files", "example")):  # new data: the old is forgotten
        content = {k: v for k, v in content.items() if k not in ("files", "example", "test")}
    if any(options.get(k) for k in ("test", "split", "example")):  # another way to judge
        content = {k: v for k, v in content.items() if k not in ("test", "split")}
    try:
        return Job(**(content | _set(options)), options=Options(**(told | _set(fixed))))
    except SettingsError as error:
        raise SettingsError(f"{config}: {error}" if config else str(error)) from None


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """Only what is set."""
    found = {k: _set(v) if isinstance(v, dict) else v for k, v in values.items()}
    return {k: v for k, v in found.items() if v is not None and v != () and v != []}
