"""Model files: the round trip, and refusals of what is damaged or foreign."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from occamid import Ensemble, FileError, Index, combine, ensemble_of, fit_posterior, load
from occamid.bands.mixture import Feedback
from occamid.bands.modelfile import FORMAT, read_about
from tests.support.small import small_record
from tests.support.trained import batch_of


@pytest.fixture(scope="module", params=["mlp", "lstm"])
def ensemble(request: pytest.FixtureRequest) -> Ensemble:
    return ensemble_of(batch_of(request.param), small_record(), count=2)


@pytest.fixture
def path(ensemble: Ensemble, tmp_path: Path) -> Path:
    ensemble.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def rewrite(path: Path, arrays: dict[str, np.ndarray] | None = None, **changes: object) -> None:
    """The same file with some arrays or header entries changed."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads((file.metadata() or {})["occamid"])
    found = load_file(path) | (arrays or {})
    save_file(found, path, metadata={"occamid": json.dumps(header | changes)})


def test_a_saved_ensemble_comes_back(ensemble: Ensemble, path: Path) -> None:
    again = load(path)
    record = small_record(60, seed=7)
    np.testing.assert_array_equal(
        again.free_run(record.u, record.y[:3]), ensemble.free_run(record.u, record.y[:3])
    )
    a, b = (e.simulate(record) for e in (again, ensemble))
    np.testing.assert_array_equal(a.quantiles, b.quantiles)
    np.testing.assert_array_equal(again.weights, ensemble.weights)
    np.testing.assert_array_equal(again.inflation, ensemble.inflation)
    assert again.regressors == ensemble.regressors
    for found, saved in zip(
        again.posteriors[0].table(), ensemble.posteriors[0].table(), strict=True
    ):
        assert found[:3] == saved[:3]
        assert found[3:] == pytest.approx(saved[3:], rel=1e-12)


def test_the_header_tells_feedback_and_what_it_was_told(ensemble: Ensemble, path: Path) -> None:
    assert read_about(path) == {}
    told = {"job": {"files": ["log.csv"]}, "provenance": {"seed": 3}}
    for feedback in get_args(Feedback):
        replace(ensemble, feedback=feedback).save(path, told)
        assert load(path).feedback == feedback
    assert read_about(path) == told
    rewrite(path, about="text")
    assert read_about(path) == {}
    record = small_record(20, seed=7)  # nothing of the model depends on it
    np.testing.assert_array_equal(load(path).simulate(record).mean, ensemble.simulate(record).mean)


def test_a_folder_is_its_model_file(ensemble: Ensemble, path: Path) -> None:
    assert load(path.parent).regressors == ensemble.regressors
    assert read_about(path.parent) == {}


def test_members_of_any_share_come_back(tmp_path: Path) -> None:
    """Also one that counts for nothing."""
    posteriors = [
        fit_posterior(batch_of("mlp").model(Index(0, k, 1)), small_record()) for k in range(3)
    ]
    ensemble = combine(posteriors, np.array([0.7, 0.0, 0.1]))
    ensemble.save(tmp_path / "model.safetensors")
    again = load(tmp_path)
    np.testing.assert_allclose(again.weights, [0.875, 0.0, 0.125], rtol=1e-12)
    record = small_record(30, seed=7)
    np.testing.assert_allclose(again.simulate(record).mean, ensemble.simulate(record).mean)


def test_a_factor_may_have_zeros_on_its_diagonal(tmp_path: Path) -> None:
    """Eigenvectors of two outputs that do not share weights, in the order of their values."""
    posterior = fit_posterior(batch_of("mlp").model(Index(0, 0, 1)), small_record())
    turned = np.roll(np.diag(np.linspace(0.1, 0.2, len(posterior.positions))), 1, axis=1)
    combine([replace(posterior, factor=turned)]).save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path).posteriors[0].factor, turned)


@pytest.mark.parametrize("name", ["weights", "inflation"])
def test_negative_shares_or_inflation(path: Path, name: str) -> None:
    rewrite(path, {name: -load_file(path)[name]})
    with pytest.raises(FileError, match=f"is not a complete model file: {name} is not"):
        load(path)


def test_an_unknown_feedback(path: Path) -> None:
    rewrite(path, feedback="some")
    with pytest.raises(FileError, match="is not a complete model file: feedback is 'some'"):
        load(path)


def test_saving_leaves_nothing_else_behind(path: Path) -> None:
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


def test_an_unwritable_place_is_named(ensemble: Ensemble, tmp_path: Path) -> None:
    target = tmp_path / "missing" / "model.safetensors"
    with pytest.raises(FileError) as error:
        ensemble.save(target)
    assert str(error.value) == f"cannot write {target}: No such file or directory."


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"none\.safetensors is not a file; name a run folder"):
        load(tmp_path / "none.safetensors")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FileError, match="is not a readable model file"):
        load(path)


@pytest.mark.parametrize(
    ("found", "advice"),
    [(FORMAT + 1, "Update occamid."), (FORMAT - 1, "Identify again."), (None, "Identify again.")],
    ids=str,
)
def test_another_format(path: Path, found: int | None, advice: str) -> None:
    rewrite(path, format=found, version="9.9")
    with pytest.raises(FileError) as error:
        load(path)
    assert str(error.value) == (
        f"{path} has format {found}, written by occamid 9.9; this version reads format {FORMAT}. "
        f"{advice}"
    )


def test_a_foreign_safetensors_file(tmp_path: Path) -> None:
    save_file({"x": np.ones(3)}, tmp_path / "x.safetensors")
    with pytest.raises(FileError, match="is a safetensors file, but not one of occamid's"):
        load(tmp_path / "x.safetensors")


def test_non_finite_values(path: Path) -> None:
    rewrite(path, {"0/widths": load_file(path)["0/widths"] * np.nan})
    with pytest.raises(FileError, match="holds non-finite values in 0/widths; the file is damaged"):
        load(path)


def test_wrong_shapes(path: Path) -> None:
    name = next(n for n in load_file(path) if n.startswith("0/params/"))
    rewrite(path, {name: np.ones((9, 9))})
    with pytest.raises(FileError, match=r"is not a complete model file: .* has shape \(9, 9\)"):
        load(path)


def test_positions_outside_the_weights(path: Path) -> None:
    rewrite(path, {"0/positions": load_file(path)["0/positions"] + 10**6})
    with pytest.raises(FileError, match="the posterior of member 0 does not fit its weights"):
        load(path)


def test_a_missing_header_entry(path: Path) -> None:
    rewrite(path, members=[{}])
    with pytest.raises(FileError, match="is not a complete model file: network is missing"):
        load(path)
