"""Models, evaluators, objectives, spaces and results."""

from .archai_model import ArchaiModel
from .model_evaluator import AsyncModelEvaluator, ModelEvaluator
from .predictor import MeanVar, Predictor
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
    "MeanVar",
    "ModelEvaluator",
    "Predictor",
    "SearchObjectives",
    "SearchResults",
    "Searcher",
]
