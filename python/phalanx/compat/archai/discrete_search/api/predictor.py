"""What predicts values of architectures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

__all__ = ["MeanVar", "Predictor"]


class MeanVar(NamedTuple):
    """Predicted values and their variances."""

    mean: Any
    var: Any


class Predictor(ABC):
    """Learns from encoded architectures and their values."""

    @abstractmethod
    def fit(self, encoded_archs: Any, y: Any) -> None:
        """Learns: a row per architecture in both, a column per value in ``y``."""

    @abstractmethod
    def predict(self, encoded_archs: Any) -> MeanVar:
        """Predicts: a row per architecture, a column per value."""
