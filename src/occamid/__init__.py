"""Small neural models of dynamic systems.

Data flows one way: record → regressors → networks → simulate → sparse loop → model → result →
driver → posterior → predictive, linearised → ensemble → refine → auto → calibration → modelfile,
store, figures → report → estimator → command line.
"""

from typing import Any

from occamid.assessment.metrics import fit_percent, rmse
from occamid.bands.calibration import identify_with_bands
from occamid.bands.ensemble import Ensemble, combine, ensemble_of
from occamid.bands.modelfile import load_ensemble as load
from occamid.bands.modelfile import save_ensemble as save
from occamid.bands.monte_carlo import Distribution
from occamid.bands.posterior import Posterior, fit_posterior
from occamid.data.record import Record
from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.identification.families import Plan
from occamid.identification.identify import Automatic, identify_auto
from occamid.reading.files import read_records
from occamid.training.batch import Index, Result, Row
from occamid.training.model import Model
from occamid.training.settings import Settings
from occamid.training.train import Progress, identify

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
        from occamid.identification.estimator import SparseNARX

        return SparseNARX
    raise AttributeError(f"module 'occamid' has no attribute {name!r}")
