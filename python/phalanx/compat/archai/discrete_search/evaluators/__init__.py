"""Evaluators that are there."""

from .functional import EvaluationFunction
from .nodes import NodesEvaluator
from .onnx_model import AvgOnnxLatency
from .progressive_training import ProgressiveTraining
from .pt_profiler import TorchFlops, TorchLatency, TorchMacs, TorchNumParameters
from .ray import RayParallelEvaluator

__all__ = [
    "AvgOnnxLatency",
    "EvaluationFunction",
    "NodesEvaluator",
    "ProgressiveTraining",
    "RayParallelEvaluator",
    "TorchFlops",
    "TorchLatency",
    "TorchMacs",
    "TorchNumParameters",
]
