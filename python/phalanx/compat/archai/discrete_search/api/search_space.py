"""What a search asks of a space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, List

from .archai_model import ArchaiModel

__all__ = ["BayesOptSearchSpace", "DiscreteSearchSpace", "EvolutionarySearchSpace"]


class DiscreteSearchSpace(ABC):
    """Gives random models, and writes and reads them."""

    @abstractmethod
    def random_sample(self) -> ArchaiModel:
        """A random model."""

    @abstractmethod
    def save_arch(self, model: ArchaiModel, path: str) -> None:
        """Writes the architecture of a model."""

    @abstractmethod
    def load_arch(self, path: str) -> ArchaiModel:
        """Reads an architecture."""

    @abstractmethod
    def save_model_weights(self, model: ArchaiModel, path: str) -> None:
        """Writes the weights of a model."""

    @abstractmethod
    def load_model_weights(self, model: ArchaiModel, path: str) -> None:
        """Reads weights into a model."""


class EvolutionarySearchSpace(DiscreteSearchSpace):
    """Also makes models of others."""

    @abstractmethod
    def mutate(self, arch: ArchaiModel) -> ArchaiModel:
        """A model that differs a little."""

    @abstractmethod
    def crossover(self, arch_list: List[ArchaiModel]) -> ArchaiModel:
        """A model with parts of several."""


class BayesOptSearchSpace(DiscreteSearchSpace):
    """Also says an architecture in numbers."""

    @abstractmethod
    def encode(self, arch: ArchaiModel) -> Any:
        """The numbers of an architecture."""
