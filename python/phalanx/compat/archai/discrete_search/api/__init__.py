"""Models, evaluators, objectives, spaces and results."""

from .archai_model import ArchaiModel
from .model_evaluator import AsyncModelEvaluator, ModelEvaluator
from .search_objectives import SearchObjectives
from .search_results import SearchResults
from .search_space import BayesOptSearchSpace, DiscreteSearchSpace, EvolutionarySearchSpace
from .searcher import Searcher

__all__ = [
    "ArchaiModel",
    "AsyncModelEvaluator",
    "BayesOptSearchSpace",
    "DiscreteSearchSpace",
    "EvolutionarySearchSpace",
    "ModelEvaluator",
    "SearchObjectives",
    "SearchResults",
    "Searcher",
]
