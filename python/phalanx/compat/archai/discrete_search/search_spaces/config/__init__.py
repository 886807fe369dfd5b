"""Spaces of configurations: a tree of choices, and a function that makes a model of what was chosen."""

from .arch_config import ArchConfig, build_arch_config
from .arch_param_tree import ArchParamTree
from .discrete_choice import DiscreteChoice
from .helpers import repeat_config
from .search_space import ArchConfigSearchSpace, ConfigSearchSpace

__all__ = [
    "ArchConfig",
    "ArchConfigSearchSpace",
    "ArchParamTree",
    "ConfigSearchSpace",
    "DiscreteChoice",
    "build_arch_config",
    "repeat_config",
]
