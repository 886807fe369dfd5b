"""Regularized evolution: mutants of the best of a sample of the newest models."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence, Union

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_space import EvolutionarySearchSpace
from ._population import PopulationSearch, fronts

__all__ = ["RegularizedEvolutionSearch"]


class RegularizedEvolutionSearch(PopulationSearch):
    """Every iteration evaluates a mutant of each model that is on the front of a sample of the newest models."""

    def __init__(
        self,
        search_space: EvolutionarySearchSpace,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        num_iters: int = 10,
        init_num_models: int = 10,
        initial_population_paths: Optional[Sequence[str]] = None,
        pareto_sample_size: int = 40,
        history_size: int = 100,
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
        self.pareto_sample_size = pareto_sample_size
        self.history_size = history_size

    def _first(self) -> List[ArchaiModel]:
        return self._initial(self.init_num_models, self.initial_population_paths)

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        models, values = self.search_state.get_all_evaluated_models(), self.search_state.all_evaluated_objs
        newest = range(max(0, len(models) - self.history_size), len(models))
        sample = sorted(self._random.sample(newest, min(self.pareto_sample_size, len(newest))))
        ranked = fronts({name: column[sample] for name, column in values.items()}, self.so)
        return self._mutants([models[sample[at]] for at in ranked[0]] if ranked else [], 1, {})
