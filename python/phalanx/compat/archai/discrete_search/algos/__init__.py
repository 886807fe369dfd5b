"""Algorithms that search."""

from .bananas import MoBananasSearch
from .evolution_pareto import EvolutionParetoSearch
from .local_search import LocalSearch
from .random_search import RandomSearch
from .regularized_evolution import RegularizedEvolutionSearch
from .successive_halving import SuccessiveHalvingSearch

__all__ = [
    "EvolutionParetoSearch",
    "LocalSearch",
    "MoBananasSearch",
    "RandomSearch",
    "RegularizedEvolutionSearch",
    "SuccessiveHalvingSearch",
]
