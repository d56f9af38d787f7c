"""The driver: batching, chunking, seeds, statuses, compilation."""

import jax
import numpy as np
import pytest

from occamid import Batch, Index, Settings, train
from occamid.data.windows import windows
from occamid.errors import DataError, OccamidError
from occamid.networks import MLP, Recurrent
from occamid.training import train as module
from occamid.training.batch import STATUS
from occamid.training.cycle import Schedule
from occamid.training.train import (
    CACHE_MB,
    Progress,
    budget,
    bytes_per_model,
    cycle_program,
    plan_chunks,
)
from tests.support.small import SMALL, small_record
from tests.support.trained import batch_of


def traces() -> int:
    """How many versions of the cycle of perceptrons there are in this process."""
    return sum(cycle_program(MLP(1, (1,), 1), light).programs for light in (False, True))


def same(a: Batch, b: Batch, tolerance: float) -> None:
    for name in a.params:
        np.testing.assert_allclose(a.params[name], b.params[name], rtol=tolerance, atol=tolerance)
    for name in ("one_step_rmse", "free_run_rmse", "sparsity", "log_evidence"):
        np.testing.assert_allclose(a.table[name], b.table[name], rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def result() -> Batch:
    return batch_of("mlp")


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_a_batch_equals_batches_of_one(network: str) -> None:
    settings = SMALL.replace(network=network, restarts=20, epochs=10, cycles=2)
    together = train(small_record(), settings)
    program = module.build_program(settings, small_record())
    with jax.enable_x64(True):
        scaling = together.scaling
        data = windows([scaling.apply(small_record())], program.terms, 3)
        numbers = Schedule(
            *(jax.numpy.asarray(v) for v in (10, 20, settings.learning_rate, 1e-3, 1e-3))
        )
        for restart in range(20):
            state = module.init_batch(
                program, 0, jax.numpy.array([restart]), jax.numpy.array(settings.lam)
            )
            for cycle in range(2):
                state, info = cycle_program(program.network)(program, numbers, state, data, data)
                for name, value in state.params.items():
                    batch = together.params[name][0, restart, cycle]
                    np.testing.assert_allclose(value[0], batch, rtol=1e-5, atol=1e-5)
                free = np.sqrt(info.free_run_mse[0]) * scaling.y_scale
                np.testing.assert_allclose(
                    free, together.table["free_run_rmse"][0, restart, cycle], rtol=1e-5
                )


def test_chunked_equals_unchunked(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SMALL.replace(restarts=7, lam=(1e-3, 3e-3))
    sizes: list[int] = []

    def spy(*arguments: object) -> int:
        sizes.append(plan_chunks(*arguments))  # type: ignore[arg-type]
        return sizes[-1]

    monkeypatch.setattr(module, "plan_chunks", spy)
    whole = train(small_record(), settings)
    parts = train(small_record(), settings.replace(memory_mb=0.1))
    assert sizes[1] < sizes[0]
    same(whole, parts, 1e-6)


def test_chunks_stay_within_the_budget_and_cover_all() -> None:
    for models in (1, 7, 100, 2000):
        for workers in (1, 2, 16):
            chunk = plan_chunks(models, 2**20, 64.0, workers)
            assert 1 <= chunk <= models
            assert chunk * workers <= 64 or chunk == 1
            assert chunk * -(-models // chunk) - models < chunk


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_the_memory_estimate_is_near_the_compilers(network: str) -> None:
    """Temporary memory of the compiled cycle, per model, within a factor of three."""
    settings = SMALL.replace(network=network, hidden=(20,), precision="single")
    record = small_record(600)
    program = module.build_program(settings, record)
    data = windows([record], program.terms, 3)
    batch = 16
    numbers = Schedule(*(jax.numpy.asarray(v) for v in (10, 20, 1e-2, 1e-3, 1e-3)))
    state = module.init_batch(program, 0, jax.numpy.arange(batch), jax.numpy.full(batch, 1e-3))
    jitted = cycle_program(program.network).jitted
    compiled = jitted.lower(program, numbers, state, data, data).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    used = analysis.temp_size_in_bytes / batch
    assert used / 3 < bytes_per_model(program, data, data) < used * 3


def test_a_seed_fixes_everything(result: Batch) -> None:
    again = train(small_record(), SMALL)
    for name in result.params:
        np.testing.assert_array_equal(result.params[name], again.params[name])
    other = train(small_record(), SMALL.replace(seed=1))
    assert np.max(np.abs(other.params["layer0.W"] - result.params["layer0.W"])) > 1e-3


def test_a_restart_does_not_depend_on_how_many_there_are(result: Batch) -> None:
    fewer = train(small_record(), SMALL.replace(restarts=2))
    np.testing.assert_allclose(
        fewer.params["layer0.W"][0], result.params["layer0.W"][0, :2], rtol=1e-6, atol=1e-9
    )


def test_some_of_the_values_of_lambda_are_a_training_of_their_own() -> None:
    several = train(small_record(), SMALL.replace(restarts=3, lam=(1e-3, 3e-3, 1e-2)))
    alone = train(small_record(), SMALL.replace(restarts=3, lam=(1e-2, 1e-3)))
    part = several.only((1e-2, 1e-3))
    assert part.settings == alone.settings
    assert part.shape == alone.shape
    same(part, alone, 1e-6)


def test_trainings_with_more_values_of_lambda_need_no_other_program() -> None:
    settings = SMALL.replace(restarts=3, hidden=(7,))
    train(small_record(), settings.replace(lam=(1e-3,)))
    before = traces()
    train(small_record(), settings.replace(lam=(1e-3, 3e-3)))
    assert traces() == before


def test_light_work_is_compiled_with_less_care(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def spy(network: MLP, light: bool = False) -> object:
        asked.append(light)
        return cycle_program(network, light)

    monkeypatch.setattr(module, "cycle_program", spy)
    train(small_record(), SMALL.replace(restarts=1))
    monkeypatch.setattr(module, "LIGHT", 0.0)
    train(small_record(), SMALL.replace(restarts=1))
    assert asked == [True, False]


def test_a_cycle_is_traced_once() -> None:
    """Other seeds, λ, epochs, rates and thresholds reuse the compiled program."""
    settings = SMALL.replace(hidden=(5,))
    train(small_record(), settings)
    before = traces()
    changed = settings.replace(
        seed=3, lam=(5e-3,), epochs=17, cycles=2, learning_rate=3e-3, prune_psi=1e-2
    )
    train(small_record(seed=1), changed)
    assert traces() == before


def test_rows_cover_lambda_restart_cycle(result: Batch) -> None:
    rows = list(result.rows())
    assert len(rows) == 1 * 4 * 3
    assert [r.cycle for r in rows[:3]] == [1, 2, 3]
    for index in np.ndindex(*result.shape):
        row, model = result.row(Index(*index)), result.model(Index(*index))
        assert row.sparsity == pytest.approx(model.sparsity)
        assert row.n_regressors == len(model.regressors)
        assert row.n_neurons == sum(model.neurons)
        record = small_record()
        predicted = model.predict(record).mean
        residual = (record.y - predicted)[result.start :]
        assert row.one_step_rmse[0] == pytest.approx(np.sqrt(np.mean(residual**2)), rel=1e-8)
        run = model.free_run(record.u, record.y[: result.start])
        miss = (record.y - run)[result.start :]
        assert row.free_run_rmse[0] == pytest.approx(np.sqrt(np.mean(miss**2)), rel=1e-8)


def test_batch_simulation_equals_single_models(result: Batch) -> None:
    record = small_record(seed=5)
    runs = result.free_runs(record, n_init=9)
    model = result.model(Index(0, 2, 1))
    np.testing.assert_allclose(
        runs[0, 2, 1], model.free_run(record.u, record.y[:9]), rtol=1e-4, atol=1e-4
    )


def test_the_best_is_near_the_best_score_and_has_most_evidence(result: Batch) -> None:
    score, best = result.score, result.best_index
    assert score[best] <= (1 + result.settings.tolerance) * score.min()
    near = score <= (1 + result.settings.tolerance) * score.min()
    assert result.table["log_evidence"][best] == result.table["log_evidence"][near].max()
    order = result.ranking(4)
    assert order[0] == best
    assert len({(i.lam, i.restart) for i in order}) == 4


def test_several_records_are_not_joined() -> None:
    """Two records give the windows of each; a joined record would have more."""
    a, b = small_record(80, 1), small_record(60, 2)
    both = train([a, b], SMALL.replace(cycles=1))
    assert both.count == (80 - 3) + (60 - 3)
    model = both.model(Index(0, 0, 0))
    total = 2 * (model.energy(a) + model.energy(b)) / both.count
    assert both.table["one_step_rmse"][0, 0, 0, 0] ** 2 == pytest.approx(total, rel=1e-8)


def test_broken_models_are_marked_and_do_not_disturb_the_rest() -> None:
    """A huge learning rate breaks some models; the batch survives and says which."""
    wild = train(small_record(), SMALL.replace(learning_rate=1e200, network="rnn"))
    for row, index in zip(wild.rows(), np.ndindex(*wild.shape), strict=True):
        finite = all(np.isfinite(v[index]).all() for v in wild.params.values())
        assert (row.status == "non-finite") == (not finite)
        assert np.isinf(wild.score[index])  # none of them can be taken
    assert "non-finite" in {row.status for row in wild.rows()}


def test_a_diverging_free_run_is_marked() -> None:
    """Steps of 30 leave finite weights whose free run explodes."""
    settings = SMALL.replace(activation="identity", learning_rate=30.0, epochs=3, cycles=1)
    found = train(small_record(), settings)
    assert {STATUS[s] for s in np.unique(found.table["status"])} == {"diverged"}
    assert all(np.isfinite(value).all() for value in found.params.values())
    assert np.all(np.isinf(found.score))


def test_everything_pruned_is_called_empty() -> None:
    found = train(small_record(), SMALL.replace(prune_weight=50.0))
    assert {STATUS[s] for s in np.unique(found.table["status"])} == {"empty"}
    assert found.model(Index(0, 0, 2)).regressors == ()
    with pytest.raises(OccamidError, match=r"no model is usable \(12 empty\); try a smaller lam"):
        _ = found.best


def test_progress_counts_every_cycle_of_every_chunk() -> None:
    seen: list[Progress] = []
    found = train(small_record(), SMALL, progress=seen.append)
    assert [p.done for p in seen] == list(range(1, seen[0].total + 1))
    assert seen[-1].models == 4
    errors = found.table["free_run_rmse"] / found.scaling.y_scale
    assert seen[-1].best_free_run == pytest.approx(errors.min(), rel=1e-6)


def test_progress_tells_the_sparsity_of_what_is_just_finished() -> None:
    seen: list[Progress] = []
    found = train(small_record(), SMALL.replace(restarts=1, prune_weight=0.1), progress=seen.append)
    sparsity = found.table["sparsity"][0, 0]
    assert [p.sparsity for p in seen] == pytest.approx(sparsity.tolist())
    assert 0 < sparsity[0] <= sparsity[-1] < 1


def test_an_error_in_the_callback_stops_the_run() -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small_record(), SMALL, progress=stop)


def test_too_few_rows_for_the_lags() -> None:
    with pytest.raises(DataError) as error:
        train(small_record(20)[:4], SMALL.replace(input_lags=4))
    assert str(error.value) == (
        'record "small" has 4 rows, but the lags need more than 4; '
        "use a longer record or fewer lags."
    )


def test_defaults_choose_lags_from_the_data() -> None:
    found = train(small_record(400), Settings(restarts=2, epochs=5, cycles=1, hidden=(3,)))
    assert isinstance(found.settings.input_lags, int)
    assert 1 <= found.settings.input_lags <= 40
    assert train(small_record(400), found.settings).settings == found.settings


def test_chunks_of_perceptrons_stay_in_the_cache_and_others_in_the_budget() -> None:
    large, small = Settings(memory_mb=1000.0), Settings(memory_mb=5.0)
    perceptron, recurrent = MLP(4, (3,), 1), Recurrent("lstm", 4, (3,), 1)
    assert budget(large, perceptron, 3) == 3 * CACHE_MB
    assert budget(small, perceptron, 3) == 5.0
    assert budget(large, recurrent, 3) == 1000.0
