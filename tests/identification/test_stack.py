"""Shares of families, against a general optimiser, and what they are worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from occamid import DataError, Options, identify, load
from occamid.bands.combine import combine
from occamid.bands.ensemble import Ensemble
from occamid.data import twins
from occamid.identification import identify as identifying
from occamid.identification import referee
from occamid.identification import stack as stacks
from occamid.identification.assemble import Workshop
from occamid.identification.families import CLASSICAL, Family
from occamid.identification.folds import Fold, Part, whole
from occamid.identification.hearing import Hearing
from occamid.identification.progress import Clock
from occamid.identification.referee import PRICE, Judgement, Trial
from occamid.identification.stack import BEHIND, LEAST, OF_A_KIND, PULL, shares_of, stacked
from tests.support.linear_model import linear_model, linear_posterior, linear_record

Array = np.ndarray
FOLDS, ROWS = 4, 60
TRIED = [Family(name, name, name) for name in "abc"]


def products(seed: int, count: int = 4) -> Array:
    errors = np.random.default_rng(seed).normal(size=(count, 50)) + 0.5
    return errors @ errors.T


def optimum(G: Array) -> Array:
    """Shares by a general optimiser."""
    usual = 1 / np.diag(G) / np.sum(1 / np.diag(G))

    def cost(s: Array) -> float:
        return float(s @ G @ s + PULL * np.sum((s - usual) ** 2))

    found = minimize(
        cost, usual, bounds=[(0, 1)] * len(G), method="SLSQP", options={"ftol": 1e-14},
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
    )  # fmt: skip
    return np.asarray(found.x)


@pytest.mark.parametrize(("seed", "families"), [(0, 4), (1, 3), (2, 3)])
def test_shares_are_what_a_general_optimiser_finds(seed: int, families: int) -> None:
    G = products(seed)
    G = G / np.diag(G).min()
    kept = np.arange(len(G))
    while (found := optimum(G[np.ix_(kept, kept)])).min() < LEAST:  # the smallest one leaves
        kept = np.delete(kept, np.argmin(found))
    assert len(kept) == families
    shares = shares_of(G)
    np.testing.assert_allclose(shares[kept], found, atol=1e-5)
    assert np.count_nonzero(shares) == families


def test_a_family_far_behind_or_with_a_tiny_share_gets_none() -> None:
    G = np.diag([1.0, (1.01 * BEHIND) ** 2])
    np.testing.assert_array_equal(shares_of(G), [1.0, 0.0])
    same = np.ones((2, 2)) + np.diag([0.0, 3.0])  # errs as the first does, and by itself
    assert shares_of(same)[1] == 0.0
    assert shares_of(7 * np.eye(2)) == pytest.approx([0.5, 0.5])


def heard(errors: dict[str, Array]) -> dict[str, Hearing]:
    """Families with these errors, (folds, rows) each, in the same folds."""
    record = linear_record(ROWS)
    folds = [Fold(whole([record]), (Part(record, 0),)) for _ in range(FOLDS)]
    return {
        name: Hearing(
            models=[(family(k), fold) for fold in folds],
            misses=[[miss[:, None]] for miss in values],
        )
        for k, (name, values) in enumerate(errors.items())
    }


def family(k: int) -> Ensemble:
    return combine([linear_posterior(linear_model(0.5 + 0.1 * k), 0.1)])


def independent(count: int, seed: int = 0) -> dict[str, Array]:
    noise = np.random.default_rng(seed).normal(size=(count, FOLDS, ROWS))
    return dict(zip("abc", noise, strict=False))


def test_errors_that_differ_are_averaged_away() -> None:
    errors = independent(3)
    found = stacked(TRIED, heard(errors), "b", np.ones(1))
    assert found is not None
    assert list(found.shares) == ["b", "a", "c"]
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.gain == pytest.approx(np.sqrt(3), rel=0.1)
    assert "a stack of" in found.grounds
    for k, ((model, _), (miss,)) in enumerate(
        zip(found.hearing.models, found.hearing.misses, strict=True)
    ):
        others = [b.share for b in model.beside]
        shares = np.array([1 - sum(others), *others])
        each = np.stack([errors[name][k] for name in "bac"])
        np.testing.assert_allclose(miss[:, 0], shares @ each)
        left = {n: np.delete(e, k, axis=0).ravel() for n, e in errors.items()}
        flat = np.stack([left[name] for name in "bac"])
        np.testing.assert_allclose(shares, shares_of(flat @ flat.T))  # of the other folds alone


def test_a_stack_is_compared_with_families_that_were_chosen_without_the_fold() -> None:
    """Each of two is good where the other is not: whoever is chosen by the others, fails."""
    good, bad = np.full(ROWS, 0.2), np.full(ROWS, 1.0)
    errors = {
        "a": np.stack([good, good, bad, bad]),
        "b": np.stack([-bad, -bad, -good, -good]),
    }
    found = stacked(TRIED, heard(errors), "a", np.ones(1))
    assert found is not None
    # without a fold, two bad ones stand against one: always the wrong family is chosen
    assert found.gain == pytest.approx(
        np.sqrt(np.mean(1.0) / np.mean([np.mean(m[0] ** 2) for m in found.hearing.misses]))
    )
    assert found.gain > np.sqrt(np.mean(errors["a"] ** 2)) / 0.5


def test_no_stack_where_it_is_worth_nothing_or_cannot_be_told() -> None:
    errors = independent(1)
    assert stacked(TRIED, heard(errors), "a", np.ones(1)) is None
    alike = errors | {"b": 1.02 * errors["a"]}
    assert stacked(TRIED, heard(alike), "a", np.ones(1)) is None
    few = {
        n: Hearing(models=h.models[:2], misses=h.misses[:2])
        for n, h in heard(independent(2)).items()
    }
    assert stacked(TRIED, few, "a", np.ones(1)) is None


def test_families_of_other_folds_are_not_mixed_in() -> None:
    one, other = heard(independent(2)), heard(independent(2, seed=1))
    assert stacked(TRIED, {"a": one["a"], "b": other["b"]}, "a", np.ones(1)) is None


def test_the_leading_family_keeps_a_share() -> None:
    errors = independent(3)
    poor = {"a": errors["a"] + errors["b"] + errors["c"], "b": errors["b"], "c": errors["c"]}
    found = stacked(TRIED, heard(poor), "a", np.ones(1))
    assert found is not None
    assert next(iter(found.shares)) == "a"
    assert found.shares["a"] >= LEAST / (1 + LEAST)


@pytest.mark.parametrize(("same", "taken"), [(0.35, ["a", "b"]), (0.0, ["a", "b", "c"])])
def test_a_more_flexible_kind_must_be_worth_it(same: float, taken: list[str]) -> None:
    """Beside two simple families a flexible one, which errs much as both do or in its own way."""
    kinds = [Family("a", "simple", "a"), Family("b", "simple", "b"), Family("c", "flexible", "c")]
    errors = independent(3)
    errors["c"] = errors["c"] + same * (errors["a"] + errors["b"])
    found = stacked(kinds, heard(errors), "a", np.ones(1))
    assert found is not None
    assert list(found.shares) == taken
    alike = [replace(family, kind="simple") for family in kinds]
    found = stacked(alike, heard(errors), "a", np.ones(1))
    assert found is not None
    assert list(found.shares) == ["a", "b", "c"]


def test_families_of_one_kind_need_to_gain_less() -> None:
    own, common = independent(2), independent(1, seed=3)["a"]
    alike = [replace(family, kind="linear") for family in TRIED]
    errors = {name: common + 0.5 * mine for name, mine in own.items()}
    found = stacked(alike, heard(errors), "a", np.ones(1))
    assert found is not None
    assert OF_A_KIND < found.gain < PRICE
    assert list(found.shares) == ["a", "b"]
    assert stacked(TRIED, heard(errors), "a", np.ones(1)) is None
    close = {name: common + 0.1 * mine for name, mine in own.items()}
    assert stacked(alike, heard(close), "a", np.ones(1)) is None


def test_who_is_left_of_a_stack_shares_anew_and_says_what_that_is_worth() -> None:
    own, common = independent(3), independent(1, seed=3)["a"]
    errors = {name: 0.3 * common + mine for name, mine in own.items()}
    told = heard(errors)
    alike = [Family(name, "linear", name) for name in own]
    found = stacked(alike, told, "a", np.ones(1))
    assert found is not None
    assert list(found.shares) == ["a", "b", "c"]
    left = found.only(["a", "c"], told, np.ones(1))
    assert left is not None
    assert list(left.shares) == ["a", "c"]
    assert sum(left.shares.values()) == pytest.approx(1.0)
    two = {name: errors[name] for name in ("a", "c")}
    same = stacked(alike[::2], heard(two), "a", np.ones(1))
    assert same is not None
    assert left.shares == pytest.approx(same.shares)
    assert 1 < left.gain < found.gain
    assert found.only(["a"], told, np.ones(1)) is None
    assert found._replace(gain=1.01).only(["a", "c"], told, np.ones(1)) is None


def test_the_largest_share_leads() -> None:
    """The referee prefers the simpler of two that are about as good; together they are better."""
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(2, FOLDS, ROWS))
    record = linear_record(ROWS)
    bench = identifying._Bench((record,), (record,), Options(), None, Clock(None, 1), (0,))
    kinds = [Family("a", "simple", "a"), Family("b", "flexible", "b")]
    for scale, leader in ((0.97, "b"), (1.03, "a")):
        found = heard({"a": noise[0], "b": scale * noise[1] / noise[1].std() * noise[0].std()})
        trials = tuple(Trial(n, n, (1.0,), 1.0, 0.0, 0.0) for n in found)
        judged = Judgement(trials, "a", "a is simpler", found)
        led = bench.led(kinds, judged)
        assert led.chosen == leader
        said = "a is simpler" if leader == "a" else "a is simpler; b has the largest share of a st"
        assert led.grounds.startswith(said)
        assert (led.grounds == said) == (leader == "a")
    alone = replace(bench, options=Options(single=True))
    assert alone.led(kinds, judged) is judged


# --- from records to a model --------------------------------------------------------------------


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two quick families, and every stack is worth it."""
    monkeypatch.setattr(referee, "families", lambda *_: list(CLASSICAL))
    monkeypatch.setattr(identifying, "every_family", lambda *_: list(CLASSICAL))
    monkeypatch.setattr(stacks, "OF_A_KIND", 0.0)


