"""Compiled programs that are kept with what calls them and found again without being traced.

JAX's own cache finds machine code only by tracing and lowering a function first, which for our many
small programs takes far longer than reading them.  A function that is :func:`kept` is found by its
name, its static arguments and the shapes of the others; of the source of this package, the
versions of JAX, its settings and the device nothing may differ.

Entries lie where :func:`~occamid.training.entries.folder` says.  Beside a cache of JAX's own
programs are kept in memory alone: what that has read cannot be written again.  As with JAX's
entries, whoever can write there can run code here.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from occamid.training import entries
from occamid.training.cores import device
from occamid.training.xla import processor, soon

LEAST = 0.1  # seconds that a program must have taken to be worth an entry
PACKAGE = Path(__file__).parent.parent
VARIABLES = "XLA_FLAGS", "JAX_", "LIBTPU_"  # those that change what is compiled begin so
TOLD = (  # settings that do
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion"),
    *("jax_threefry_partitionable", "jax_default_prng_impl"),
)
AT_ONCE = "jax_disable_most_optimizations"  # another, which is no attribute


class Compiled:
    """A function whose compiled programs are kept; it is called as ``jax.jit`` of it would be.

    Args:
        function: what is compiled.
        static: the numbers of its static arguments.
        options: of ``jax.jit``.
    """

    def __init__(self, function: Callable[..., Any], static: Sequence[int], **options: Any) -> None:
        self.jitted = jax.jit(function, static_argnums=tuple(static), **options)
        self.static = frozenset(static)
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.options = repr(sorted(options.items()))
        self.told = options.get("compiler_options") or {}
        self.__doc__, self.__wrapped__ = function.__doc__, function
        self._found: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        _ALL.append(self)

    def __call__(self, *args: Any) -> Any:
        """Run the program for these arguments; inside another program, be a part of that."""
        dynamic = tuple(arg for k, arg in enumerate(args) if k not in self.static)
        leaves, tree = jax.tree.flatten(dynamic)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self.jitted(*args)
        return self._program(args, dynamic, leaves, tree)(*dynamic)

    def ready(self, *args: Any) -> Any:
        """Make the program for these arguments without running it; shapes of its results."""
        dynamic = tuple(arg for k, arg in enumerate(args) if k not in self.static)
        return self._program(args, dynamic, *jax.tree.flatten(dynamic)).out_info

    def forget(self) -> None:
        """Give up the programs in memory."""
        with self._lock:
            self._found, self._locks = {}, {}

    @property
    def programs(self) -> int:
        """How many there are in memory."""
        return len(self._found)

    def _program(self, args: tuple, dynamic: tuple, leaves: list[Any], tree: Any) -> Any:
        statics = tuple(args[k] for k in sorted(self.static) if k < len(args))
        key = (statics, tree, tuple(map(_kind, leaves)), _settings(), device())
        found = self._found.get(key)
        if found is not None:
            return found
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:  # who comes second waits for the first
            found = self._found.get(key)
            if found is None:
                path = _path(self.name, self.options, key)
                found = _read(path, dynamic) if path else None
            if found is None:
                began = time.perf_counter()
                found = self.jitted.lower(*args).compile(soon(self.told))
                if path and time.perf_counter() - began >= LEAST:
                    _write(path, found)
            self._found[key] = found
        return found


_ALL: list[Compiled] = []


def kept(static: Sequence[int] = (), **options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Decorate a function that is compiled, with the numbers of its static arguments."""
    return partial(Compiled, static=static, **options)


def forget() -> None:
    """Give up all programs in memory, JAX's too."""
    for one in _ALL:
        one.forget()
    jax.clear_caches()


def _settings() -> tuple:
    """What JAX was told in this thread that changes what it traces or compiles."""
    return (*(getattr(jax.config, name) for name in TOLD), jax.config.read(AT_ONCE))


def _kind(leaf: Any) -> Hashable:
    """What a program depends on in an argument: type for Python's numbers, else shape and type."""
    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf).__name__
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)


def _path(name: str, options: str, key: tuple) -> Path | None:
    """Where a program is kept; nowhere if its static arguments have no lasting description."""
    folder = entries.folder()
    if folder is None or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return None
    statics, tree, kinds, told, place = key
    where = place.device_kind, place.id, place.client.platform_version
    about = repr((name, options, statics, str(tree), kinds, told, where))
    if " at 0x" in about:
        return None
    digest = sha256(f"{_surroundings()} {about}".encode()).hexdigest()
    return folder / f"{name}-{digest}{entries.ENTRY}"


@cache
def _surroundings() -> str:
    """Versions, processor, variables and the source of this package."""
    found = sha256(" ".join([*map(version, ("jax", "jaxlib", "occamid")), processor()]).encode())
    for name in sorted(os.environ):
        if name.startswith(VARIABLES):
            found.update(f"{name}={os.environ[name]};".encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return found.hexdigest()


@cache
def _algebra_at_hand() -> None:
    """Let JAX look up LAPACK, which it does when it lowers a call of it; else programs crash."""
    one = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jnp.linalg.cholesky).trace(one).lower(lowering_platforms=("cpu",))


def _write(path: Path, compiled: Any) -> None:
    """Make an entry of a program, where JAX can write it, and Python."""
    try:
        payload, _, tree = serialize(compiled)
        shape = jax.tree.unflatten(tree, range(tree.num_leaves))
        content = pickle.dumps((payload, shape))
    except Exception:  # it is traced again next time
        return
    entries.write(path, content)


def _read(path: Path, dynamic: tuple) -> Any:
    """The program of an entry, if there is one that is whole and can be used here."""
    content = entries.read(path)
    if content is None:
        return None
    try:
        payload, shape = pickle.loads(content)
        trees = jax.tree.structure((dynamic, {})), jax.tree.structure(shape)
        place = device()
        _algebra_at_hand()
        return deserialize_and_load(
            payload, *trees, backend=place.client, execution_devices=[place]
        )
    except Exception:  # of another kind than expected: it is compiled again
        return None
