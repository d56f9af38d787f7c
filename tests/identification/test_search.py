"""A search: what it varies, what it remembers, what it takes, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import occamid
from occamid import DataError, FileError, Options, SettingsError, search
from occamid.identification.families import families
from occamid.identification.folds import folds
from occamid.identification.hearing import Hearing
from occamid.identification.progress import Clock, Stage
from occamid.identification.referee import hear
from occamid.identification.search import study as studies
from occamid.identification.search import trials as t
from occamid.identification.search.space import Space, propose
from tests.support.heard import on_stage
from tests.support.small import small_record

RECORD = small_record(400)
QUICK = Options(effort="quick")


class Ends:
    """Suggests the lower or the upper end of everything."""

    def __init__(self, upper: bool) -> None:
        self.upper, self.asked = upper, set[str]()

    def _one(self, name: str, low: Any, high: Any) -> Any:
        self.asked.add(name)
        return high if self.upper else low

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        assert low <= high
        assert low > 0 or not log
        return int(self._one(name, low, high))

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        return float(self._one(name, low, high))

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return self._one(name, choices[0], choices[-1])


def made(number: int, size: int, score: float, *squares: float) -> t.Tried:
    pieces = (squares or (score**2,) * 4, (10.0,) * (len(squares) or 4))
    return t.Tried(number, "finished", {}, score, (score,), size, 3, 1.0, "", pieces)


# --- what is varied -----------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["auto", "mlp", "lstm", "rnn", "state-space"])
@pytest.mark.parametrize("rows", [60, 400])
@pytest.mark.parametrize("upper", [False, True])
def test_every_corner_of_the_space_is_one_family(network: Any, rows: int, upper: bool) -> None:
    record = small_record(rows)
    asked = Options(effort="quick", network=network)
    space = Space().within(asked, folds([record], 3))
    options = propose(Ends(upper), space, asked)
    (family,) = families(options, [record])
    if family.settings is not None:
        lags = (family.settings.input_lags, family.settings.output_lags)
        assert max(int(v) for v in lags) <= space.widest(asked) <= rows // 6
        assert len(family.settings.lam) == 2


def test_what_is_fixed_is_not_varied() -> None:
    asked = Options(network="mlp", hidden=7, input_lags=4, lam=0.01, activation="relu", epochs=9)
    suggests = Ends(True)
    found = propose(suggests, Space().within(asked, folds([RECORD], 3)), asked)
    assert suggests.asked == {"input_delay", "output_lags", "skip", "refined"}
    kept = (found.hidden, found.input_lags, found.lam, found.activation, found.epochs)
    assert kept == ((7,), 4, (0.01,), "relu", 9)
    assert found.input_delay == 4  # not beyond the lags


def test_networks_without_a_use_for_what_is_fixed_are_left_out() -> None:
    held = folds([RECORD], 3)
    assert Space().within(QUICK, held).networks == ("mlp", "state-space")
    assert Space().within(Options(hidden=3), held).networks == ("mlp",)
    assert Space().within(Options(order=2), held).networks == ("state-space",)
    assert Space().within(Options(order=2, hidden=3), held).networks == ("mlp", "state-space")


def test_named_networks_take_delay_path_and_refinement() -> None:
    told = Options(network="mlp", input_lags=5, output_lags=2, input_delay=3, skip=True)
    (family,) = families(told, [RECORD])
    assert family.settings is not None
    assert (family.settings.input_delay, family.settings.skip, family.refined) == (3, True, False)
    (refined,) = families(Options(**told.given() | {"refined": True}), [RECORD])
    assert refined.refined
    delayed = families(Options(input_delay=12), [RECORD])
    assert {f.settings.input_delay for f in delayed if f.settings} == {12}
    with pytest.raises(SettingsError, match="set network to mlp"):
        families(Options(skip=True), [RECORD])


# --- what is remembered -------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    on_stage(monkeypatch)
    runs = [search(RECORD, QUICK, trials=14, seed=seed) for seed in (3, 3, 4)]
    one, again, other = ([(x.knobs, x.score, x.size) for x in run.trials] for run in runs)
    assert one == again
    assert one != other


def test_two_searches_share_a_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_stage(monkeypatch)
    journal = tmp_path / "study.log"
    first = search(RECORD, QUICK, trials=4, study=journal)
    second = search(RECORD, QUICK, trials=3, study=journal)
    assert [x.number for x in second.trials] == list(range(7))
    assert second.trials[:4] == first.trials
    assert len({str(x.knobs) for x in second.trials}) == 7  # the same seed, yet not the same again
    other = search(small_record(400, seed=1), QUICK, trials=2, study=journal)
    assert len(other.trials) == 2  # other data, another study in the same file
    assert len(search(RECORD, QUICK, trials=1, study=journal, seed=9).trials) == 1


def test_a_database_is_a_study_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_stage(monkeypatch)
    address = f"sqlite:///{tmp_path / 'study.db'}"
    for count in (2, 4):
        assert len(search(RECORD, QUICK, trials=2, study=address).trials) == count


def test_a_resumed_search_is_the_whole_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = on_stage(monkeypatch)
    whole = search(RECORD, QUICK, trials=13)
    journal = tmp_path / "study.log"
    search(RECORD, QUICK, trials=11, study=journal)
    rest = search(RECORD, QUICK, trials=13, study=journal, resume=True)
    assert [x.knobs for x in rest.trials] == [x.knobs for x in whole.trials]
    heard = stage.calls
    none = search(RECORD, QUICK, trials=13, study=journal, resume=True, pick="best")
    assert stage.calls == heard
    assert none.chosen == t.best(whole.trials)


def test_what_is_stopped_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stops(options: Options, fold: int) -> float:
        if fold == 1 and stage.calls > 6:
            raise KeyboardInterrupt
        return 1.0

    stage = on_stage(monkeypatch, stops)
    journal = tmp_path / "study.log"
    with pytest.raises(KeyboardInterrupt):
        search(RECORD, QUICK, trials=9, study=journal)
    assert studies.ended_in(journal) == 2
    stage.error = lambda options, fold: 1.0
    found = search(RECORD, QUICK, trials=4, study=journal, resume=True)
    assert [x.number for x in found.trials if x.finished] == [0, 1, 3, 4]


def test_trials_that_fall_behind_are_heard_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = on_stage(monkeypatch, lambda o, f: 1.0 if stage.calls <= 15 else 5.0)
    found = search(RECORD, QUICK, trials=8, pick="best")
    assert [x.state for x in found.trials] == ["finished"] * 5 + ["pruned"] * 3
    assert [x.folds for x in found.trials] == [3] * 5 + [1] * 3
    assert stage.calls == 5 * 3 + 3
    assert all(x.finished for x in found.front)


def test_trials_that_fail_are_told_and_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = on_stage(monkeypatch, lambda o, f: np.inf if stage.calls == 2 else 1.0)
    found = search(RECORD, QUICK, trials=3)
    assert [x.state for x in found.trials] == ["failed", "finished", "finished"]
    assert found.trials[0].why == "fold 2 of 3: no model is usable"
    stage.error = lambda o, f: np.inf
    with pytest.raises(DataError, match=r"no trial was finished \(fold 1 of 3: no model"):
        search(RECORD, QUICK, trials=2)


def test_progress_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = on_stage(monkeypatch)
    seen: list[Stage] = []

    def hear_and_tell(*given: Any, **more: Any) -> None:
        given[4].tell("fold")
        stage.hear(*given, **more)

    monkeypatch.setattr("occamid.identification.search.search.hear", hear_and_tell)
    search(RECORD, QUICK, trials=3, progress=seen.append)
    shares = [s.share for s in seen]
    assert len(shares) == 9
    assert shares == sorted(shares)
    assert seen[4].what.startswith("trial 1 (2 of 3), ")


# --- what is taken ------------------------------------------------------------------------------


def test_the_front_is_what_no_trial_beats(rng: np.random.Generator) -> None:
    for _ in range(30):
        trials = [
            made(k, int(rng.integers(1, 8)), float(rng.integers(1, 8))) for k in range(12)
        ] + [made(12, 1, 0.5)._replace(state="pruned")]
        done = trials[:-1]
        beaten = {
            a.number
            for a in done
            for b in done
            if b.size <= a.size and b.score <= a.score and (b.size, b.score) != (a.size, a.score)
        }
        brute = {(a.size, a.score) for a in done if a.number not in beaten}
        found = t.front(trials)
        assert {(a.size, a.score) for a in found} == brute
        assert len(found) == len(brute)  # of equal ones, the first
        assert [a.size for a in found] == sorted(a.size for a in found)


def test_the_simplest_within_a_standard_error_is_taken() -> None:
    top = made(0, 50, 1.0, 0.9, 1.1, 1.0, 1.0)
    near = made(1, 20, 1.01, 1.3, 0.8, 0.9, 1.08)  # now better, now worse
    worse = made(2, 5, 1.04, 1.0, 1.2, 1.1, 1.1)  # always worse
    costly = made(3, 4, 1.2, 3.0, 0.1, 0.9, 1.6)  # unclear, but beyond the price
    assert t.simplest([top, near, worse, costly]).number == 1
    assert t.best([top, near, worse, costly]).number == 0
    assert "as good as the best, trial 0" in t.grounds(near, [top, near])
    assert "smallest of all" in t.grounds(top, [top, near])
    assert t.grounds(worse, [top, near, worse]).endswith("it was asked for")


def test_a_trial_can_be_picked_from_a_study(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = on_stage(monkeypatch)
    journal = tmp_path / "study.log"
    search(RECORD, QUICK, trials=4, study=journal)
    found = search(RECORD, QUICK, trials=0, study=journal, pick=2)
    assert found.chosen.number == 2
    knobs = found.chosen.knobs
    told = Options(**QUICK.given() | knobs)
    assert stage.fitted[-1] == told == found.fit.options
    heard = stage.calls
    with pytest.raises(SettingsError, match="trial 9 is none that was finished; the front is"):
        search(RECORD, QUICK, trials=5, study=journal, pick=9)
    assert stage.calls == heard  # before anything was tried


def test_all_are_judged_on_the_same_rows() -> None:
    """A model that knows two outputs is not judged where one that knows thirty could not be."""
    told = Options(effort="quick", network="state-space", order=1, units=0)
    (fold, *_) = folds([RECORD], 3)
    rows = {}
    for widest in (0, 30):
        hearing = Hearing()
        hear(fold, "", told, {"state-space-linear": hearing}, Clock(None, 1), widest)
        rows[widest] = sum(len(part) for parts in hearing.misses for part in parts)
    assert rows == {0: len(fold.parts[0].record) - 5, 30: len(fold.parts[0].record) - 30}


def test_a_trial_scores_what_identify_says_of_its_options() -> None:
    asked: dict[str, Any] = {
        "effort": "quick",
        "network": "mlp",
        "hidden": 2,
        "restarts": 2,
        "cycles": 1,
    }
    asked |= {"epochs": 20, "input_lags": 3, "output_lags": 3, "input_delay": 0, "skip": True}
    found = occamid.search(
        small_record(), trials=1, activation="identity", lam=1e-3, refined=False, **asked
    )
    (trial,) = found.fit.trials
    assert trial.score == pytest.approx(found.chosen.score, rel=1e-12)
    assert trial.rmse == pytest.approx(found.chosen.rmse, rel=1e-12)
    assert found.chosen.folds == 3
    assert 0 < found.chosen.size <= 2 * 7 + 2 + 3 + 7


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trials": 0}, "`trials` is a whole number, 1 or more"),
        ({"trials": -1, "study": "x.log"}, "`trials` is a whole number, 0 or more"),
        ({"trials": True}, "`trials` is a whole number"),
        ({"trials": 2.5}, "`trials` is a whole number"),
        ({"trials": 10**9}, "`trials` is 100000 at most"),
        ({"resume": True}, "name the `study`"),
        ({"pick": "smallest"}, "`pick` is simplest, best or the number"),
        ({"pick": -1}, "`pick` is simplest, best or the number"),
        ({"pick": True}, "`pick` is simplest, best or the number"),
        ({"pick": 3}, "a new search has no trial 3 yet"),
        ({"study": "nowhere://x"}, "the database cannot be used"),
        ({"study": "mysql+none://user:secret@host/db"}, "the database cannot be used"),
        ({"widths": 3}, "setting widths is unknown"),
        ({"activation": "cosine"}, "'cosine' is unknown"),
        ({"network": "mlp", "input_lags": 300}, "held-back parts are no longer than"),
    ],
)
def test_what_makes_no_sense_is_refused(
    given: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = on_stage(monkeypatch)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((SettingsError, DataError)) as caught:
        search(RECORD, QUICK, **given)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert stage.calls == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"networks": ()},
        {"networks": ("tree",)},
        {"activations": ("cosine",)},
        {"width": (5, 2)},
        {"width": (0, 2)},
        {"lam": (0.0, 1.0)},
    ],
)
def test_wrong_ranges(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="of a search"):
        Space(**wrong)


@pytest.mark.parametrize("content", [b"time,u,y\n0,1,2\n", b'{"a": 1}\n', b"\xff\x00", b"[1]\n"])
def test_a_file_that_is_no_journal_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(FileError, match="is no journal of a study"):
        search(RECORD, QUICK, trials=1, study=path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


def test_places_where_no_journal_can_be(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder"):
        search(RECORD, QUICK, study=tmp_path)
    with pytest.raises(FileError, match="there is no folder"):
        search(RECORD, QUICK, study=tmp_path / "no" / "study.log")
    damaged = tmp_path / "study.log"
    damaged.write_bytes(b'{"op_code":0,"worker_id":"a"\n{"op_code":\n{"op_code":\n')
    with pytest.raises((SettingsError, FileError), match="study"):
        search(RECORD, QUICK, study=damaged)


def test_records_too_short_to_hold_anything_back() -> None:
    with pytest.raises(DataError, match="nothing can be held back"):
        search(small_record(25), QUICK, trials=1)


def test_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingsError, match=r'install it with pip install "occamid\[search\]"'):
        search(RECORD, QUICK, trials=1)
