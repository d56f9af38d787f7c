"""Simulated twins of real processes, with the truth beside the data.

Each twin is made from a seed and needs no file: estimation and test records, the noise level, the
output without noise, and what is true of the process: the names of its regressors where it is a
NARX model, the number of its states where those are hidden.  Physical parameters were chosen here
so that the signals resemble those of real rigs; equations are cited where they are from the
literature.
"""

from __future__ import annotations

from collections.abc import Callable

from occamid.data.twins.experiment import Twin, multisine
from occamid.data.twins.hidden import (
    friction_axis,
    hysteretic_masses,
    thermal_plant,
    wiener_hammerstein,
)
from occamid.data.twins.lagged import (
    cascaded_tanks,
    coupled_drives,
    hairdryer,
    heat_exchanger,
    mass_spring_damper,
    polynomial_narx,
)
from occamid.errors import DataError

__all__ = [
    "TWINS",
    "Twin",
    "cascaded_tanks",
    "coupled_drives",
    "friction_axis",
    "hairdryer",
    "heat_exchanger",
    "hysteretic_masses",
    "make",
    "mass_spring_damper",
    "multisine",
    "polynomial_narx",
    "thermal_plant",
    "wiener_hammerstein",
]

TWINS: dict[str, Callable[[int], Twin]] = {
    "cascaded-tanks-twin": cascaded_tanks,
    "coupled-drives-twin": coupled_drives,
    "friction-axis-twin": friction_axis,
    "hairdryer-twin": hairdryer,
    "heat-exchanger-twin": heat_exchanger,
    "hysteretic-masses-twin": hysteretic_masses,
    "mass-spring-damper-twin": mass_spring_damper,
    "polynomial-narx-twin": polynomial_narx,
    "thermal-plant-twin": thermal_plant,
    "wiener-hammerstein-twin": wiener_hammerstein,
}


def make(name: str, seed: int = 0) -> Twin:
    """The twin of this name; see :data:`TWINS`."""
    if name not in TWINS:
        raise DataError(f"no twin is called {name!r}; there are {', '.join(TWINS)}.")
    return TWINS[name](seed)
