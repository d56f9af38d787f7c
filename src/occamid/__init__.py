"""Small neural models of dynamic systems.

Data flows one way: record → regressors → networks → simulate → sparse loop → model → result →
driver → posterior → predictive, linearised → ensemble → calibration → modelfile, store, figures →
command line.
"""

from occamid.calibration import identify_with_bands
from occamid.data.record import Record
from occamid.driver import Progress, identify
from occamid.ensemble import Ensemble, combine, ensemble_of
from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.metrics import fit_percent, rmse
from occamid.model import Model
from occamid.modelfile import load_ensemble, save_ensemble
from occamid.posterior import Posterior, fit_posterior
from occamid.predictive import Distribution
from occamid.result import Index, Result, Row
from occamid.settings import Settings

__all__ = [
    "DataError",
    "Distribution",
    "Ensemble",
    "FileError",
    "Index",
    "Model",
    "OccamidError",
    "Posterior",
    "Progress",
    "Record",
    "Result",
    "Row",
    "Settings",
    "SettingsError",
    "combine",
    "ensemble_of",
    "fit_percent",
    "fit_posterior",
    "identify",
    "identify_with_bands",
    "load_ensemble",
    "rmse",
    "save_ensemble",
]
