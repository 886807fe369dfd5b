"""What gives models a value: at once, or in two steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import List, Optional

from .archai_model import ArchaiModel

__all__ = ["AsyncModelEvaluator", "ModelEvaluator"]


class ModelEvaluator(ABC):
    """Gives the value of a model at once."""

    @abstractmethod
    def evaluate(self, arch: ArchaiModel, budget: Optional[float] = None) -> float:
        """The value of a model that was given so much budget."""


class AsyncModelEvaluator(ABC):
    """Is sent models, and gives the values of all of them when it is asked."""

    @abstractmethod
    def send(self, arch: ArchaiModel, budget: Optional[float] = None) -> None:
        """Begins with a model."""

    @abstractmethod
    def fetch_all(self) -> List[Optional[float]]:
        """Waits for all models that were sent, and gives their values in that order; ``None`` for one that failed."""
