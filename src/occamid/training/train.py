"""The driver: records and settings in, a batch of sparse models out.

Restarts × λ values are one batch axis through one compiled cycle.  The batch is cut into chunks of
equal size: no larger than the memory budget allows, and on a CPU one for each core, because
several programs side by side use the cores better than one program does.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from occamid.data.lags import propose_lags
from occamid.data.record import Record, as_records
from occamid.data.scaling import Scaling, fit_scaling
from occamid.data.windows import Shape, Windows, all_terms, windows
from occamid.files.checkpoints import Checkpoints, digest_of
from occamid.networks import (
    MLP,
    Network,
    Params,
    Recurrent,
    groups_for,
    matrices,
)
from occamid.networks.flat import size
from occamid.training.batch import DIVERGED, Batch, summarise
from occamid.training.cores import cores, devices, in_turn, on_cpu
from occamid.training.cycle import Info, Program, Schedule, State, compress, cycle, init
from occamid.training.evidence import Prior
from occamid.training.programs import Compiled, kept
from occamid.training.provenance import provenance, provenance_key
from occamid.training.settings import Settings
from occamid.training.xla import ONCE, for_training

LIGHT = 1e10  # multiplications of all restarts, under a second: compiling takes longer
CACHE_MB = 8.0  # a chunk of perceptrons that stays in a core's cache trains a third faster


class Kept(NamedTuple):
    """What stays of every model after every cycle, on the host; the optimiser's moments do not."""

    params: Params
    prior: dict[str, Prior]
    info: Info


class Progress(NamedTuple):
    """Where an identification stands; steps are cycles of chunks."""

    done: int
    total: int
    models: int
    seconds: float
    best_free_run: float  # smallest so far, in scaled units
    sparsity: float  # mean of the chunk just finished


