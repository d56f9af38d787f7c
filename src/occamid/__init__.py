"""Small neural models of dynamic systems, from logged inputs and outputs, with bands.

Data flows one way: **data** (records) and **reading** (people's files) → **networks** →
**training** (the paper's Algorithm 1, refinement in free run) → **bands** (posteriors, ensembles) →
**identification** (which family, chosen on held-back data) → **reporting** → the command line.

    records = occamid.read("log.csv", inputs=["pump"], outputs=["level"])
    train, test = records[0].split(0.7)
    fit = occamid.identify(train)
    run = fit.model.simulate(test)

Names below are imported when they are first used, so that ``import occamid`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occamid.assessment.check.records import check
    from occamid.assessment.metrics import fit_percent, rmse
    from occamid.assessment.run import Run
    from occamid.bands.combine import combine, ensemble_of, load
    from occamid.bands.ensemble import Ensemble
    from occamid.bands.linear import linearise
    from occamid.bands.posterior import Posterior, fit_posterior
    from occamid.data.findings import Finding
    from occamid.data.prepare import prepare
    from occamid.data.record import Record
    from occamid.errors import DataError, FileError, OccamidError, SettingsError
    from occamid.fleets.fleet import Fleet, fleet
    from occamid.identification.estimator import SparseNARX
    from occamid.identification.identify import Fit, identify
    from occamid.identification.options import Options
    from occamid.identification.search.search import search
    from occamid.reading.files import read
    from occamid.reporting.report import report
    from occamid.training.batch import Batch, Index
    from occamid.training.model import Model
    from occamid.training.settings import Settings
    from occamid.training.train import train

_HOMES = {
    "occamid.assessment.check.records": ("check",),
    "occamid.assessment.metrics": ("fit_percent", "rmse"),
    "occamid.assessment.run": ("Run",),
    "occamid.bands.combine": ("combine", "ensemble_of", "load"),
    "occamid.bands.ensemble": ("Ensemble",),
    "occamid.bands.linear": ("linearise",),
    "occamid.bands.posterior": ("Posterior", "fit_posterior"),
    "occamid.data.findings": ("Finding",),
    "occamid.data.prepare": ("prepare",),
    "occamid.data.record": ("Record",),
    "occamid.errors": ("DataError", "FileError", "OccamidError", "SettingsError"),
    "occamid.fleets.fleet": ("Fleet", "fleet"),
    "occamid.identification.estimator": ("SparseNARX",),
    "occamid.identification.identify": ("Fit", "identify"),
    "occamid.identification.options": ("Options",),
    "occamid.identification.search.search": ("search",),
    "occamid.reading.files": ("read",),
    "occamid.reporting.report": ("report",),
    "occamid.training.batch": ("Batch", "Index"),
    "occamid.training.model": ("Model",),
    "occamid.training.settings": ("Settings",),
    "occamid.training.train": ("train",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Batch",
    "DataError",
    "Ensemble",
    "FileError",
    "Finding",
    "Fit",
    "Fleet",
    "Index",
    "Model",
    "OccamidError",
    "Options",
    "Posterior",
    "Record",
    "Run",
    "Settings",
    "SettingsError",
    "SparseNARX",
    "check",
    "combine",
    "ensemble_of",
    "fit_percent",
    "fit_posterior",
    "fleet",
    "identify",
    "linearise",
    "load",
    "prepare",
    "read",
    "report",
    "rmse",
    "search",
    "train",
]


def __getattr__(name: str) -> Any:
    """A public name, from its home."""
    if name not in _HOME:
        raise AttributeError(f"module 'occamid' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
