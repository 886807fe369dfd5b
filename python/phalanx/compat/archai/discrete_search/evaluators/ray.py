"""Ray's evaluator by name. Models are evaluated by Phalanx's nodes; Ray is not needed."""

from .nodes import RayParallelEvaluator

__all__ = ["RayParallelEvaluator"]
