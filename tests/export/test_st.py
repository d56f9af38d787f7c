"""Structured Text: our grammar of the subset, another parser's grammar, and the same free run."""

from __future__ import annotations

import numpy as np
import pytest

from occamid.bands.ensemble import Ensemble
from occamid.export import st
from occamid.export.description import describe
from occamid.export.names import identifiers
from occamid.training.model import Model
from tests.support.exports import plain_loop, random_ensemble, random_model, signals
from tests.support.structured_text import load

CASES: dict[str, Model | Ensemble] = {
    "one input": random_model(0, delay=1, lags=2),
    "two by two with skip": random_model(1, "mlp", 2, 2, (3,), activation="gelu", skip=True),
    "lstm": random_model(2, "lstm", 1, 1, (3,)),
    "large, tables": random_model(6, "mlp", 1, 1, (12, 8), activation="softplus", density=0.9),
    "ensemble": random_ensemble(4, 3, nu=2, lags=2, activation="elu"),
    "ties of an equal ensemble": random_ensemble(4, 2, equal=True, kind="rnn", ny=2, lags=2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_block_runs_free_as_the_model_does(name: str) -> None:
    model = CASES[name]
    d = describe(model)
    u, y = signals(model, 14)
    expected = plain_loop(model, u, y)
    inputs, outputs = identifiers(d.input_names, "in"), identifiers(d.output_names, "out")
    block = load(st.files(d)["model.st"])
    found = []
    for t, now in enumerate(u):
        known = y[min(t, len(y) - 1)]
        block.call(
            Restart=t == 0,
            Correct=t < len(y),
            **dict(zip(inputs, now, strict=True)),
            **{f"m_{n}": v for n, v in zip(outputs, known, strict=True)},
        )
        found.append([block.values[n.lower()] for n in outputs])
    np.testing.assert_allclose(found[len(y) :], expected[len(y) :], rtol=1e-9)


def test_another_parser_of_the_language_accepts_it() -> None:
    parse = pytest.importorskip("blark.parse")
    model = random_ensemble(4, 2, kind="lstm", lags=1, hidden=(1,))
    found = parse.parse_source_code(st.files(describe(model), "if", "float")["if.st"])
    assert found.exception is None
    assert found.tree is not None


def test_literals_have_a_decimal_point() -> None:
    assert st.literal(1.0) == "1.0"
    assert st.literal(-1e-20) == "-1.0E-20"
    assert st.literal(1.5e300) == "1.5E300"
