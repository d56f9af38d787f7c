"""Small neural models of dynamic systems.

Data flows one way: record → regressors → networks → simulate → sparse loop → model → result →
driver → store, figures → command line.
"""

from occamid.data.record import Record
from occamid.driver import Progress, identify
from occamid.errors import DataError, FileError, OccamidError, SettingsError
from occamid.metrics import fit_percent, rmse
from occamid.model import Model
from occamid.result import Index, Result, Row
from occamid.settings import Settings

__all__ = [
    "DataError",
    "FileError",
    "Index",
    "Model",
    "OccamidError",
    "Progress",
    "Record",
    "Result",
    "Row",
    "Settings",
    "SettingsError",
    "fit_percent",
    "identify",
    "rmse",
]
