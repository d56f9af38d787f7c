"""BIC of free runs: coloured errors count for fewer; and who may run away."""

import numpy as np
import pytest

from occamid.training.criterion import FEWEST, criterion, independent, usable


def test_white_errors_give_the_usual_criterion() -> None:
    miss = np.random.default_rng(0).choice([-1.0, 1.0], size=(400, 1))  # of one size: none alike
    found = criterion(np.array([[0.5], [0.4]]), np.array([2, 4]), [miss])
    expected = 400 * np.log([0.5, 0.4]) + np.array([2, 4]) * np.log(400)
    np.testing.assert_allclose(found, expected)


def test_a_drift_does_not_pay_for_more_parameters() -> None:
    rng = np.random.default_rng(1)
    squares, free = np.array([[0.50], [0.46]]), np.array([3, 8])
    white = rng.normal(size=(600, 1))
    slow = np.cumsum(rng.normal(size=(600, 1)), axis=0)
    assert np.argmin(criterion(squares, free, [white])) == 1
    assert np.argmin(criterion(squares, free, [slow])) == 0


def test_errors_that_never_change_still_count_as_a_few() -> None:
    slow = np.linspace(-1, 1, 50)[:, None]
    assert independent([slow[:, 0]]) < FEWEST
    found = criterion(np.array([[1.0]]), np.array([1]), [slow])
    np.testing.assert_allclose(found, np.log(FEWEST))


@pytest.mark.parametrize(
    ("errors", "wild", "found"),
    [
        ([1.0, 1.4, 3.0], [1, 0, 0], [0, 1, 1]),  # as good without
        ([1.0, 1.6, 3.0], [1, 0, 0], [1, 1, 1]),  # the process itself may be unstable
        ([1.0, 2.0], [1, 1], [1, 1]),
        ([np.inf, 2.0], [0, 1], [1, 1]),
        ([np.inf, np.inf], [1, 1], [1, 1]),
    ],
)
def test_wild_models_are_used_where_all_others_are_clearly_worse(
    errors: list[float], wild: list[int], found: list[int]
) -> None:
    assert usable(np.array(errors), np.array(wild, bool)).tolist() == list(map(bool, found))
