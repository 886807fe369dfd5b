"""The local search: mutants of the front, over and over."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence, Union

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_space import EvolutionarySearchSpace
from ._population import PopulationSearch

__all__ = ["LocalSearch"]


class LocalSearch(PopulationSearch):
    """Every iteration evaluates mutants of the models that no other is better than."""

    def __init__(
        self,
        search_space: EvolutionarySearchSpace,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        num_iters: int = 10,
        init_num_models: int = 10,
        initial_population_paths: Optional[Sequence[str]] = None,
        mutations_per_parent: int = 1,
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
        self.mutations_per_parent = mutations_per_parent

    def _first(self) -> List[ArchaiModel]:
        return self._initial(self.init_num_models, self.initial_population_paths)

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        return self._mutants(front, self.mutations_per_parent, {})
