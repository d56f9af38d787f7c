"""A network inside a larger one gives the same outputs, and many share what is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from occamid.data.windows import Terms, Windows, windows
from occamid.networks import MLP, Network, Observer, Recurrent
from occamid.networks.flat import flatten, size, unflatten
from occamid.networks.simulate import free_run
from occamid.training import members
from occamid.training.batch import free_runs
from occamid.training.members import members_of
from occamid.training.wide import again, widen
from tests.support.exports import random_model, signals
from tests.support.small import small_record

TERMS = Terms(
    inputs=((0, 3), (1, 0)),
    outputs=((0, 4), (0, 1), (1, 2)),
    input_names=("u1", "u2"),
    output_names=("y1", "y2"),
)


def data_for(terms: Terms) -> Windows:
    rng = np.random.default_rng(0)
    record = small_record(60)
    record = replace(
        record,
        u=rng.normal(size=(60, 2)),
        y=rng.normal(size=(60, 2)),
        input_names=terms.input_names,
        output_names=terms.output_names,
    )
    return windows([record], terms, 6)


@pytest.mark.parametrize(("lags", "units"), [(2, 5), (12, 3)])
def test_many_terms_leave_no_room_for_more_units_where_running_is_dear(
    lags: int, units: int
) -> None:
    terms = replace(TERMS, inputs=tuple((c, k) for c in (0, 1) for k in range(lags)))
    network = MLP(len(terms), (3,), 2, "tanh")
    assert widen(network, terms, dear=True).network.hidden == (units,)
    assert widen(network, terms).network.hidden == (5,)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("step", [5, 20])
@pytest.mark.parametrize("hidden", [(1,), (3,), (4, 6)])
def test_a_free_run_in_the_larger_network_is_the_same(hidden: tuple[int, ...], step: int) -> None:
    network = MLP(len(TERMS), hidden, 2, "tanh", bias=True, skip=True)
    flat = np.random.default_rng(1).normal(scale=0.3, size=size(network))
    data = data_for(TERMS)
    wide = widen(network, TERMS, step)
    assert wide.network.n_in == len(wide.terms) > len(TERMS)
    more = wide.windows(data, 80)
    assert more.y.shape == (1, 80, 2)
    runs = [
        free_run(net, terms, unflatten(net, w), jax.tree.map(lambda x: x[0], d), 3)
        for net, terms, w, d in (
            (network, TERMS, flat, data),
            (wide.network, wide.terms, wide.spread(flat), more),
        )
    ]
    np.testing.assert_allclose(runs[1][: len(runs[0])], runs[0], rtol=1e-12)


def test_values_are_spread_along_any_axis() -> None:
    network = MLP(len(TERMS), (3,), 2, "tanh")
    wide, count = widen(network, TERMS), size(network)
    factor = np.arange(2.0 * count * 4).reshape(2, count, 4)
    found = wide.spread(factor, axis=1, rest=7.0)
    assert found.shape == (2, size(wide.network), 4)
    np.testing.assert_array_equal(found[:, wide.places], factor)
    assert np.all(np.delete(found, wide.places, axis=1) == 7.0)
    assert len(set(wide.places.tolist())) == count


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("hidden", [(1, 0), (3, 2), (4, 5), (6, 1)])
def test_an_observer_in_a_larger_one_runs_the_same(hidden: tuple[int, int]) -> None:
    """Measured outputs correct the state in the first rows, so its filter counts, too."""
    terms = Terms(((0, 0), (1, 0)), ((0, 1), (1, 1)), ("u1", "u2"), ("y1", "y2"))
    network = Observer(4, hidden, 2)
    rng = np.random.default_rng(2)
    tree = unflatten(network, 0.3 * rng.normal(size=size(network)))
    root = rng.normal(size=(hidden[0], hidden[0]))
    tree |= {"filter.P": root @ root.T, "filter.Q": 0.1 * np.eye(hidden[0])}
    tree |= {"filter.R": np.array([0.1, 0.2])}
    flat, data = flatten(network, tree), data_for(terms)
    wide = widen(network, terms)
    assert wide.network.hidden == (-(-hidden[0] // 4) * 4, hidden[1] if hidden[1] < 2 else 5)
    runs = [
        free_run(net, terms, unflatten(net, w), jax.tree.map(lambda x: x[0], data), 20)
        for net, w in ((network, flat), (wide.network, wide.spread(flat)))
    ]
    np.testing.assert_allclose(runs[1], runs[0], rtol=1e-9, atol=1e-12)


def test_a_network_with_a_state_stays_what_it_is() -> None:
    network: Network = Recurrent("lstm", len(TERMS), (3,), 2)
    wide = widen(network, TERMS)
    assert (wide.network, wide.terms) == (network, TERMS)
    np.testing.assert_array_equal(wide.places, np.arange(size(network)))


def test_models_of_about_one_size_share_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[tuple[object, ...]] = set()

    def seen(
        network: Network, terms: Terms, params: Any, data: Windows, forced: int, count: int
    ) -> Any:
        shapes = [x.shape for x in jax.tree.leaves((params, data))]
        names.add((network, terms, *shapes))
        return free_runs(network, terms, params, data, forced, count)

    monkeypatch.setattr(members, "free_runs", seen)
    for units, lags, rows in ((3, 2, 300), (5, 4, 1280), (8, 3, 4096)):
        model = random_model(0, hidden=(units,), lags=lags)
        u, y = signals(model, rows)
        runs = members_of([model] * (units - 1)).free_run(u, y[:5])
        assert runs.shape == (units - 1, rows, 1)
    assert len(names) == 1


def test_models_come_in_few_numbers_but_one_stays_alone() -> None:
    assert again(1).tolist() == [0]
    assert again(3).tolist() == [0, 1, 2, 0, 1]
    assert {len(again(count)) for count in range(2, 6)} == {5}
    assert {len(again(count, 10)) for count in range(2, 11)} == {10}
