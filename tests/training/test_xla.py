"""What XLA is told follows its version: it ends a process at a flag that it does not know."""

from typing import Any

import jax
import pytest

from occamid.training import xla

OLDER = {xla.NEWER: False}


@pytest.mark.parametrize(
    ("jaxlib", "flags", "options", "expected"),
    [
        ("0.10.2", "", {}, OLDER),
        ("0.10.2", "--xla_a=1", {"xla_b": 2}, OLDER),
        ("0.10.2", f"--xla_a=1 --{xla.NEWER}=true", {}, {}),
        ("0.10.2", "", {xla.NEWER: True}, {}),
        ("0.11.0", "--xla_a=1", {}, {}),
        ("0.9.1", "", {}, {}),
    ],
)
def test_the_older_way_where_it_is_known_unless_somebody_says_which(
    monkeypatch: pytest.MonkeyPatch,
    jaxlib: str,
    flags: str,
    options: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    monkeypatch.setattr(xla, "version", lambda _: jaxlib)
    monkeypatch.setattr(xla, "on_cpu", lambda: True)
    monkeypatch.setenv(xla.FLAGS, flags)
    assert xla.soon(options) == expected
    monkeypatch.setattr(xla, "on_cpu", lambda: False)
    assert xla.soon(options) == {}


@pytest.mark.parametrize("perceptrons", [True, False])
def test_options_are_known_to_the_compiler_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, perceptrons: bool
) -> None:
    monkeypatch.delenv(xla.AT_ONCE, raising=False)
    options = xla.for_training(perceptrons)
    assert jax.jit(lambda x: 2 * x, compiler_options=options)(3.0) == 6.0
    for jaxlib, known in (("0.10.2", True), ("0.11.0", False)):
        monkeypatch.setattr(xla, "version", lambda _, own=jaxlib: own)
        assert (xla.NEWER in xla.for_training(perceptrons)) == known


def test_light_work_is_ready_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(xla.AT_ONCE, raising=False)
    monkeypatch.setattr(xla, "version", lambda _: "0.10.2")
    assert xla.for_training(True)[xla.NEWER]
    light = xla.for_training(True, light=True)
    assert not light[xla.NEWER]
    assert light["xla_backend_optimization_level"] == 1


def test_who_wants_programs_at_once_gets_no_optimised_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(xla.AT_ONCE, "0")
    assert len(xla.for_training(False)) > 1
    monkeypatch.setenv(xla.AT_ONCE, "1")
    assert set(xla.for_training(False)) == {"xla_cpu_multi_thread_eigen"}
