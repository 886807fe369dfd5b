"""A function as evaluator."""

from __future__ import annotations

from typing import Callable, Optional

from ..api.archai_model import ArchaiModel
from ..api.model_evaluator import ModelEvaluator

__all__ = ["EvaluationFunction"]


class EvaluationFunction(ModelEvaluator):
    """Calls a function with the model and its budget."""

    def __init__(self, evaluation_fn: Callable[[ArchaiModel, Optional[float]], float]) -> None:
        self.evaluation_fn = evaluation_fn

    def evaluate(self, arch: ArchaiModel, budget: Optional[float] = None) -> float:
        return self.evaluation_fn(arch, budget)
