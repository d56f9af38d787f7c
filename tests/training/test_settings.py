"""Settings: one to one with TOML, frozen, and plain about what is impossible."""

from __future__ import annotations

import copy
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from occamid.errors import FileError, OccamidError, SettingsError
from occamid.training.settings import Settings

KNOWN = (
    "network, hidden, activation, bias, skip, input_lags, output_lags, input_delay, scaling, "
    "structure, lam, loss, aggregation, curvature, curvature_count, reach, cycles, epochs, "
    "learning_rate, prune_psi, prune_weight, restarts, seed, tolerance, memory_mb, "
    "precision"
)

EVERYTHING: dict[str, Any] = {
    "network": "lstm",
    "hidden": (7, 3),
    "activation": "relu",
    "bias": False,
    "skip": False,  # only an mlp can
    "input_lags": 5,
    "output_lags": "auto",
    "input_delay": 2,
    "scaling": "detrend",
    "structure": "row",
    "lam": (0.1, 1e-7, 1 / 3),
    "loss": "gaussian",
    "aggregation": "sum",
    "curvature": "exact",
    "curvature_count": "once",
    "reach": 9,
    "cycles": 2,
    "epochs": 11,
    "learning_rate": 0.3,
    "prune_psi": 0.0,
    "prune_weight": 1e-5,
    "restarts": 3,
    "seed": 42,
    "tolerance": 0.25,
    "memory_mb": 12.5,
    "precision": "double",
}

VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "no reach": {**EVERYTHING, "reach": None},
    "one lag automatic": {"input_lags": "auto", "output_lags": 0},
    "direct path": {"skip": True},
}


def round_trip(settings: Settings, folder: Path) -> Settings:
    path = folder / "settings.toml"
    path.write_text(settings.to_toml(), encoding="utf-8")
    return Settings.from_toml(path)


@pytest.mark.parametrize("name", VARIANTS)
def test_toml_round_trip(name: str, tmp_path: Path) -> None:
    settings = Settings(**VARIANTS[name])
    back = round_trip(settings, tmp_path)
    assert back == settings
    assert back.model_dump() == settings.model_dump()
    assert back.to_toml() == settings.to_toml()


def test_different_settings_are_different_documents() -> None:
    """Each single change shows in the document, so no two settings share one."""
    base = Settings(network="lstm", input_lags=8)
    documents = {base.to_toml()}
    changes = {k: v for k, v in EVERYTHING.items() if getattr(base, k) != v}
    for name, value in changes.items():
        documents.add(base.replace(**{name: value}).to_toml())
    assert len(documents) == 1 + len(changes)
    assert set(EVERYTHING) == set(Settings.model_fields)


def test_the_document_has_every_key_but_an_unlimited_reach() -> None:
    fields = set(Settings.model_fields)
    assert set(tomllib.loads(Settings().to_toml())) == fields - {"reach"}
    assert set(tomllib.loads(Settings(**EVERYTHING).to_toml())) == fields


def test_missing_keys_take_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "few.toml"
    path.write_text("hidden = [4, 4]\nlam = [1]\n", encoding="utf-8")
    assert Settings.from_toml(path) == Settings(hidden=(4, 4), lam=(1.0,))
    path.write_text("", encoding="utf-8")
    assert Settings.from_toml(str(path)) == Settings()


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.seed = 3
    assert settings.seed == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_equal_settings_are_one_key(name: str) -> None:
    settings = Settings(**VARIANTS[name])
    copies = (
        Settings(**VARIANTS[name]),
        settings.replace(),
        copy.deepcopy(settings),
        pickle.loads(pickle.dumps(settings)),
    )
    assert {settings: "found"}.keys() == set(copies)
    assert settings.replace(seed=43) not in {settings}


def test_a_single_number_is_enough() -> None:
    assert Settings(hidden=20, lam=0.5) == Settings(hidden=(20,), lam=(0.5,))
    assert Settings(lam=1).lam == (1.0,)


def test_numbers_may_be_those_of_numpy() -> None:
    settings = Settings(
        hidden=np.array([3, 2]), lam=[np.float32(0.5), np.int64(1)], seed=np.int64(4), bias=np.True_
    )
    assert settings == Settings(hidden=(3, 2), lam=(0.5, 1.0), seed=4, bias=True)
    assert {type(v) for v in (*settings.hidden, settings.seed)} == {int}


def test_replace_makes_a_validated_copy() -> None:
    settings = Settings(seed=1)
    other = settings.replace(cycles=9, hidden=[2])
    assert (other.seed, other.cycles, other.hidden) == (1, 9, (2,))
    assert settings.cycles == 6
    with pytest.raises(SettingsError, match=r"^setting cycles: "):
        settings.replace(cycles=0)
    with pytest.raises(SettingsError, match=r"^setting cycels is unknown; "):
        settings.replace(cycels=3)