def train(
    records: Record | Iterable[Record],
    settings: Settings | None = None,
    *,
    shape: Shape | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Batch:
    """Identify a dynamic system from one or more estimation records.

    Args:
        records: estimation data; several records are several experiments of one system.
        settings: see :class:`Settings`; defaults serve most records.
        shape: what to pad to, so that other records of about this size share what is compiled;
            see :func:`occamid.data.windows.padded_shape`.
        progress: called after each cycle of each chunk.
        checkpoints: where finished cycles are kept; those of the same settings, data and
            machine are not run again.

    Returns:
        Every model of every cycle with its figures; ``result.best`` is the one to take.
    """
    settings = settings or Settings()
    estimation = as_records(records)
    with _precision(settings):
        scaling = fit_scaling(estimation, settings.scaling)
        scaled = [scaling.apply(r) for r in estimation]
        settings = resolve_lags(settings, scaled)
        program = build_program(settings, scaled[0])
        experiments = windows(scaled, program.terms, program.terms.max_lag, shape)
        data = compress(program.network, experiments, shape.samples if shape else None)
        kept, seconds = _run(program, settings, data, experiments, progress, checkpoints)
    step = estimation[0].sampling_time
    residuals = int(np.asarray(experiments.residuals).sum())
    return _assemble(program, settings, scaling, step, residuals, kept, seconds)


def resolve_lags(settings: Settings, scaled: list[Record]) -> Settings:
    """Replace automatic lags by the proposal from the (scaled) data."""
    if "auto" not in (settings.input_lags, settings.output_lags):
        return settings
    inputs, outputs = propose_lags(scaled, outputs=settings.output_lags != 0)
    return settings.replace(
        input_lags=max(inputs, settings.input_delay)
        if settings.input_lags == "auto"
        else settings.input_lags,
        output_lags=outputs if settings.output_lags == "auto" else settings.output_lags,
    )


def build_network(settings: Settings, n_in: int, n_out: int) -> Network:
    """The dense network the settings describe."""
    if settings.network == "mlp":
        return MLP(n_in, settings.hidden, n_out, settings.activation, settings.bias, settings.skip)
    return Recurrent(
        settings.network,
        n_in,
        settings.hidden,
        n_out,
        settings.activation,
        settings.bias,
        settings.reach,
    )


def build_program(settings: Settings, record: Record) -> Program:
    """What is compiled: terms, network, groups and the variants of the update."""
    assert isinstance(settings.input_lags, int)
    assert isinstance(settings.output_lags, int)
    terms = all_terms(record, settings.input_lags, settings.output_lags, settings.input_delay)
    network = build_network(settings, len(terms), record.y.shape[1])
    names = tuple(matrices(network.specs()))
    return Program(
        network=network,
        terms=terms,
        groups=groups_for(names, settings.structure),
        loss=settings.loss,
        aggregation=settings.aggregation,
        curvature=settings.curvature,
        curvature_count=settings.curvature_count,
    )


@contextmanager
def _precision(settings: Settings) -> Iterator[None]:
    """Double precision inside, where the settings ask for it; nothing global changes."""
    with jax.enable_x64(settings.precision == "double" or jax.config.read("jax_enable_x64")):
        yield


@kept((0,), compiler_options=ONCE)
def init_batch(program: Program, seed: jax.Array, restarts: jax.Array, lam: jax.Array) -> State:
    """Initial states; a restart's weights depend on the seed and its number alone."""
    key = jax.random.key(seed)
    keys = jax.vmap(partial(jax.random.fold_in, key))(restarts)
    return jax.vmap(partial(init, program))(keys, lam)


def _cycle_of_all(
    program: Program, schedule: Schedule, state: State, data: Windows, experiments: Windows
) -> tuple[State, Info]:
    """One cycle of every model of a chunk."""
    one = partial(cycle, program, schedule)
    return jax.vmap(one, in_axes=(0, None, None))(state, data, experiments)


def cycle_program(network: Network, light: bool = False) -> Compiled:
    """The compiled cycle of a chunk of such networks; on a CPU chunks run on a core each."""
    return _cycle_program(on_cpu(), isinstance(network, MLP), light)


@cache
def _cycle_program(cpu: bool, perceptrons: bool, light: bool) -> Compiled:
    options = for_training(perceptrons, light) if cpu else None
    return Compiled(_cycle_of_all, (0,), donate_argnums=2, compiler_options=options)


def bytes_per_model(program: Program, data: Windows, experiments: Windows) -> int:
    """Working memory of one model in training: activations both ways, moments, one simulation."""
    network = program.network
    rows = data.z.shape[0] * data.z.shape[1]
    simulated = experiments.z.shape[0] * experiments.z.shape[1]
    if isinstance(network, MLP):
        width = 4 * (sum(network.hidden) + network.n_out)
    else:
        assert isinstance(network, Recurrent)
        gates = len(network.cell.gates)
        width = (6 * gates + 8) * sum(network.hidden) + 4 * network.n_out
        width += 2 * (network.reach or 0) * sum(network.hidden)
    if program.curvature != "recursive":
        width *= 64  # tangents that run together
    n_params = sum(math.prod(spec.shape) for spec in network.specs().values())
    floats = rows * width + 12 * n_params + 3 * simulated * network.n_out
    return floats * data.z.dtype.itemsize


def budget(settings: Settings, network: Network, workers: int) -> float:
    """Megabytes of all chunks together: perceptrons on a CPU are to stay in its cache."""
    cached = on_cpu() and isinstance(network, MLP)
    return min(settings.memory_mb, CACHE_MB * workers) if cached else settings.memory_mb


def plan_chunks(models: int, per_model: int, memory_mb: float, workers: int) -> int:
    """Models in a chunk: within the budget with all workers busy, and work for every worker."""
    affordable = int(memory_mb * 2**20 / (per_model * workers))
    chunk = max(1, min(affordable, math.ceil(models / workers)))
    return math.ceil(models / math.ceil(models / chunk))  # even out


def _schedule(settings: Settings) -> Schedule:
    """The numbers of a cycle, as arrays: other ones need no other program."""
    return Schedule(
        epochs=jnp.asarray(settings.epochs),
        total=jnp.asarray(settings.epochs * settings.cycles),
        learning_rate=jnp.asarray(settings.learning_rate),
        prune_psi=jnp.asarray(settings.prune_psi),
        prune_weight=jnp.asarray(settings.prune_weight),
    )


def _run(
    program: Program,
    settings: Settings,
    data: Windows,
    experiments: Windows,
    progress: Callable[[Progress], None] | None,
    checkpoints: Checkpoints | None,
) -> tuple[Kept, dict[str, float]]:
    """All chunks through all cycles; arrays lead with (models, cycles)."""
    lam = np.repeat(np.asarray(settings.lam), settings.restarts)
    restart = np.tile(np.arange(settings.restarts), len(settings.lam))
    models, workers = len(lam), cores() if on_cpu() else len(devices())
    memory = budget(settings, program.network, workers)
    alike = settings.restarts if on_cpu() else models  # whatever their λ, they share a program
    chunk = plan_chunks(alike, bytes_per_model(program, data, experiments), memory, workers)
    parts = [np.minimum(np.arange(k, k + chunk), models - 1) for k in range(0, models, chunk)]
    schedule = _schedule(settings)
    seed = jnp.asarray(settings.seed)

    def start(part: np.ndarray) -> State:
        return init_batch(program, seed, *jax.device_put((restart[part], lam[part])))

    began = time.perf_counter()
    work = settings.epochs * settings.cycles * alike * data.y.size * size(program.network)
    one = cycle_program(program.network, work <= LIGHT)
    one.ready(program, schedule, start(parts[0]), data, experiments)
    compiled = time.perf_counter()

    report = _Reporter(progress, len(parts) * settings.cycles, models, compiled)
    stop = threading.Event()
    advance = partial(_advance, one, program, schedule, data, experiments, checkpoints)

    def run(part: np.ndarray, place: Any) -> list[Kept]:
        with _precision(settings), jax.default_device(place):
            state, kept = start(part), []
            key = digest_of(provenance_key(), settings.to_toml(), schedule, state, data)
            for number in range(settings.cycles):
                if stop.is_set():
                    break
                state, info = advance(state, key, number)
                kept.append(Kept(*jax.device_get((state.params, state.prior, info))))
                try:
                    report(kept[-1])
                except BaseException:  # the caller wants to stop: so do the other threads
                    stop.set()
                    raise
            return kept

    with ThreadPoolExecutor(workers) as pool:
        try:
            chunks = list(pool.map(run, parts, in_turn(len(parts))))
        except BaseException:  # Ctrl-C too: the other threads stop after their cycle
            stop.set()
            raise
    joined = jax.tree.map(
        lambda *leaves: np.concatenate(leaves)[:models],  # the last chunk may repeat a model
        *[jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *kept) for kept in chunks],
    )
    return joined, {"compile": compiled - began, "run": time.perf_counter() - compiled}


