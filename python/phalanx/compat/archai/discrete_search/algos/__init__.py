"""Algorithms that search."""

from .evolution_pareto import EvolutionParetoSearch

__all__ = ["EvolutionParetoSearch"]