@pytest.mark.usefixtures("always")
def test_an_identified_stack_runs_as_it_says(tmp_path: Path) -> None:
    record = twins.make("hairdryer-twin", 0).estimation
    fit = identify(record[:200], effort="quick")
    assert sorted(fit.shares) == ["arx", "output-error"]
    assert next(iter(fit.shares)) == fit.family.name
    assert "a stack of" in fit.grounds
    (other,) = fit.model.beside
    assert [1 - other.share, other.share] == pytest.approx(list(fit.shares.values()))
    known = record.y[:20]
    each = [m.free_run(record.u, known) for m in (replace(fit.model, beside=()), other.model)]
    mean = (1 - other.share) * each[0] + other.share * each[1]
    np.testing.assert_allclose(fit.model.free_run(record.u, known), mean)
    fit.model.simulate(record.u[:50], initial="last")  # every family knows the data's end
    assert sum(map(len, fit.held_back)) > 100
    fit.model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        again.simulate(record, 20).std, fit.model.simulate(record, 20).std
    )


@pytest.mark.usefixtures("always")
def test_one_model_alone_has_none_beside_it() -> None:
    record = twins.make("hairdryer-twin", 0).estimation
    fit = identify(record[:200], effort="quick", single=True)
    assert fit.shares == {fit.family.name: 1.0}
    assert not fit.model.beside