def _advance(
    one: Compiled,
    program: Program,
    schedule: Schedule,
    data: Windows,
    experiments: Windows,
    checkpoints: Checkpoints | None,
    state: State,
    key: str,
    number: int,
) -> tuple[State, Info]:
    """The next cycle of a chunk: as kept on disk if it is there, else run and kept."""

    if checkpoints is None:
        return one(program, schedule, state, data, experiments)
    like = one.ready(program, schedule, state, data, experiments)
    found = checkpoints.load(key, number, like)
    if found is None:
        found = one(program, schedule, state, data, experiments)
        checkpoints.save(key, number, found)
    return found


class _Reporter:
    """Counts finished cycles over all threads and tells the caller."""

    def __init__(
        self,
        progress: Callable[[Progress], None] | None,
        total: int,
        models: int,
        began: float,
    ) -> None:
        self._progress, self._total, self._models, self._began = progress, total, models, began
        self._lock = threading.Lock()
        self._done, self._best = 0, math.inf

    def __call__(self, kept: Kept) -> None:
        if self._progress is None:
            return
        errors = np.sqrt(np.mean(kept.info.free_run_mse, axis=-1))
        weights = np.concatenate([np.ravel(value) for value in matrices(kept.params).values()])
        with self._lock:
            self._done += 1
            self._best = min([self._best, *errors[np.isfinite(errors)].tolist()])
            seconds = time.perf_counter() - self._began
            self._progress(
                Progress(
                    self._done,
                    self._total,
                    self._models,
                    seconds,
                    self._best,
                    float(np.mean(weights == 0)),
                )
            )


def _assemble(
    program: Program,
    settings: Settings,
    scaling: Scaling,
    sampling_time: float,
    residuals: int,
    kept: Kept,
    seconds: dict[str, float],
) -> Batch:
    """Host arrays and figures in the user's units, (λ, restart, cycle) first."""

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(settings.lam), settings.restarts, *x.shape[1:])

    params = {name: split(np.asarray(kept.params[name])) for name in program.network.specs()}
    info = jax.tree.map(lambda x: split(np.asarray(x, dtype=np.float64)), kept.info)
    table = {
        **summarise(program.network, params),
        "one_step_rmse": np.sqrt(info.one_step_mse) * scaling.y_scale,
        "free_run_rmse": np.sqrt(info.free_run_mse) * scaling.y_scale,
        "log_evidence": info.log_evidence,
        "noise_std": np.sqrt(info.variance)[..., None] * scaling.y_scale,
        "effective_parameters": info.effective,
    }
    finite = np.all(
        [np.isfinite(v).all(axis=tuple(range(3, v.ndim))) for v in params.values()], axis=0
    )
    ran = np.isfinite(info.free_run_mse).all(axis=-1)
    ran &= np.all(info.free_run_peak < DIVERGED * scaling.y_spread, axis=-1)
    empty = table["n_regressors"] == 0
    table["status"] = np.select([~finite, ~ran, empty], [3, 2, 1], default=0)
    return Batch(
        settings=settings,
        network=program.network,
        terms=program.terms,
        scaling=scaling,
        sampling_time=sampling_time,
        count=residuals,
        params=params,
        psi={n: tuple(split(np.asarray(w)) for w in kept.prior[n].psi) for n, _ in program.groups},
        table=table,
        seconds=seconds,
        provenance=provenance(),
    )
