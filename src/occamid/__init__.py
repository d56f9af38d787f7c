"""Small neural models of dynamic systems.

Data flows one way: record → regressors → networks → simulate → sparse loop → model → result →
driver → posterior → predictive, linearised → ensemble → refine → auto → calibration → modelfile,
store, figures → report → estimator → command line.
"""

from typing import Any

from occamid.auto import Automatic, identify_auto
from occamid.calibration import identify_with_bands
from occamid.data.files import read_records
from occamid.data.record import Record
from occamid.driver import Progress, identify
from occamid.ensemble import Ensemble, combine, ensemble_of
from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.families import Plan
from occamid.metrics import fit_percent, rmse
from occamid.model import Model
from occamid.modelfile import load_ensemble as load
from occamid.modelfile import save_ensemble as save
from occamid.posterior import Posterior, fit_posterior
from occamid.predictive import Distribution
from occamid.result import Index, Result, Row
from occamid.settings import Settings

__all__ = [
    "Automatic",
    "DataError",
    "Distribution",
    "Ensemble",
    "FileError",
    "Index",
    "Model",
    "OccamidError",
    "Plan",
    "Posterior",
    "Progress",
    "Record",
    "Result",
    "Row",
    "Settings",
    "SettingsError",
    "SparseNARX",
    "combine",
    "ensemble_of",
    "fit_percent",
    "fit_posterior",
    "identify",
    "identify_auto",
    "identify_with_bands",
    "load",
    "read_records",
    "rmse",
    "save",
]


def __getattr__(name: str) -> Any:
    """The estimator on demand: importing occamid does not import scikit-learn."""
    if name == "SparseNARX":
        from occamid.estimator import SparseNARX

        return SparseNARX
    raise AttributeError(f"module 'occamid' has no attribute {name!r}")
