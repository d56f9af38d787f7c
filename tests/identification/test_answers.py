"""Answers of families in a fold as bytes, and the key that tells them from others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from occamid import Ensemble, Options, Record, combine
from occamid.errors import FileError, SettingsError
from occamid.files.checkpoints import Checkpoints
from occamid.files.store import Store
from occamid.identification import answers as answering
from occamid.identification.answers import Answer, Answers, from_bytes, key_of, to_bytes
from occamid.identification.court import Court
from occamid.identification.crew import Crew
from occamid.identification.families import Family, families
from occamid.identification.folds import Fold, folds
from occamid.identification.progress import Clock
from tests.support.fleet_cases import CHEAP
from tests.support.linear_model import linear_model, linear_posterior
from tests.support.small import small_record

OPTIONS = Options(effort="quick", seed=3)
CHEAPEST = ["arx", "output-error", "fading-arx", "subspace"]


def fold_of(record: Record, turn: int = 0) -> Fold:
    return folds([record], 3)[turn]


def same(one: Ensemble, other: Ensemble) -> None:
    """Two ensembles are equal to the last bit."""
    np.testing.assert_array_equal(one.weights, other.weights)
    for a, b in zip(one.posteriors, other.posteriors, strict=True):
        assert (a.method, a.effective, a.log_evidence) == (b.method, b.effective, b.log_evidence)
        assert (a.model.network, a.model.terms, a.model.start) == (
            *(b.model.network, b.model.terms, b.model.start),
        )
        assert a.model.sampling_time == b.model.sampling_time
        for name in ("positions", "factor", "widths", "noise_variance"):
            _same(getattr(a, name), getattr(b, name))
        for left, right in ((a.model.weights, b.model.weights), _priors(a.model, b.model)):
            assert left.keys() == right.keys()
            for name in left:
                _same(left[name], right[name])
        for name, value in vars(a.model.scaling).items():
            _same(value, getattr(b.model.scaling, name))
    for left, right in zip(one.mixture, other.mixture, strict=True):
        _same(np.asarray(left), np.asarray(right))
    _same(one.members.weights, other.members.weights)
    _same(one.inflation, other.inflation)
    assert (one.feedback, one.tail, one.candidates, one.beside) == (
        *(other.feedback, other.tail, other.candidates, other.beside),
    )


def _priors(one: Any, other: Any) -> tuple[Any, Any]:
    assert (one.prior_widths is None) == (other.prior_widths is None)
    return one.prior_widths or {}, other.prior_widths or {}


def _same(one: Any, other: Any) -> None:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def heard() -> Answers:
    """Linear families and a small network in one fold, and one that cannot be tried."""
    fold = fold_of(small_record(200))
    named = Options(**CHEAP, refined=True)
    return (
        Court(OPTIONS, Clock(None, 1), None, None).answers(fold, "here", [*CHEAPEST, "nobody"])
        | Court(named, Clock(None, 1), None, None).answers(fold, "here", ["mlp"])
    )  # fmt: skip


def test_answers_come_back_to_the_last_bit(heard: Answers) -> None:
    again = from_bytes(to_bytes(heard))
    assert again is not None
    assert list(again) == list(heard) == [*CHEAPEST, "nobody", "mlp"]
    for name, answer in heard.items():
        assert again[name][2:] == answer[2:]
        for one, other in zip(again[name].misses, answer.misses, strict=True):
            _same(one, other)
        model = again[name].model
        assert (model is None) == (answer.model is None) == (name == "nobody")
        if model is not None and answer.model is not None:
            same(model, answer.model)


def test_even_shares_come_back_for_any_number_of_members() -> None:
    """``(1/6) / sum(1/6, …)`` is not 1/6."""
    for count in range(1, 30):
        model = combine([linear_posterior(linear_model(), 0.1, (0.1, 0.2))] * count)
        again = from_bytes(to_bytes({"a": Answer(model, [], 0.0)}))
        assert again is not None
        assert again["a"].model is not None
        same(again["a"].model, model)


def test_what_is_damaged_is_absent(heard: Answers) -> None:
    content = to_bytes({"arx": heard["arx"]})
    arrays = load(content)
    assert from_bytes(b"") is None
    assert from_bytes(content[:-1]) is None
    assert from_bytes(save({n: v for n, v in arrays.items() if n != "header"})) is None
    for name in arrays.keys() - {"header"}:
        assert from_bytes(save({n: v for n, v in arrays.items() if n != name})) is None or (
            "/prior/" in name
        )
    for text in (b"[{}]", b"{", b"[1]", b"7"):
        assert from_bytes(save(arrays | {"header": np.frombuffer(text, np.uint8)})) is None


def test_nothing_is_pickled(heard: Answers) -> None:
    arrays = load(to_bytes(heard))
    assert all(value.dtype.kind in "fiu" for value in arrays.values())
    json.loads(arrays["header"].tobytes())


# --- keys ---------------------------------------------------------------------------------------


def test_the_key_tells_everything_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    record = small_record(200)
    fold = fold_of(record)
    key = partial(key_of, OPTIONS, 200, fold, "fold 1 of 3", ["arx"])
    more = record.y.copy()
    more[5] += 1e-12
    again = key_of(Options(effort="quick", seed=3), 200, fold_of(small_record(200)), *key.args[3:])
    assert key() == again
    others = [
        key_of(Options(effort="quick", seed=4), *key.args[1:]),
        key_of(Options(effort="standard", seed=3), *key.args[1:]),
        key_of(OPTIONS, 201, *key.args[2:]),
        key_of(OPTIONS, 200, fold_of(record, 1), *key.args[3:]),
        key_of(OPTIONS, 200, fold_of(replace(record, y=more)), *key.args[3:]),
        key_of(OPTIONS, 200, fold_of(replace(record, sampling_time=0.2)), *key.args[3:]),
        key_of(OPTIONS, 200, fold_of(replace(record, input_names=("v",))), *key.args[3:]),
        key_of(OPTIONS, 200, fold._replace(long=fold.parts), *key.args[3:]),
        key_of(OPTIONS, 200, fold._replace(shape=None), *key.args[3:]),
        key_of(OPTIONS, 200, fold, "fold 1 of 4", ["arx"]),
        key_of(OPTIONS, 200, fold, "fold 1 of 3", ["arx", "linear"]),
    ]
    monkeypatch.setattr(answering, "source", lambda: "another")
    others.append(key())
    assert len({again, *others}) == 1 + len(others)


# --- who keeps what -----------------------------------------------------------------------------


class Elsewhere(Crew):
    """Workers that are here: jobs are done at once, and those that are done are told."""

    def do(self, jobs: Any, done: Any = None) -> list[Any]:
        found = [job() for job in jobs]
        for k, result in enumerate(found):
            done(k, result)
        return found


@pytest.mark.parametrize("where", ["threads", "workers", "workers with a store"])
def test_what_has_ended_is_not_heard_again(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Store | None]] = []

    def answers(self: Court, fold: Fold, where: str, names: Sequence[str]) -> Answers:
        asked.append((where, self.store))
        return {name: Answer(None, [], 1.0, f"{where}: no") for name in names}

    monkeypatch.setattr(Court, "answers", answers)
    named = Store.of(tmp_path / "named") if "store" in where else None
    checkpoints = Checkpoints(tmp_path / "own", named)
    crew = Crew() if where == "threads" else Elsewhere(client=1)
    court = Court(OPTIONS, Clock(None, 1), checkpoints, 9, checkpoints.store)
    held, tried = folds([small_record(200)], 3), [Family("a", "k", ""), Family("b", "k", "")]
    court.hear(crew, held, range(2), tried)
    assert len(asked) == 4
    assert {store for _, store in asked} == {None if where == "workers" else checkpoints.store}
    kept = len(list((tmp_path / ("named" if named else "own")).iterdir()))
    assert kept == 4
    assert (tmp_path / "own").exists() == (named is None)
    del asked[:]
    found = court.hear(crew, held, range(3), tried)
    assert {told for told, _ in asked} == {"fold 3 of 3"}
    assert found[0]["a"] == Answer(None, [], 1.0, "fold 1 of 3: no")
    assert [list(found[k]) for k in range(3)] == [["b", "a"]] * 3


@pytest.mark.parametrize("problem", [FileError("out of reach"), SettingsError("no fsspec")])
def test_a_store_out_of_reach_costs_a_hearing_and_no_more(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address may fail for a moment, or for a worker that lacks its package, for hours."""

    def broken(*_: object) -> None:
        raise problem

    monkeypatch.setattr(Store, "_read", broken)
    court = Court(OPTIONS, Clock(None, 1), None, None, Store("/nowhere"))
    fold = fold_of(small_record(200))
    found = court.hear(Crew(), [fold], [0], families(OPTIONS, fold.records)[:1])
    assert found[0]["arx"].model is not None
