"""State-space networks fitted to their own free run.

:func:`search` finds order and restarts, :func:`fit_state_space` fits what a plan fixes.
"""

from occamid.training.state_space.fit import Plan, data_of, fit_state_space
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.search import AS_GOOD, Search, search

__all__ = ["AS_GOOD", "Fitted", "Plan", "Search", "data_of", "fit_state_space", "search"]