@pytest.mark.usefixtures("always")
def test_a_family_that_fails_on_all_rows_leaves_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    record = twins.make("hairdryer-twin", 0).estimation[:200]
    honest = Workshop.model
    lead: list[str] = []

    def failing(shop: Workshop, family: Family, bar: Any = None) -> Ensemble:
        if len(shop.lesson.blanked[0].record) == 200 and shop.lesson.rows() == 200:
            lead.append(family.name)
            if family.name != lead[0]:
                raise DataError("not usable")
        return honest(shop, family, bar)

    monkeypatch.setattr(Workshop, "model", failing)
    fit = identify(record, effort="quick")
    assert len(lead) == 2
    assert fit.shares == {fit.family.name: 1.0}
    assert not fit.model.beside


@pytest.mark.usefixtures("always")
def test_a_family_that_errs_more_on_its_own_data_than_foretold_leaves_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def own(_: object, __: Judgement, name: str, ___: Ensemble) -> float:
        asked.append(name)
        return np.inf if len(asked) > 1 else 0.0

    monkeypatch.setattr(identifying._Bench, "own", own)
    fit = identify(twins.make("hairdryer-twin", 0).estimation[:200], effort="quick")
    assert sorted(asked) == ["arx", "output-error"]
    assert fit.shares == {fit.family.name: 1.0}
    assert not fit.model.beside
