"""A job: which data, how much effort.  One to one with the TOML file of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from occamid.assessment.check.delay import LARGEST as LONGEST_DELAY
from occamid.bands.modelfile import read_about
from occamid.data import twins
from occamid.data.findings import Finding
from occamid.data.prepare import apply_steps, fitted, prepare, split_in_time, without_splinters
from occamid.data.record import Record
from occamid.data.steps import Steps
from occamid.errors import DataError, SettingsError
from occamid.identification.dead_time import dead_times, moved
from occamid.identification.families import every_family
from occamid.identification.folds import whole
from occamid.identification.options import Options
from occamid.identification.thinning import stride, thin
from occamid.reading.assets import Asset
from occamid.reading.files import Reading, examine, same_step
from occamid.reading.steps import Gaps
from occamid.training.settings import read_toml, readable

Column = str | int
LONGEST_LAG = 200  # that is ever proposed, behind a dead time
SHORTEST_FILTERED = 30  # steps that a record must have for the filter of longer ones


class Data(NamedTuple):
    """What a job reads."""

    estimation: tuple[Record, ...]
    test: tuple[Record, ...]
    findings: tuple[Finding, ...]
    job: Job  # with what was found on the data, to be repeated on others
    logged: tuple[tuple[Record, ...], tuple[Record, ...]]  # both before longer steps were taken


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
    gaps: Gaps = Field("error", description="at gaps: error, split, or fill the short ones")
    variable: str | None = Field(None, description="variable of a MATLAB or HDF5 file")
    by: Column | None = Field(None, description="column that names the asset of each row")
    asset: str | None = Field(None, description="the asset of that column; other rows are left out")
    test: tuple[str, ...] = Field((), description="files the model must not see")
    split: float | None = Field(None, gt=0, lt=1, description="share to estimate on, rest to test")
    prepare: Steps | None = Field(None, description="what is done to the data before")
    every_row: bool = Field(False, description="no longer steps, however slow the process is")
    options: Options = Field(default_factory=Options, description="effort and what is fixed")

    @field_validator("prepare", mode="before")
    @classmethod
    def _steps(cls, value: Any) -> Any:
        return Steps(**value) if isinstance(value, dict) else value

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
        return tomli_w.dumps(self.given())

    def given(self) -> dict[str, Any]:
        """The job as plain data; what is not set is left out."""
        return _set(self.model_dump(mode="json"))

    def read(self) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        """Estimation and test records."""
        found = self.look()
        return found.estimation, found.test

    def look(self) -> Data:
        """Estimation and test records, what was noticed in reading, and the job as it was done."""
        if self.example is not None:
            twin = self._twin()
            both = ((twin.estimation,), (twin.test,))
            return Data(*both, (), self, both)
        if not self.files:
            raise SettingsError(
                "name one or more files, or a simulated process with `example`; there are "
                f"{', '.join(twins.TWINS)}."
            )
        if self.test and self.split is not None:
            raise SettingsError("`test` and `split` exclude each other; give one of them.")
        raw, findings = self._examine(self.files)
        others: tuple[Record, ...] = ()
        if self.test:
            others, more = self._examine(self.test, constant=True)
            others, findings = tuple(same_step([raw[0], *others])[1:]), findings + more
        estimation, test, job = self._prepared(raw, others)
        logged = (estimation, test)
        if (steps := self._stride(estimation, (*raw, *others))) > 1:
            longer = self.model_copy(update={"prepare": Steps(decimate=steps)})
            estimation, test, job = longer._prepared(raw, others)
            findings += (_longer_steps(steps, estimation[0].sampling_time),)
        estimation, lost = without_splinters(estimation)
        test = without_splinters(test)[0] if test else ()
        findings += (_left_out(lost),) if lost else ()
        check_test(self.options, estimation, test)
        return Data(estimation, test, findings, job, logged)

    def _stride(self, estimation: Sequence[Record], raw: Sequence[Record]) -> int:
        """Every how many-th row is taken; one where the user has said anything about steps."""
        lags = {"input_lags", "output_lags", "input_delay"} & set(self.options.fixed())
        if self.every_row or lags or self.prepare is not None or self.resample:
            return 1
        found = stride(estimation, self.options.budget.rows)
        return found if min(map(len, raw)) > SHORTEST_FILTERED * found else 1

    def _prepared(
        self, raw: tuple[Record, ...], others: tuple[Record, ...]
    ) -> tuple[tuple[Record, ...], tuple[Record, ...], Job]:
        """The data after the steps; means are those of the estimation data, and kept in the job."""
        steps = self.prepare or Steps()
        bare = steps.model_copy(update={"remove": "nothing", "offsets": {}})
        estimation = prepare(raw, bare)
        test = tuple(apply_steps(bare, record) for record in others)
        if self.split is not None:
            estimation, test = split_in_time(estimation, self.split)
        if steps.remove == "nothing":
            return estimation, test, self
        only = fitted(Steps(remove=steps.remove), estimation)
        estimation = prepare(estimation, only)
        test = tuple(apply_steps(only, record) for record in test)
        done = steps.model_copy(update={"offsets": only.offsets})
        return estimation, test, self.model_copy(update={"prepare": done})

    def _twin(self) -> twins.Twin:
        if self.files:
            raise SettingsError("give files or `example`, not both.")
        if self.test or self.split is not None:
            raise SettingsError("`example` brings its own test data; leave `test` and `split` out.")
        assert self.example is not None
        return twins.make(self.example, self.options.seed)

    def _asset(self) -> Asset | None:
        if self.by is None or self.asset is None:
            return None
        return Asset(self.by, self.asset)

    def _examine(self, files: Sequence[str], constant: bool = False) -> Reading:
        """Files read as this job says."""
        return examine(
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
            asset=self._asset(),
        )


def _longer_steps(steps: int, seconds: float) -> Finding:
    return Finding(
        "longer steps", "note", "",
        f"the outputs move slowly: of every {steps} rows one is taken, after a filter, which makes "
        f"steps of {seconds:g} s",
        "all of a long log in longer steps says more than pieces of it",
        "with `every_row` pieces are trained on at the rate of the log",
    )  # fmt: skip


def _left_out(rows: int) -> Finding:
    return Finding(
        "short", "note", "", f"{rows} rows in very short pieces between gaps are left out",
        "lags cannot be longer than the shortest piece",
    )  # fmt: skip


def check_test(options: Options, estimation: Sequence[Record], test: Sequence[Record]) -> None:
    """Refuse test records too short to be judged, before anything is trained."""
    fixed = [v for v in (options.input_lags, options.output_lags) if isinstance(v, int)]
    if all(len(record) > max([LONGEST_DELAY + LONGEST_LAG, *fixed]) + 2 for record in test):
        return
    data = thin(tuple(estimation), options.budget.rows)
    dead = dead_times(tuple(estimation), options)
    lags = [
        lag
        for family in every_family(options, moved(whole(data), dead).records)
        if family.settings is not None
        for lag in (family.settings.input_lags, family.settings.output_lags)
        if isinstance(lag, int)
    ]
    fewest = max(dead) + max(lags, default=0) + 2
    for record in test:
        if len(record) < fewest:
            raise DataError(
                f'test record "{record.name}" has {len(record)} rows, but the models tried need '
                f"{fewest} or more; test on more data, or fix fewer lags with "
                "`input_lags` and `output_lags`."
            )


def job_of(run: Path) -> Job:
    """What identify was told when it made a run, as far as the model file knows."""
    told = read_about(run).get("job")
    try:
        return Job(**told) if isinstance(told, dict) else Job()
    except SettingsError:
        return Job()


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
