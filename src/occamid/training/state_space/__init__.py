"""State-space networks fitted to their own free run.

:func:`search` finds order and restarts, :func:`fit_state_space` fits what a plan fixes.
"""

from occamid.training.state_space.fit import Plan, data_of, fit_state_space
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.search import Search, search

__all__ = ["Fitted", "Plan", "Search", "data_of", "fit_state_space", "search"]
