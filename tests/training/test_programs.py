"""Compiled programs are found again without tracing, and only where nothing differs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from occamid.training import programs
from occamid.training.entries import VARIABLE as PROGRAMS
from occamid.training.programs import Compiled, kept


class Pair(NamedTuple):
    one: Any
    other: Any


class Counted:
    """A function that counts how often it is traced; each call of ``new`` is a new process."""

    def __init__(self) -> None:
        self.traced = 0

    def new(self, **options: Any) -> Compiled:
        def scaled(factor: int, pair: Pair, shift: Any) -> Pair:
            self.traced += 1
            return Pair(factor * pair.one + shift, {"sum": jnp.sum(pair.other)})

        return Compiled(scaled, (0,), **options)


PAIR = Pair(np.arange(3.0), np.ones((2, 2)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    monkeypatch.setattr(programs, "LEAST", 0.0)
    return tmp_path


@pytest.fixture
def counted(folder: Path) -> Counted:
    found = Counted()
    check(found.new()(2, PAIR, 1.0))
    assert found.traced == 1
    return found


def check(found: Pair) -> None:
    np.testing.assert_array_equal(found.one, [1.0, 3.0, 5.0])
    assert found.other == {"sum": 4.0}


def test_a_program_is_not_traced_again(counted: Counted, folder: Path) -> None:
    again = counted.new()
    check(again(2, PAIR, 1.0))
    check(again(2, Pair(np.arange(3.0) + 1, PAIR.other), -1.0))  # other numbers, the same program
    assert counted.traced == 1
    assert len(list(folder.iterdir())) == 1
    assert again.programs == 1


DIFFERENT: dict[str, tuple[int, Pair, Any]] = {
    "static": (3, PAIR, 1.0),
    "shape": (2, Pair(np.ones(4), PAIR.other), 1.0),
    "type": (2, Pair(np.arange(3), PAIR.other), 1.0),
    "kind of number": (2, PAIR, 1),
    "number or array": (2, PAIR, np.ones(1)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_traced(counted: Counted, name: str) -> None:
    found = counted.new()(*DIFFERENT[name])
    assert counted.traced == 2
    factor, pair, shift = DIFFERENT[name]
    np.testing.assert_array_equal(found.one, factor * pair.one + shift)


def test_precision_options_and_source_count(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jax.enable_x64(True):
        assert counted.new()(2, PAIR, 1.0).one.dtype == np.float64
    assert counted.traced == 2
    check(counted.new(compiler_options={"xla_cpu_multi_thread_eigen": False})(2, PAIR, 1.0))
    assert counted.traced == 3
    with jax.default_matmul_precision("highest"):
        check(counted.new()(2, PAIR, 1.0))
    assert counted.traced == 4
    monkeypatch.setattr(programs, "_surroundings", lambda: "another version")
    check(counted.new()(2, PAIR, 1.0))
    assert counted.traced == 5


OTHER = {"jax_numpy_dtype_promotion": "strict", "jax_default_prng_impl": "rbg"}


@pytest.mark.parametrize("name", [*programs.TOLD, programs.AT_ONCE])
def test_settings_are_looked_at_as_they_are_now(name: str) -> None:
    before = programs._settings()
    told = before[[*programs.TOLD, programs.AT_ONCE].index(name)]
    try:
        jax.config.update(name, OTHER.get(name, "highest" if told is None else not told))
        assert programs._settings() != before
    finally:
        jax.config.update(name, told)
    assert programs._settings() == before


def test_settings_and_source_are_the_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def now() -> str:
        return programs._surroundings.__wrapped__()

    monkeypatch.setattr(programs, "PACKAGE", tmp_path)
    (tmp_path / "one.py").write_text("a = 1")
    before = now()
    assert now() == before
    (tmp_path / "one.py").write_text("a = 2")
    after = now()
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    assert len({before, after, now()}) == 3


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b[:40] + b"x" + b[41:], lambda b: b""]
)
def test_a_spoilt_entry_is_made_anew(
    counted: Counted, folder: Path, spoil: Callable[[bytes], bytes]
) -> None:
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(spoil(whole))
    check(counted.new()(2, PAIR, 1.0))
    check(counted.new()(2, PAIR, 1.0))
    assert counted.traced == 2
    assert len(list(folder.iterdir())) == 1


def test_without_a_folder_memory_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMS, "")
    counted = Counted()
    one = counted.new()
    for _ in range(3):
        check(one(2, PAIR, 1.0))
    assert counted.traced == 1
    one.forget()
    check(one(2, PAIR, 1.0))
    assert one.programs == 1


def test_a_folder_is_made(folder: Path) -> None:
    folder.rmdir()
    counted = Counted()
    for _ in range(2):
        check(counted.new()(2, PAIR, 1.0))
    assert counted.traced == 1


def test_a_folder_that_cannot_be_made_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv(PROGRAMS, str(folder / "file"))
    check(Counted().new()(2, PAIR, 1.0))


def test_a_description_that_does_not_last_is_not_kept(folder: Path) -> None:
    class Odd:  # its description is an address
        pass

    ran = Compiled(lambda odd, x: x + 1, (0,))(Odd(), np.ones(2))
    np.testing.assert_array_equal(ran, [2.0, 2.0])
    assert not list(folder.iterdir())


def test_inside_another_program_it_is_a_part_of_that(counted: Counted) -> None:
    one = counted.new()
    check(jax.jit(lambda pair: one(2, pair, 1.0))(PAIR))
    slope = jax.grad(lambda x: one(2, Pair(x, x), 1.0).one.sum())(np.ones(3, np.float32))
    np.testing.assert_array_equal(slope, [2.0, 2.0, 2.0])


def test_threads_make_a_program_once(folder: Path) -> None:
    counted = Counted()
    one, barrier = counted.new(), threading.Barrier(4)

    def run() -> None:
        barrier.wait()
        check(one(2, PAIR, 1.0))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.traced == 1


def test_shapes_are_known_before_a_run(counted: Counted) -> None:
    for _ in range(2):
        shapes = counted.new().ready(2, PAIR, 1.0)
        assert shapes.one.shape == (3,)
        assert shapes.other["sum"].dtype == np.float32
    assert counted.traced == 1


def test_given_away_arguments_stay_given_away(folder: Path) -> None:
    traced = []

    def more(x: Any) -> Any:
        traced.append(x)
        return x + 1

    for _ in range(2):
        one = Compiled(more, (), donate_argnums=0)
        x = jnp.ones(100)
        np.testing.assert_array_equal(one(x), 2 * np.ones(100))
        assert x.is_deleted()
    assert len(traced) == 1


SOLVES = """
import numpy as np
import jax.numpy as jnp
from occamid.training import programs
programs.LEAST = 0.0

@programs.kept()
def solved(A, b):
    print("traced")
    return jnp.linalg.cholesky(A) @ jnp.linalg.solve(A, b)

A = np.array([[4.0, 2.0], [2.0, 5.0]])
np.testing.assert_allclose(solved(A, A @ np.ones(2)), [2.0, 3.0], rtol=1e-6)
"""


def test_a_new_process_finds_linear_algebra(folder: Path) -> None:
    """JAX looks LAPACK up when it lowers a program; one that is only read would crash."""
    said = [
        subprocess.run(
            [sys.executable, "-c", SOLVES], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said == ["traced\n", ""]


def test_a_kept_function_has_its_name_and_words() -> None:
    @kept((0,))
    def named(factor: int, x: Any) -> Any:
        """Say it."""
        return factor * x

    assert named.__doc__ == "Say it."
    assert named.name.endswith("named")
