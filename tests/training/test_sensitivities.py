"""Sensitivities of the free run against dense autodiff and finite differences of a loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid import Record
from occamid.data.windows import Terms, all_terms, one_after_the_other, windows
from occamid.networks import MLP, Recurrent
from occamid.networks.flat import unflatten
from occamid.networks.simulate import free_run
from occamid.training.lanes import in_lanes, sensitivities
from tests.support import oracles
from tests.support.oracles import Array

pytestmark = pytest.mark.usefixtures("x64")

ours = jax.jit(sensitivities, static_argnums=(0, 1))


def lagged(nu: int, ny: int, inputs: int, outputs: int) -> Terms:
    record = Record(u=np.zeros((9, nu)), y=np.zeros((9, ny)))
    return all_terms(record, inputs, outputs)


HOLES = Terms(((0, 3), (0, 1), (1, 2)), ((0, 4), (0, 1), (1, 3)), ("u1", "u2"), ("y1", "y2"))
CASES: dict[str, tuple[MLP | Recurrent, Terms]] = {
    "tanh": (MLP(6, (3,), 1, "tanh"), lagged(1, 1, 2, 3)),
    "tanh, skip, no bias": (MLP(6, (3,), 1, "tanh", False, True), lagged(1, 1, 3, 2)),
    "relu, skip": (MLP(5, (3,), 1, "relu", True, True), lagged(1, 1, 2, 2)),
    "relu, two outputs": (MLP(8, (3,), 2, "relu"), lagged(2, 2, 1, 2)),
    "tanh, skip, lags with holes": (MLP(6, (3,), 2, "tanh", True, True), HOLES),
    "tanh, skip, no output lags": (MLP(4, (3,), 2, "tanh", True, True), lagged(1, 2, 3, 0)),
    "lstm": (Recurrent("lstm", 5, (3,), 1), lagged(1, 1, 2, 2)),
    "lstm, two layers, lags with holes": (Recurrent("lstm", 6, (2, 3), 2), HOLES),
    "rnn, no output lags": (Recurrent("rnn", 4, (3,), 2), lagged(1, 2, 3, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_sensitivities(case: str) -> None:
    """Against forward autodiff through the scan, and finite differences of a Python loop."""
    network, regressors = CASES[case]
    nu, ny = len(regressors.input_names), len(regressors.output_names)
    rng = np.random.default_rng(1)
    records = [
        Record(u=rng.normal(size=(n, nu)), y=rng.normal(size=(n, ny)), sampling_time=1.0)
        for n in (17, 15, 32, 12)  # the first two share a lane
    ]
    start = regressors.max_lag + 1
    data = windows(records, regressors, start)
    size = sum(int(np.prod(spec.shape)) for spec in network.specs().values())
    w = 0.4 * np.random.default_rng(2).normal(size=size)
    dense = jax.jit(
        jax.jacfwd(
            lambda v, e: free_run(network, regressors, unflatten(network, v), e, 0), argnums=0
        )
    )
    lanes = in_lanes(data, regressors)
    places = one_after_the_other([len(r) - start for r in records], data.y.shape[1])
    assert len({lane for lane, _ in places}) == len(lanes.y) < len(records)
    all_runs, all_S = ours(network, regressors, jnp.asarray(w), lanes)
    for k, record in enumerate(records):
        experiment = jax.tree.map(lambda x, k=k: x[k], data)
        rows, (lane, first) = len(record) - start, places[k]
        run, S = (x[lane, first : first + rows] for x in (all_runs, all_S))
        assert np.abs(S).max() > 0.3  # something to compare
        expected = dense(jnp.asarray(w), experiment)[:rows]
        np.testing.assert_allclose(S, expected, rtol=1e-10, atol=1e-12)

        def loop(v: Array, record: Record = record) -> Array:
            terms = (regressors.inputs, regressors.outputs)
            step, state = oracles.step_of(network, unflatten(network, v))
            return oracles.free_run(step, state, record.u, record.y[:start], terms, start)[start:]

        np.testing.assert_allclose(run, loop(w), rtol=1e-11, atol=1e-13)
        d = 1e-6
        differences = [(loop(w + d * e) - loop(w - d * e)) / (2 * d) for e in np.eye(w.size)]
        np.testing.assert_allclose(S, np.stack(differences, axis=-1), atol=1e-7)
