"""Training that goes on with a larger budget."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from ..api.archai_model import ArchaiModel
from ..api.model_evaluator import ModelEvaluator
from ..api.search_space import DiscreteSearchSpace

__all__ = ["ProgressiveTraining"]

_TrainingState = Optional[Dict[str, Any]]
_TrainingFn = Callable[[ArchaiModel, Any, Any, _TrainingState], Tuple[ArchaiModel, float, Dict[str, Any]]]


class ProgressiveTraining(ModelEvaluator):
    """Trains a model with a function, which is given what it returned for this architecture before.

    ``training_fn(model, dataset, budget, training_state)`` returns the trained model, its value and the state.
    """

    def __init__(self, search_space: DiscreteSearchSpace, dataset: Any, training_fn: _TrainingFn) -> None:
        self.search_space = search_space
        self.dataset = dataset
        self.training_fn = training_fn
        self.training_states: Dict[str, Dict[str, Any]] = {}

    def evaluate(self, arch: ArchaiModel, budget: Optional[float] = None) -> float:
        before = self.training_states.get(arch.archid)
        trained, value, state = self.training_fn(arch, self.dataset, budget, before)
        # The caller has this model, not the one that was returned.
        arch.arch = trained.arch
        self.training_states[arch.archid] = state
        return value
