"""Lagged windows against plain loops; the proposal of lags."""

import numpy as np
import pytest

from occamid import Record
from occamid.data.lags import propose_lags
from occamid.data.scaling import fit_scaling
from occamid.data.twins import hairdryer, heat_exchanger
from occamid.data.windows import all_terms, windows


def record(n: int = 12, nu: int = 2, ny: int = 2, seed: int = 0) -> Record:
    rng = np.random.default_rng(seed)
    return Record(u=rng.normal(size=(n, nu)), y=rng.normal(size=(n, ny)))


@pytest.mark.parametrize(("lag", "count"), [(5, 11), (150, 301), (20, 41), (10, 21)])
def test_a_siso_record_has_2l_plus_1_regressors(lag: int, count: int) -> None:
    assert len(all_terms(record(nu=1, ny=1), lag, lag)) == count


def test_names_are_oldest_first_inputs_before_outputs() -> None:
    names = all_terms(record(nu=1, ny=2), 2, 1, delay=1).names
    assert names == ("u[t-2]", "u[t-1]", "y1[t-1]", "y2[t-1]")
    assert all_terms(record(nu=1, ny=1), 1, 0).names == ("u[t-1]", "u[t]")


@pytest.mark.usefixtures("x64")
def test_windows_equal_a_loop_and_stop_at_borders() -> None:
    records = [record(12, seed=1), record(9, seed=2)]
    regressors = all_terms(records[0], 3, 2)
    found = windows(records, regressors, 3)
    assert found.z.shape == (2, 9, 2 * 4 + 2 * 2)
    for r, rec in enumerate(records):
        for row, t in enumerate(range(3, len(rec))):
            z = [rec.u[t - lag, c] for c, lag in regressors.inputs]
            z += [rec.y[t - lag, c] for c, lag in regressors.outputs]
            np.testing.assert_array_equal(found.z[r, row], z)
            np.testing.assert_array_equal(found.y[r, row], rec.y[t])
        assert int(found.valid[r].sum()) == len(rec) - 3
        assert float(found.residuals[r]) == 2 * (len(rec) - 3)
        np.testing.assert_array_equal(found.history[r], rec.y[1:3])
    np.testing.assert_array_equal(found.z[1, 6:], 0.0)


def test_selection_shrinks_the_largest_lag() -> None:
    regressors = all_terms(record(nu=1, ny=1), 4, 3)
    keep = np.array([n in ("u[t-2]", "y[t-1]") for n in regressors.names])
    small = regressors.select(keep)
    assert small.names == ("u[t-2]", "y[t-1]")
    assert (small.max_lag, small.output_lag) == (2, 1)


def test_proposed_lags_reach_the_delay_and_stay_small() -> None:
    twin = heat_exchanger(0)
    scaled = [fit_scaling([twin.estimation], "standardize").apply(twin.estimation)]
    inputs, outputs = propose_lags(scaled)
    assert 150 <= inputs <= 200
    assert outputs <= 20
    dryer = hairdryer(0)
    scaled = [fit_scaling([dryer.estimation], "standardize").apply(dryer.estimation)]
    assert propose_lags(scaled) == (10, 10)


def test_proposed_lags_fit_a_short_record() -> None:
    inputs, outputs = propose_lags([record(30, 1, 1)])
    assert 1 <= inputs <= 3
    assert 1 <= outputs <= 3
