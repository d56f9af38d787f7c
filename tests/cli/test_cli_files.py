"""Files and options the command line cannot use: code 2, one line with the remedy, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from occamid.bands.modelfile import FORMAT
from occamid.cli import use
from occamid.data import twins
from occamid.files import manifest
from tests.support.commands import Runner, call_main
from tests.support.small import small_record

TINY = """\
[options]
effort = "quick"
network = "mlp"
hidden = [3]
lam = [1e-3]
restarts = 2
epochs = 20
cycles = 2
input_lags = 4
output_lags = 2
"""
RECORD = small_record(60)
GOOD = pd.DataFrame(
    {
        "time": np.round(0.1 * np.arange(60), 1),
        "pump": np.round(RECORD.u[:, 0], 4),
        "level": np.round(RECORD.y[:, 0], 4),
    }
)
COLUMNS = "The columns are time (1), pump (2), level (3)."
COLUMNS_AGAIN = "The columns are time (1), pumps (2), level (3)."
NOT_A_FILE = "is not a file; name a run folder of identify, or a model file."
UNREADABLE = "name a run folder of identify, or copy the file again."
MODEL = Path("run") / "model.safetensors"
pytestmark = pytest.mark.usefixtures("two_folds")
Make = Callable[[], object]
Case = tuple[Make | None, tuple[str, ...], str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, settings and a finished run; copied for each test."""
    base = tmp_path_factory.mktemp("world")
    GOOD.to_csv(base / "good.csv", index=False)
    (base / "tiny.toml").write_text(TINY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        code = call_main(patch, *NAMED, "good.csv", "--config", "tiny.toml", "--out", "run")
    assert code == 0
    for path in (*base.glob("run/*.html"), *base.glob("run/*.png")):
        path.unlink()  # large, and not read
    return base


@pytest.fixture
def run(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Runner:
    here = tmp_path / "here"
    shutil.copytree(world, here)
    monkeypatch.chdir(here)
    return Runner(monkeypatch, capsys, here)


# --- what is wrong ------------------------------------------------------------------------------


def log(frame: pd.DataFrame = GOOD, name: str = "bad.csv") -> None:
    frame.to_csv(name, index=False)


def put(column: str, value: Any, row: int = 6) -> None:
    """The good log with one cell changed."""
    frame = GOOD.astype(object)
    frame.loc[row, column] = value
    log(frame)


def text(content: str, name: str = "bad.csv") -> None:
    Path(name).write_text(content, encoding="utf-8")


def raw(content: bytes, name: str = "bad.csv") -> None:
    Path(name).write_bytes(content)


def cut(path: str | Path, size: int) -> None:
    """The file as a broken transfer leaves it."""
    Path(path).write_bytes(Path(path).read_bytes()[:size])


def header() -> dict[str, Any]:
    with safe_open(MODEL, framework="numpy") as file:
        return json.loads((file.metadata() or {})["occamid"])


def change(arrays: dict[str, np.ndarray] | None = None, **changes: object) -> None:
    """The model file of the run with some arrays or header entries changed."""
    content, found = header() | changes, load_file(MODEL) | (arrays or {})
    save_file(found, MODEL, metadata={"occamid": json.dumps(content)})


def change_member(**changes: object) -> None:
    members = header()["members"]
    change(members=[members[0] | changes, *members[1:]])


def change_network(**changes: object) -> None:
    change_member(network=header()["members"][0]["network"] | changes)


def foreign(content: str | None) -> None:
    metadata = {} if content is None else {"occamid": content}
    save_file({"x": np.ones(2)}, MODEL, metadata=metadata)


# --- identify -----------------------------------------------------------------------------------

NAMED = ("identify", "--input", "pump", "--output", "level")
INTO = (*NAMED, "--out", "out", "--json")
FROM_TOML = ("identify", "--config", "bad.toml", "--out", "out")
JOB_KEYS = (
    "example, files, inputs, outputs, time, sampling_time, experiment, resample, gaps, variable, "
    "by, asset, test, split, prepare, every_row, options."
)
PLAN_KEYS = (
    "effort, network, order, units, hidden, activation, input_lags, output_lags, "
    "input_delay, skip, refined, lam, restarts, "
    "cycles, epochs, "
    "single, seed."
)

DATA: dict[str, Case] = {
    "missing": (
        None,
        (*INTO, "god.csv"),
        "there is no file god.csv. Did you mean good.csv?",
    ),
    "a folder": (
        lambda: Path("logs").mkdir(),
        (*INTO, "logs"),
        "{here}/logs is a folder; name the files in it, such as {here}/logs/*.csv.",
    ),
    "empty": (
        lambda: text(""),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: the file is empty; export it again.",
    ),
    "only names": (
        lambda: text("pump,level\n"),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: there is no row of data below the names in line 1; export it again.",
    ),
    "binary": (
        lambda: raw(bytes(range(256))),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: the file holds binary data, not a table of text; export it as CSV.",
    ),
    "a web page": (
        lambda: text("<!doctype html><html></html>"),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: the file is a web page, not data; download the data itself again.",
    ),
    "text in numbers": (
        lambda: put("pump", "off"),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: line 8, column pump: 'off' is not a number; correct it, or leave the "
        "cell empty and use --gaps split.",
    ),
    "an empty cell": (
        lambda: put("level", np.nan),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: column level has no value at line 8 (1 such cell in all); fill it, or "
        "read the pieces between gaps with --gaps split, or have short gaps filled "
        "with --gaps fill.",
    ),
    "a constant input": (
        lambda: log(GOOD.assign(pump=3)),
        (*INTO, "bad.csv"),
        "input pump is constant (3) in all records; leave it out or use a record in which it "
        "moves.",
    ),
    "a constant output": (
        lambda: log(GOOD.assign(level=0)),
        (*INTO, "bad.csv"),
        "output level is constant (0) in all records; leave it out or use a record in which it "
        "moves.",
    ),
    "an unknown column": (
        None,
        ("identify", "good.csv", "-u", "pumpe", "-y", "level", "--out", "out"),
        "{here}/good.csv: --input: no column is called 'pumpe'. Did you mean pump? " + COLUMNS,
    ),
    "a position beyond the columns": (
        None,
        ("identify", "good.csv", "-u", "2", "-y", "4", "--out", "out"),
        "{here}/good.csv: --output asks for column 4; columns are counted from 1 to 3: time (1), "
        "pump (2), level (3).",
    ),
    "input and output the same": (
        None,
        ("identify", "good.csv", "-u", "pump", "-y", "pump", "--out", "out"),
        "{here}/good.csv: column pump cannot be both input and output; name it once.",
    ),
    "no columns named": (
        None,
        ("identify", "good.csv", "--out", "out"),
        "{here}/good.csv: no column is called u or y, so inputs and outputs must be named with "
        "--input and --output; the columns are time (1), pump (2), level (3).",
    ),
    "uneven sampling": (
        lambda: put("time", 0.64),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: the sampling is uneven: the step to line 9 is 0.06 s, 40.00% off the "
        "usual 0.1 s; interpolate to even steps with --resample.",
    ),
    "time runs back": (
        lambda: put("time", 0.2),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: column time does not increase at line 8 (from 0.5 to 0.2 s); sort the "
        "rows, tell experiments apart with --experiment, or use --sampling-time.",
    ),
    "missing rows": (
        lambda: log(GOOD.drop(index=[20, 21])),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: 2 rows missing before line 22: the time goes from 1.9 to 2.2 s where the "
        "step is 0.1 s (1 gap in all); read the pieces with --gaps split or bridge the gaps with "
        "--resample.",
    ),
    "too short": (
        lambda: log(GOOD[:4]),
        (*INTO, "bad.csv"),
        "{here}/bad.csv: the table has 4 rows of data; at least 10 are needed.",
    ),
    "another ending": (
        lambda: text("x", "bad.docx"),
        (*INTO, "bad.docx"),
        "{here}/bad.docx: files ending in .docx are not known; give one of .csv, .tsv, .txt, "
        ".dat, .asc, .prn, .log, .xlsx, .xlsm, .parquet, .pq, .h5, .hdf5, .hdf, .mat, .npz.",
    ),
    "files that differ in steps": (
        lambda: log(GOOD.assign(time=2 * GOOD["time"])),
        (*INTO, "good.csv", "bad.csv"),
        'records "good" and "bad" differ in their sampling time: 0.1 and 0.2 s; bring them to the '
        "same steps with --resample-to SECONDS.",
    ),
    "test file missing": (
        None,
        (*INTO, "good.csv", "--test", "test.csv"),
        "there is no file test.csv.",
    ),
    "test file with other columns": (
        lambda: log(GOOD.rename(columns={"pump": "pumps"})),
        (*INTO, "good.csv", "--test", "bad.csv"),
        "{here}/bad.csv: --input: no column is called 'pump'. Did you mean pumps? " + COLUMNS_AGAIN,
    ),
    "test file with other steps": (
        lambda: log(GOOD.assign(time=2 * GOOD["time"])),
        (*INTO, "good.csv", "--test", "bad.csv"),
        'records "good" and "bad" differ in their sampling time: 0.1 and 0.2 s; bring them to the '
        "same steps with --resample-to SECONDS.",
    ),
    "test file too short for the lags": (
        lambda: log(GOOD[:13]),
        (*INTO, "good.csv", "--test", "bad.csv", "--network", "mlp", "--lags", "12"),
        'test record "bad" has 13 rows, but the models tried need 14 or more; test on more data, '
        "or fix fewer lags with --lags.",
    ),
    "a split that leaves too little": (
        None,
        (*INTO, "good.csv", "--config", "tiny.toml", "--split", "0.97"),
        'test record "good" has 2 rows, but the models tried need 6 or more; test on more data, '
        "or fix fewer lags with --lags.",
    ),
}
OPTIONS: dict[str, Case] = {
    "nothing to read": (
        None,
        ("identify", "--out", "out"),
        "name one or more files, or a simulated process with --example; there are "
        f"{', '.join(twins.TWINS)}.",
    ),
    "a share above 1": (
        None,
        (*INTO, "good.csv", "--split", "1.5"),
        "setting split: input should be less than 1 (got 1.5).",
    ),
    "a share that is no number": (
        None,
        (*INTO, "good.csv", "--split", "nan"),
        "setting split: give a finite number (got nan).",
    ),
    "a share of less than a row": (
        None,
        (*INTO, "good.csv", "--split", "0.001"),
        'record "good": cannot split at 0.001; it has 60 rows. Give a share between 0 and 1 or a '
        "row number inside the record.",
    ),
    "--split and --test": (
        None,
        (*INTO, "good.csv", "--split", "0.5", "--test", "good.csv"),
        "--test and --split exclude each other; give one of them.",
    ),
    "--time and --sampling-time": (
        None,
        (*INTO, "good.csv", "--time", "time", "--sampling-time", "1"),
        "give --time or --sampling-time, not both.",
    ),
    "an unknown time column": (
        None,
        (*INTO, "good.csv", "--time", "clock"),
        "{here}/good.csv: --time: no column is called 'clock'. " + COLUMNS,
    ),
    "no sampling time": (
        None,
        (*INTO, "good.csv", "--sampling-time", "0"),
        "setting sampling_time: input should be greater than 0 (got 0.0).",
    ),
    "steps of no length": (
        None,
        (*INTO, "good.csv", "--resample-to", "0"),
        "--resample takes a positive number of seconds, not 0.0.",
    ),
    "unknown gaps": (
        None,
        (*INTO, "good.csv", "--gaps", "drop"),
        "setting gaps: input should be 'error', 'split' or 'fill' (got 'drop').",
    ),
    "a variable of a table": (
        None,
        (*INTO, "good.csv", "--variable", "z"),
        "{here}/good.csv: --variable is for sheets and variables; this file holds one table.",
    ),
    "unknown effort": (
        None,
        (*INTO, "good.csv", "--effort", "much"),
        "setting effort: input should be 'quick', 'standard' or 'thorough' (got 'much').",
    ),
    "unknown network": (
        None,
        (*INTO, "good.csv", "--network", "gru"),
        "setting network: input should be 'auto', 'mlp', 'lstm', 'rnn' or 'state-space' "
        "(got 'gru').",
    ),
    "unknown example": (
        None,
        ("identify", "--example", "toaster", "--out", "out"),
        f"no twin is called 'toaster'; there are {', '.join(twins.TWINS)}.",
    ),
    "files and an example": (
        None,
        ("identify", "good.csv", "--example", "hairdryer-twin", "--out", "out"),
        "give files or --example, not both.",
    ),
    "an example and --split": (
        None,
        ("identify", "--example", "hairdryer-twin", "--split", "0.5", "--out", "out"),
        "--example brings its own test data; leave --test and --split out.",
    ),
    "λ in words": (
        None,
        (*INTO, "good.csv", "--lam", "abc"),
        "--lam takes numbers separated by commas, not 'abc'.",
    ),
    "a negative λ": (
        None,
        (*INTO, "good.csv", "--lam", "1e-3,-1"),
        "setting lam: give one or more positive numbers (got -1.0).",
    ),
    "no units": (
        None,
        (*INTO, "good.csv", "--hidden", "0"),
        "setting hidden: give at least one layer, each of 1 to 10000 units (got 0).",
    ),
    "too many units": (
        None,
        (*INTO, "good.csv", "--hidden", "5,99999999999999999999"),
        "setting hidden: give at least one layer, each of 1 to 10000 units "
        "(got 99999999999999999999).",
    ),
    "too many restarts": (
        None,
        (*INTO, "good.csv", "--restarts", "1000000000"),
        "setting restarts: input should be less than or equal to 10000 (got 1000000000).",
    ),
    "negative lags": (
        None,
        (*INTO, "good.csv", "--lags", "-1"),
        "setting input_lags: -1 is negative; give 0 or more.",
    ),
    "lags as long as the record": (
        None,
        (*INTO, "good.csv", "--lags", "60"),
        'record "good" has 60 rows, but the lags need more than 60; use a longer record or fewer '
        "lags.",
    ),
    "lags beyond all memory": (
        None,
        (*INTO, "good.csv", "--input-lags", "1000000000"),
        'record "good" has 60 rows, but the lags need more than 1000000000; use a longer record '
        "or fewer lags.",
    ),
    "out is a file": (
        None,
        (*NAMED, "good.csv", "--out", "tiny.toml"),
        "tiny.toml is a file, not a folder; choose another --out.",
    ),
    "out is below a file": (
        None,
        (*NAMED, "good.csv", "--out", "tiny.toml/out"),
        "{here}/tiny.toml is a file, not a folder; choose another --out.",
    ),
    "out is taken": (
        None,
        (*NAMED, "good.csv", "--out", "run"),
        "run already holds files; choose another --out, or use --force.",
    ),
    "out is taken, resumed": (
        None,
        (*NAMED, "good.csv", "--out", "run", "--resume"),
        "run already holds files; choose another --out, or use --force.",
    ),
    "no such settings": (
        None,
        FROM_TOML,
        "cannot read the settings file bad.toml: No such file or directory.",
    ),
    "settings are a folder": (
        None,
        ("identify", "--config", "run", "--out", "out"),
        "cannot read the settings file run: Is a directory.",
    ),
    "settings are binary": (
        None,
        ("identify", "--config", str(MODEL), "--out", "out"),
        f"cannot read the settings file {MODEL}: it is not UTF-8 text.",
    ),
    "broken TOML": (
        lambda: text("files = [\n", "bad.toml"),
        FROM_TOML,
        "bad.toml is not valid TOML: Invalid value (at end of document).",
    ),
    "an unknown key": (
        lambda: text("file = 'good.csv'\n", "bad.toml"),
        FROM_TOML,
        f"bad.toml: setting file is unknown; known are {JOB_KEYS}",
    ),
    "an unknown option": (
        lambda: text("[options]\nefort = 'quick'\n", "bad.toml"),
        FROM_TOML,
        f"bad.toml: setting efort is unknown; known are {PLAN_KEYS}",
    ),
    "a value of another type": (
        lambda: text("files = 3\n", "bad.toml"),
        FROM_TOML,
        "bad.toml: setting files: give a list (got 3).",
    ),
    "a share in words": (
        lambda: text("files = ['good.csv']\nsplit = 'half'\n", "bad.toml"),
        FROM_TOML,
        "bad.toml: setting split: give a number (got 'half').",
    ),
    "options that are no table": (
        lambda: text("options = [1]\n", "bad.toml"),
        FROM_TOML,
        "bad.toml: options must be a table; write [options] and its settings below.",
    ),
    "an unknown activation": (
        lambda: text("[options]\nactivation = 'step'\n", "bad.toml"),
        (*INTO, "good.csv", "--config", "bad.toml"),
        "setting activation: 'step' is unknown; choose one of identity, relu, tanh, sigmoid, "
        "silu, softplus, elu, gelu.",
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_data_that_cannot_be_used(case: str, run: Runner) -> None:
    check(run, DATA[case])


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_cannot_be_used(case: str, run: Runner) -> None:
    check(run, OPTIONS[case])


def check(run: Runner, case: Case) -> None:
    """Code 2, exactly this line, the folder as before (see ``Runner.fails``)."""
    make, arguments, said = case
    if make:
        make()
    assert run.fails(*arguments) == said.replace("{here}", os.getcwd())


# --- commands that use a run --------------------------------------------------------------------

USES = {
    "simulate": ("good.csv",),
    "predict": ("good.csv",),
    "compare": ("good.csv",),
    "inspect": (),
}


@pytest.mark.parametrize("command", USES)
@pytest.mark.parametrize(
    ("make", "path", "said"),
    [
        (None, "none", f"none {NOT_A_FILE}"),
        (lambda: Path("none").mkdir(), "none", f"none/model.safetensors {NOT_A_FILE}"),
        (
            None,
            "good.csv",
            "good.csv is not a readable model file (Error while deserializing header: header too "
            f"large); {UNREADABLE}",
        ),
        (
            lambda: cut(MODEL, 500),
            "run",
            f"{MODEL} is not a readable model file (Error while deserializing header: invalid "
            f"header length); {UNREADABLE}",
        ),
        (
            lambda: cut(MODEL, -1),
            str(MODEL),
            f"{MODEL} is not a readable model file (Error while deserializing header: incomplete "
            f"metadata, file not fully covered); {UNREADABLE}",
        ),
        (
            lambda: raw(struct.pack("<Q", 2**40) + b"{}", str(MODEL)),
            "run",
            f"{MODEL} is not a readable model file (Error while deserializing header: header too "
            f"large); {UNREADABLE}",
        ),
        (
            lambda: foreign(None),
            "run",
            f"{MODEL} is a safetensors file, but not one of occamid's; name model.safetensors of "
            "a run folder.",
        ),
        (
            lambda: foreign("[1]"),
            "run",
            f"{MODEL} is not a complete model file: its header is no table; copy it again, or "
            "identify again.",
        ),
        (
            lambda: foreign("[" * 100_000),
            "run",
            f"{MODEL} is not a readable model file (maximum recursion depth exceeded while "
            f"decoding a JSON array from a unicode string); {UNREADABLE}",
        ),
        (
            lambda: change(format=FORMAT + 1, version="9.9"),
            "run",
            f"{MODEL} has format {FORMAT + 1}, written by occamid 9.9; this version reads format "
            f"{FORMAT}. Update occamid.",
        ),
    ],
)
def test_what_is_no_run(command: str, make: Make | None, path: str, said: str, run: Runner) -> None:
    check(run, (make, (command, path, *USES[command]), said))


HOSTILE: dict[str, tuple[Make, str]] = {
    "start before the lags": (lambda: change(start=-5), "start -5 or sampling time 0.1 cannot be"),
    "no sampling time": (lambda: change(sampling_time=0), "start 4 or sampling time 0 cannot be"),
    "sampling time NaN": (
        lambda: change(sampling_time=float("nan")),
        "start 4 or sampling time nan cannot be",
    ),
    "one more channel": (
        lambda: change(input_names=["pump", "b"]),
        "scaling/u_scale is not (2,) positive numbers",
    ),
    "no channels": (
        lambda: change(input_names=[]),
        "a regressor of member 0 is of no channel or of the future",
    ),
    "names repeat": (
        lambda: change(input_names=["level"]),
        "the names of the channels repeat or are not text",
    ),
    "names that are numbers": (
        lambda: change(input_names=[3]),
        "the names of the channels repeat or are not text",
    ),
    "no members": (lambda: change(members=[]), "weights is not one number for each of 0 members"),
    "members missing": (lambda: change(members=3), "object of type 'int' has no len()"),
    "feedback": (lambda: change(feedback="x"), "feedback is 'x'"),
    "family": (lambda: change_network(family="GRU"), "GRU is missing"),
    "activation": (
        lambda: change_network(activation="boom"),
        "a network of an unknown kind or activation",
    ),
    "units": (lambda: change_network(hidden=[10**9]), "layer0.W of member 0 has shape (3, 7)"),
    "an argument": (
        lambda: change_network(evil=1),
        "MLP.__init__() got an unexpected keyword argument 'evil'",
    ),
    "outputs": (lambda: change_network(n_out=2), "member 0 contradicts itself"),
    "lags of the future": (
        lambda: change_member(inputs=[[0, -3]] * 5),
        "a regressor of member 0 is of no channel or of the future",
    ),
    "method": (lambda: change_member(method="x"), "member 0 contradicts itself"),
    "negative shares": (
        lambda: change({"weights": -load_file(MODEL)["weights"]}),
        "weights is not shares of a whole",
    ),
    "inflation": (
        lambda: change({"inflation": np.ones(9)}),
        "inflation is not (3, 1) positive numbers",
    ),
    "inflation of other horizons": (
        lambda: change({"inflation": np.ones((2, 1))}),
        "inflation is not (3, 1) positive numbers",
    ),
    "complex numbers": (
        lambda: change({"inflation": np.ones((3, 1), np.complex64)}),
        "inflation is not (3, 1) positive numbers",
    ),
    "no scale": (
        lambda: change({"scaling/y_scale": np.zeros(1)}),
        "scaling/y_scale is not (1,) positive numbers",
    ),
    "offsets": (
        lambda: change({"scaling/u_offset": np.zeros(4)}),
        "scaling/u_offset does not fit the channels",
    ),
    "negative variance": (
        lambda: change({"0/noise_variance": -np.ones(1)}),
        "0/noise_variance is not (1,) positive numbers",
    ),
    "one weight twice": (
        lambda: change({"0/positions": 0 * load_file(MODEL)["0/positions"]}),
        "the posterior of member 0 does not fit its weights",
    ),
    "a singular posterior": (
        lambda: change({"0/factor": 0 * load_file(MODEL)["0/factor"]}),
        "the posterior of member 0 does not fit its weights",
    ),
    "prior": (
        lambda: change({"0/prior/layer0.W": np.ones(2)}),
        "the prior of member 0 does not fit its weights",
    ),
    "whole numbers": (
        lambda: change({"0/params/layer0.W": np.ones((3, 7), np.int8)}),
        "layer0.W of member 0 does not hold real numbers",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_model_files_that_contradict_themselves(case: str, run: Runner) -> None:
    make, said = HOSTILE[case]
    full = f"{MODEL} is not a complete model file: {said}; copy it again, or identify again."
    check(run, (make, ("simulate", "run", "good.csv"), full))
    assert run.fails("inspect", "run") == full


OTHER_STEPS = (
    "bad.csv is sampled every {} s, but the model was identified at 0.1 s; interpolate with "
    "--resample or, if it has no time column, give --sampling-time 0.1."
)


@pytest.mark.parametrize("command", ["simulate", "predict", "compare"])
@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (None, (), "there is no file bad.csv. Did you mean good.csv?"),
        (lambda: log(GOOD.assign(time=2 * GOOD["time"])), (), OTHER_STEPS.format("0.2")),
        (lambda: log(GOOD.drop(columns="time")), (), OTHER_STEPS.format("1")),
        (
            lambda: log(GOOD.rename(columns={"pump": "pumps"})),
            (),
            "bad.csv: --input: no column is called 'pump'. Did you mean pumps? " + COLUMNS_AGAIN,
        ),
        (
            lambda: log(GOOD[:4]),
            (),
            "bad.csv: 4 rows in one piece, but the model needs 6 or more; use a longer file.",
        ),
        (
            lambda: log(GOOD.assign(level=GOOD["level"].where(GOOD.index % 4 > 0))),
            ("--gaps", "split"),
            "bad.csv: 3 rows in one piece, but the model needs 6 or more; use a longer file.",
        ),
        (
            lambda: put("level", np.nan, 9),
            (),
            "bad.csv: column level has no value at line 11 (1 such cell in all); fill it, or read "
            "the pieces between gaps with --gaps split, or have short gaps filled "
            "with --gaps fill.",
        ),
        (log, ("--gaps", "x"), "gaps 'x' is unknown; choose one of error, split, fill."),
        (
            log,
            ("--sampling-time", "-1"),
            "--sampling-time takes a positive number of seconds, not -1.0.",
        ),
        (
            log,
            ("--out", "none/file.png"),
            "none/file.png: there is no folder none; make it, or choose another --out.",
        ),
        (log, ("--out", "run"), "run is a folder; name a file in it with --out."),
    ],
)
def test_files_that_do_not_fit_the_model(
    command: str, make: Make | None, options: tuple[str, ...], said: str, run: Runner
) -> None:
    check(run, (make, (command, "run", "bad.csv", *options), said))


DAMAGED = "run/report.json is damaged; identify again."
OTHERS: dict[str, Case] = {
    "known outputs below 0": (
        None,
        ("simulate", "run", "good.csv", "--n-init", "-1"),
        'record "good": n_init is -1; it must be at least 2 and less than the 60 rows.',
    ),
    "all outputs known": (
        None,
        ("simulate", "run", "good.csv", "--n-init", "60"),
        'record "good": n_init is 60; it must be at least 2 and less than the 60 rows.',
    ),
    "one sample": (
        None,
        ("simulate", "run", "good.csv", "--samples", "1"),
        "Invalid value for '--samples': ",
    ),
    "no horizon": (
        None,
        ("predict", "run", "good.csv", "--horizon", "0"),
        "Invalid value for '--horizon': ",
    ),
    "a horizon beyond the file": (
        None,
        ("predict", "run", "good.csv", "--horizon", "60"),
        "--horizon 60 reaches beyond the 60 rows of good.csv; give fewer steps, or the inputs to "
        "come with --future.",
    ),
    "one path to compare": (
        None,
        ("compare", "run"),
        "compare needs one or more run folders and a file after them.",
    ),
    "the file before the run": (
        None,
        ("compare", "good.csv", "run"),
        "good.csv is not a readable model file (Error while deserializing header: header too "
        f"large); {UNREADABLE}",
    ),
    "a plot with another ending": (
        None,
        ("compare", "run", "good.csv", "--out", "plot.pdf"),
        "plot.pdf: a plot is written as .png or .svg; choose such a name.",
    ),
    "the time column of another file": (
        lambda: change(about={"job": {"time": "clock"}}),
        ("simulate", "run", "good.csv"),
        "good.csv: --time: no column is called 'clock'. " + COLUMNS,
    ),
    "report of nothing": (
        None,
        ("report", "none"),
        "none/report.json cannot be read (No such file or directory); is none a run folder?",
    ),
    "report of a file": (
        None,
        ("report", "good.csv"),
        "good.csv/report.json cannot be read (No such file or directory); is good.csv a run "
        "folder?",
    ),
    "report cut short": (lambda: cut("run/report.json", 300), ("report", "run"), DAMAGED),
    "report without content": (lambda: text("{}", "run/report.json"), ("report", "run"), DAMAGED),
    "report of a list": (lambda: text("[]", "run/report.json"), ("report", "run"), DAMAGED),
    "report of binary": (lambda: raw(b"\xff\0", "run/report.json"), ("report", "run"), DAMAGED),
    "report too deep": (
        lambda: text("[" * 100_000, "run/report.json"),
        ("report", "run"),
        DAMAGED,
    ),
    "report into nowhere": (
        None,
        ("report", "run", "--out", "none/page.html"),
        "none/page.html: there is no folder none; make it, or choose another --out.",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_uses(case: str, run: Runner) -> None:
    make, arguments, said = OTHERS[case]
    if said.endswith("': "):  # the rest is Typer's
        assert run.fails(*arguments).startswith(said)
    else:
        check(run, (make, arguments, said))


@pytest.mark.parametrize("command", ["simulate", "predict", "compare", "report"])
def test_a_file_that_exists_is_replaced_only_by_force(command: str, run: Runner) -> None:
    text("mine", "out.png")
    read = () if command == "report" else ("good.csv",)
    arguments = (command, "run", *read, "--out", "out.png")
    said = "out.png already exists; choose another --out, or use --force."
    assert run.fails(*arguments) == said
    Path("link.png").symlink_to("nowhere")
    assert run.fails(*arguments[:-1], "link.png") == said.replace("out", "link", 1)
    assert run(*arguments, "--force").code == 0
    assert Path("out.png").read_bytes() != b"mine"


@pytest.mark.parametrize("command", ["simulate", "predict", "compare", "report"])
@pytest.mark.parametrize("spelling", ["plain", "dots", "link", "hard link"])
@pytest.mark.parametrize("which", ["log", "model"])
def test_what_a_command_reads_is_not_replaced(
    command: str, spelling: str, which: str, run: Runner
) -> None:
    content = "run/report.json" if command == "report" else str(MODEL)
    path = Path("good.csv" if which == "log" and command != "report" else content)
    Path("link.png").symlink_to(path)
    Path("hard.png").hardlink_to(path)
    names = {"plain": str(path), "dots": f"run/../{path}", "link": "link.png"}
    out = {**names, "hard link": "hard.png"}[spelling]
    read = () if command == "report" else ("good.csv",)
    said = run.fails(command, "run", *read, "--out", out, "--force")
    assert said == f"{out} is read by this command; choose another --out."


@pytest.mark.parametrize("command", ["simulate", "predict", "compare", "report"])
@pytest.mark.parametrize("name", ["result.png", "run.json"])
def test_a_file_of_a_run_is_not_replaced(command: str, name: str, run: Runner) -> None:
    """Nor one of another run, whatever may be overwritten."""
    Path("other").mkdir()
    text("theirs", "other/result.png")
    manifest.write(Path("other"), ["result.png"])
    before = Path("other", name).read_bytes()
    read = () if command == "report" else ("good.csv",)
    said = run.fails(command, "run", *read, "--out", f"other/{name}", "--force")
    assert said == f"other/{name} is a file of the run in other; choose another --out."
    assert Path("other", name).read_bytes() == before


def test_a_report_does_not_replace_the_log_its_run_was_made_from(run: Runner) -> None:
    change(about={"job": {"files": ["good.csv"]}})
    said = run.fails("report", "run", "--out", "good.csv", "--force")
    assert said == "good.csv is read by this command; choose another --out."


def test_a_default_name_that_is_taken(run: Runner) -> None:
    text("mine", "sim.csv")
    said = "sim.csv already exists; choose another --out, or use --force."
    assert run.fails("simulate", "run", "good.csv") == said


def test_a_device_is_not_replaced(run: Runner) -> None:
    said = "/dev/null is no plain file; choose another --out."
    assert run.fails("simulate", "run", "good.csv", "--out", "/dev/null", "--force") == said


def test_a_file_that_came_while_a_command_ran(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use, "check_new_file", lambda *_, **__: text("mine", "sim.csv"))
    outcome = run("simulate", "run", "good.csv")
    assert (outcome.code, outcome.err) == (2, "error: cannot write sim.csv: File exists.\n")
    assert Path("sim.csv").read_text("utf-8") == "mine"


def test_a_report_is_written_again_and_an_edited_one_is_not(run: Runner) -> None:
    for _ in range(2):
        assert run("report", "run").code == 0
    page = Path("run/report.html").read_bytes()
    text("with my notes", "run/report.html")
    said = "run/report.html is not what its run wrote; move it, or use --force."
    for out in ((), ("--out", "run/report.html"), ("--out", f"{os.getcwd()}/run/report.html")):
        assert run.fails("report", "run", *out) == said
    assert run("report", "run", "--force").code == 0
    assert Path("run/report.html").read_bytes() == page


def test_every_part_of_a_report_is_needed_or_not_missed(run: Runner) -> None:
    """Whatever is missing or of another type: a page, or the line that says so."""
    whole = json.loads(Path("run/report.json").read_text("utf-8"))
    for key in whole:
        values: tuple[Any, ...] = ("gone", 3, "text", None, [], {})
        for value in values:
            changed = {k: v for k, v in whole.items() if k != key}
            changed |= {} if value == "gone" else {key: value}
            text(json.dumps(changed), "run/report.json")
            outcome = run("report", "run")
            assert (outcome.code, outcome.err) in [(0, ""), (2, f"error: {DAMAGED}\n")]
            Path("run/report.html").unlink(missing_ok=True)


# --- what looks odd but will do -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: log(GOOD.drop(columns="time")), ("--sampling-time", "0.1")),
        (lambda: log(GOOD.assign(time=2 * GOOD["time"])), ("--resample",)),
        (lambda: log(GOOD.assign(pump=1.0)), ()),  # a step response
        (lambda: log(GOOD.assign(time=GOOD["time"] * (1 + 1e-5))), ()),  # another clock
    ],
)
def test_files_that_fit_the_model(make: Make, options: tuple[str, ...], run: Runner) -> None:
    make()
    outcome = run("simulate", "run", "bad.csv", "--out", "sim.csv", "--json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert len(json.loads(outcome.out)["rmse"]) == 1
    found = pd.read_csv("sim.csv")
    assert np.isfinite(found.to_numpy()).all()