BOTH_ZERO = (
    "setting input_lags and output_lags are both 0: a static map has no dynamics; give lags."
)
HIDDEN = "setting hidden: give at least one layer, each of 1 to 10000 units (got {})."
LAM = "setting lam: give one or more positive numbers (got {})."
LAGS = 'give a whole number or "auto"'
REACH = "setting reach: give a whole number above 0, or leave it out (got {})."

IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"lamda": 1}, f"setting lamda is unknown; known are {KNOWN}."),
    "network": (
        {"network": "gru"},
        "setting network: input should be 'mlp', 'lstm' or 'rnn' (got 'gru').",
    ),
    "no layer": ({"hidden": ()}, HIDDEN.format("()")),
    "no unit": ({"hidden": (5, 0)}, HIDDEN.format(0)),
    "negative units": ({"hidden": -5}, HIDDEN.format(-5)),
    "activation": (
        {"activation": "swish"},
        "setting activation: 'swish' is unknown; choose one of identity, relu, tanh, sigmoid, "
        "silu, softplus, elu, gelu.",
    ),
    "input lags": ({"input_lags": -1}, "setting input_lags: -1 is negative; give 0 or more."),
    "output lags": ({"output_lags": -4}, "setting output_lags: -4 is negative; give 0 or more."),
    "no lags": ({"input_lags": 0, "output_lags": 0}, BOTH_ZERO),
    "delay negative": (
        {"input_delay": -1},
        "setting input_delay: input should be greater than or equal to 0 (got -1).",
    ),
    "delay beyond lags": (
        {"input_lags": 3, "input_delay": 4},
        "setting input_delay: 4 exceeds input_lags (3), so no input would be left.",
    ),
    "scaling": (
        {"scaling": "minmax"},
        "setting scaling: input should be 'standardize', 'detrend' or 'none' (got 'minmax').",
    ),
    "structure": (
        {"structure": "rows"},
        "setting structure: input should be 'shape', 'row', 'column' or 'row+column' (got 'rows').",
    ),
    "no lam": ({"lam": ()}, LAM.format("()")),
    "lam zero": ({"lam": (1e-3, 0.0)}, LAM.format("0.0")),
    "lam negative": ({"lam": (-1e-3,)}, LAM.format("-0.001")),
    "lam infinite": ({"lam": (float("inf"),)}, LAM.format("inf")),
    "lam nan": ({"lam": (float("nan"),)}, LAM.format("nan")),
    "lam repeats": (
        {"lam": (1e-3, 2e-3, 1e-3)},
        "setting lam: values repeat (got [0.001, 0.002, 0.001]).",
    ),
    "loss": ({"loss": "mae"}, "setting loss: input should be 'rmse' or 'gaussian' (got 'mae')."),
    "aggregation": (
        {"aggregation": "max"},
        "setting aggregation: input should be 'mean' or 'sum' (got 'max').",
    ),
    "curvature": (
        {"curvature": "full"},
        "setting curvature: input should be 'recursive', 'gauss-newton' or 'exact' (got 'full').",
    ),
    "curvature count": (
        {"curvature_count": "twice"},
        "setting curvature_count: input should be 'once' or 'per-group' (got 'twice').",
    ),
    "reach zero": (
        {"network": "rnn", "reach": 0},
        REACH.format(0),
    ),
    "reach of an mlp": (
        {"reach": 5},
        "setting reach: an mlp has no recurrence; use network = lstm or rnn.",
    ),
    "direct path of an lstm": (
        {"network": "lstm", "skip": True},
        "setting skip: only an mlp has a direct path; network is lstm.",
    ),
    "cycles": (
        {"cycles": 0},
        "setting cycles: input should be greater than or equal to 1 (got 0).",
    ),
    "cycles and a half": (
        {"cycles": 1.5},
        "setting cycles: give a whole number (got 1.5).",
    ),
    "cycles in text": ({"cycles": "3"}, "setting cycles: give a whole number (got '3')."),
    "cycles true": ({"cycles": True}, "setting cycles: give a whole number (got True)."),
    "units of the wrong type": ({"hidden": (2.5,)}, HIDDEN.format(2.5)),
    "units true": ({"hidden": True}, HIDDEN.format(True)),
    "lam in text": ({"lam": (1e-3, "x")}, LAM.format("'x'")),
    "lags in text": ({"input_lags": "many"}, f"setting input_lags: {LAGS} (got 'many')."),
    "lags and a half": ({"output_lags": 2.5}, f"setting output_lags: {LAGS} (got 2.5)."),
    "lags true": ({"input_lags": True}, f"setting input_lags: {LAGS} (got True)."),
    "reach in text": ({"reach": "none"}, REACH.format("'none'")),
    "bias": ({"bias": "maybe"}, "setting bias: give true or false (got 'maybe')."),
    "bias one": ({"bias": 1}, "setting bias: give true or false (got 1)."),
    "activation of the wrong type": (
        {"activation": 3},
        "setting activation: give text (got 3).",
    ),
    "epochs": (
        {"epochs": 0},
        "setting epochs: input should be greater than or equal to 1 (got 0).",
    ),
    "learning rate": (
        {"learning_rate": 0},
        "setting learning_rate: input should be greater than 0 (got 0).",
    ),
    "learning rate nan": (
        {"learning_rate": float("nan")},
        "setting learning_rate: give a finite number (got nan).",
    ),
    "learning rate in text": (
        {"learning_rate": "3"},
        "setting learning_rate: give a number (got '3').",
    ),
    "learning rate true": (
        {"learning_rate": True},
        "setting learning_rate: give a number (got True).",
    ),
    "prune psi": (
        {"prune_psi": -1.0},
        "setting prune_psi: input should be greater than or equal to 0 (got -1.0).",
    ),
    "prune weight": (
        {"prune_weight": -0.5},
        "setting prune_weight: input should be greater than or equal to 0 (got -0.5).",
    ),
    "restarts": (
        {"restarts": 0},
        "setting restarts: input should be greater than or equal to 1 (got 0).",
    ),
    "seed": ({"seed": -1}, "setting seed: input should be greater than or equal to 0 (got -1)."),
    "seed too large": (
        {"seed": 2**31},
        "setting seed: input should be less than 2147483648 (got 2147483648).",
    ),
    "tolerance infinite": (
        {"tolerance": float("inf")},
        "setting tolerance: give a finite number (got inf).",
    ),
    "memory infinite": (
        {"memory_mb": float("inf")},
        "setting memory_mb: give a finite number (got inf).",
    ),
    "called self": ({"self": 1}, f"setting self is unknown; known are {KNOWN}."),
    "tolerance": (
        {"tolerance": -0.1},
        "setting tolerance: input should be greater than or equal to 0 (got -0.1).",
    ),
    "memory": (
        {"memory_mb": 0},
        "setting memory_mb: input should be greater than 0 (got 0).",
    ),
    "precision": (
        {"precision": "half"},
        "setting precision: input should be 'single' or 'double' (got 'half').",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_settings(case: str) -> None:
    values, expected = IMPOSSIBLE[case]
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    assert str(caught.value) == expected
    assert isinstance(caught.value, OccamidError)


@pytest.mark.parametrize(
    "values",
    [
        {"input_lags": 3, "input_delay": 3},
        {"input_lags": "auto", "input_delay": 50},
        {"input_lags": 0, "output_lags": 1},
        {"input_lags": 1, "output_lags": 0},
        {"network": "rnn", "reach": 1},
        {"prune_psi": 0.0, "prune_weight": 0.0, "tolerance": 0.0, "seed": 0},
        {"seed": 2**31 - 1},
        {"cycles": 1, "epochs": 1, "restarts": 1, "hidden": (1,)},
    ],
)
def test_settings_on_the_border_are_allowed(values: dict[str, Any]) -> None:
    settings = Settings(**values)
    assert {name: getattr(settings, name) for name in values} == values


# --- files --------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(FileError) as caught:
        Settings.from_toml(path)
    assert str(caught.value) == (
        f"cannot read the settings file {path}: No such file or directory."
    )


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        Settings.from_toml(tmp_path)
    assert str(caught.value) == f"cannot read the settings file {tmp_path}: Is a directory."


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("# Wärmetauscher\nseed = 1\n".encode("latin-1"))
    with pytest.raises(FileError) as caught:
        Settings.from_toml(path)
    assert str(caught.value) == f"cannot read the settings file {path}: it is not UTF-8 text."


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_text("seed = 1\nhidden = 4\n", encoding="utf-8-sig")
    assert Settings.from_toml(path) == Settings(seed=1, hidden=(4,))


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("seed = 1\ncycles = \n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        Settings.from_toml(path)
    assert str(caught.value).startswith(f"{path} is not valid TOML: ")
    assert "line 2" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lamda = [1e-3]", f"setting lamda is unknown; known are {KNOWN}."),
        ("[model]\nseed = 1", f"setting model is unknown; known are {KNOWN}."),
        ("reach = 3", "setting reach: an mlp has no recurrence; use network = lstm or rnn."),
        ("hidden = []", HIDDEN.format("()")),
        ("self = 1", f"setting self is unknown; known are {KNOWN}."),
    ],
)
def test_a_bad_setting_in_a_file_names_the_file(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        Settings.from_toml(path)
    assert str(caught.value) == f"{path}: {said}"
