"""Predictors that are there."""

from ..api.predictor import MeanVar, Predictor
from .dnn_ensemble import PredictiveDNNEnsemble

__all__ = ["MeanVar", "PredictiveDNNEnsemble", "Predictor"]
