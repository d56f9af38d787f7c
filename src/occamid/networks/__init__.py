"""Networks: parameters, forward pass, one simulation step, curvature sweep, compaction."""

from occamid.networks.base import (
    ACTIVATIONS,
    Live,
    Network,
    Params,
    init,
    is_matrix,
    matrices,
    reads_regressors,
)
from occamid.networks.groups import STRUCTURES, Group, Groups, group_norm, groups_for
from occamid.networks.mlp import MLP
from occamid.networks.observer import Observer, joined, of_filter, parted, unobserved
from occamid.networks.recurrent import Recurrent
from occamid.networks.state_space import StateSpace

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "STRUCTURES",
    "Group",
    "Groups",
    "Live",
    "Network",
    "Observer",
    "Params",
    "Recurrent",
    "StateSpace",
    "group_norm",
    "groups_for",
    "init",
    "is_matrix",
    "joined",
    "matrices",
    "of_filter",
    "parted",
    "reads_regressors",
    "unobserved",
]
