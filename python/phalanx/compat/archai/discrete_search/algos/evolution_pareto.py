"""The evolutionary Pareto search: the front's mutants and crossings, and some random models, over and over."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_space import EvolutionarySearchSpace
from ._population import Columns, PopulationSearch

__all__ = ["EvolutionParetoSearch"]


class EvolutionParetoSearch(PopulationSearch):
    """Every iteration evaluates new models, made of those that no other is better than."""

    def __init__(
        self,
        search_space: EvolutionarySearchSpace,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        num_iters: int = 10,
        init_num_models: int = 10,
        initial_population_paths: Optional[Sequence[str]] = None,
        num_random_mix: int = 5,
        max_unseen_population: int = 100,
        mutations_per_parent: int = 1,
        num_crossovers: int = 5,
        clear_evaluated_models: bool = True,
        save_pareto_model_weights: bool = True,
        seed: int = 1,
    ) -> None:
        super().__init__(
            search_space,
            search_objectives,
            output_dir,
            num_iters,
            seed,
            clear_evaluated_models,
            save_pareto_model_weights,
        )
        self.init_num_models = init_num_models
        self.initial_population_paths = initial_population_paths
        self.num_random_mix = num_random_mix
        self.max_unseen_population = max_unseen_population
        self.mutations_per_parent = mutations_per_parent
        self.num_crossovers = num_crossovers

    def _first(self) -> List[ArchaiModel]:
        return self._initial(self.init_num_models, self.initial_population_paths)

    def _columns(self, models: Sequence[ArchaiModel]) -> Columns:
        return {**super()._columns(models), "parents": [model.metadata.get("parents") for model in models]}

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        made: Dict[str, ArchaiModel] = {}
        self._mutants(front, self.mutations_per_parent, made)

        def crossing() -> ArchaiModel:
            parents = self._random.choices(front, k=2)
            model: ArchaiModel = self.search_space.crossover(parents)
            model.metadata["parents"] = ",".join(parent.archid for parent in parents)
            return model

        if front:
            self._fresh(self.num_crossovers, crossing, made)
        self._fresh(self.num_random_mix, self.search_space.random_sample, made)
        unseen = list(made.values())
        return self._random.sample(unseen, min(len(unseen), self.max_unseen_population))
