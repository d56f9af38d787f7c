"""State-space networks fitted to their own free run; :func:`fit_state_space` is the way in."""

from occamid.training.state_space.fit import Plan, data_of, fit_state_space
from occamid.training.state_space.fitted import Fitted

__all__ = ["Fitted", "Plan", "data_of", "fit_state_space"]
