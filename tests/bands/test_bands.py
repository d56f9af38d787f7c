"""Bands as users meet them: where they widen, how fast they are, and what the document says."""

import json
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from occamid import Ensemble, Record, Settings, combine, ensemble_of, fit_posterior, train
from occamid.data import twins
from occamid_benchmarks.studies.bands import RECORDED, figures, tables
from tests.support.banded import simulate

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def tanks() -> tuple[twins.Twin, Ensemble]:
    twin = twins.cascaded_tanks(0)
    return twin, ensemble_of(train(twin.estimation, Settings()), twin.estimation)


def test_the_band_widens_during_overflow(tanks: tuple[twins.Twin, Ensemble]) -> None:
    """Epistemic spread while the lower tank is at its rim, against the rest of the record."""
    twin, ensemble = tanks
    found = simulate(ensemble, twin.test)
    spread = found.epistemic_std[ensemble.start :, 0]
    overflow = twin.test_clean[ensemble.start :, 0] > 9.9
    assert overflow.sum() > 10
    assert spread[overflow].mean() > 1.3 * spread[~overflow].mean()


def test_the_band_widens_outside_the_estimation_range(tanks: tuple[twins.Twin, Ensemble]) -> None:
    """Inputs swing twice as far as any the model has seen."""
    twin, ensemble = tanks
    centre = twin.estimation.u.mean()
    spreads = []
    for gain in (1.0, 2.0):
        record = replace(twin.test, u=centre + gain * (twin.test.u - centre))
        found = simulate(ensemble, record)
        spreads.append(found.epistemic_std[ensemble.start :].mean())
    assert spreads[1] > 1.5 * spreads[0]


def seconds(ensemble: Ensemble, record: Record, samples: int) -> float:
    """Time of a free run of posterior samples, compiled before."""
    for _ in range(2):
        began = time.perf_counter()
        ensemble.simulate(record, samples=samples)
        spent = time.perf_counter() - began
    return spent


def test_ten_thousand_hairdryer_samples_in_two_seconds() -> None:
    twin = twins.hairdryer(0)
    batch = train(twin.estimation, Settings())
    one = combine([fit_posterior(batch.best, twin.estimation, "diagonal")])
    assert len(twin.test) == 700
    assert seconds(one, twin.test, 10_000) < 2


def test_fifty_thousand_tank_samples_in_time_and_memory(
    tanks: tuple[twins.Twin, Ensemble],
) -> None:
    twin, ensemble = tanks
    one = combine([ensemble.posteriors[0]])
    assert len(twin.test) == 1024
    spent = seconds(one, twin.test, 50_000)
    assert spent < 20
    assert seconds(one, twin.test, 25_000) < 0.85 * spent
    assert seconds(one, twin.test[:512], 50_000) < 0.85 * spent
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20  # KiB, the whole test run


def recorded() -> dict[str, Any]:
    return json.loads((ROOT / RECORDED).read_text("utf-8"))


def test_the_document_holds_what_the_benchmark_printed() -> None:
    """No number in the tables of docs/bands.md is typed by hand."""
    text = (ROOT / "docs" / "bands.md").read_text("utf-8")
    for table in tables(recorded()):
        assert table in text


def test_recorded_figures_are_those_of_this_code(tanks: tuple[twins.Twin, Ensemble]) -> None:
    """The first row of the table is made again; another machine may round differently."""
    twin, ensemble = tanks
    told = recorded()["twins"]["cascaded-tanks-twin"]
    assert len(told) == 3
    found = figures(twin.test, ensemble.simulate(twin.test))
    for share in (50, 80, 95):
        assert found[f"coverage{share}"] == pytest.approx(told[0][f"coverage{share}"], abs=0.03)
    for name in ("crps", "width", "rmse"):
        assert found[name] == pytest.approx(told[0][name], rel=0.1)
