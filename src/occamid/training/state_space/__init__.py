"""State-space networks fitted to their own free run; :func:`fit_state_space` is the way in."""

from occamid.training.state_space.fit import Plan, data_of, fit_state_space
from occamid.training.state_space.fitted import Fitted
from occamid.training.state_space.search import Search, search

__all__ = ["Fitted", "Plan", "Search", "data_of", "fit_state_space", "search"]
