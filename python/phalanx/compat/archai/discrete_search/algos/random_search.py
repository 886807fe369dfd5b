"""The random search, to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence, Union

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_space import DiscreteSearchSpace
from ._population import Columns, PopulationSearch

__all__ = ["RandomSearch"]


class RandomSearch(PopulationSearch):
    """Every iteration evaluates random models that were not seen before."""

    def __init__(
        self,
        search_space: DiscreteSearchSpace,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        num_iters: int = 10,
        samples_per_iter: int = 10,
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
        self.samples_per_iter = samples_per_iter

    def _first(self) -> List[ArchaiModel]:
        return self._initial(self.samples_per_iter, None)

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        return self._initial(self.samples_per_iter, None)

    def _columns(self, models: Sequence[ArchaiModel]) -> Columns:
        return {}
