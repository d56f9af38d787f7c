"""Where the seconds go."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from occamid.identification.progress import Stage
from occamid.training.cores import VARIABLE, cores
from occamid_benchmarks import profile as module
from occamid_benchmarks.suite import records


def test_stages_of_all_folds_are_one_line_and_compiling_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(_: Any, *, progress: Any, **__: Any) -> None:
        assert cores() == 1
        progress(Stage("fold 1 of 2: arx", 0.1, 0.0))
        jax.jit(lambda x: jnp.cos(x) * 3.25)(jnp.ones(7)).block_until_ready()
        progress(Stage("fold 2 of 2: arx", 0.2, 0.0))
        sum(k * k for k in range(300_000))
        progress(Stage("training arx", 0.3, 0.0))

    monkeypatch.setattr(module, "identify", work)
    monkeypatch.setattr(records, "load", lambda _: SimpleNamespace(estimation=()))
    monkeypatch.setenv(VARIABLE, "2")
    found = {share.what: share for share in module.profile("any", "quick")}
    assert set(found) == {"reading", "folds: arx", "training arx"}
    assert found["folds: arx"].seconds > 0
    assert found["folds: arx"].programs >= 1
    assert found["training arx"].programs == 0
    assert cores() == 2
