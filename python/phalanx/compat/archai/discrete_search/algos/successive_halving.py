"""Successive halving: many models with a small budget, the better ones of them with a larger one, and so on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Set, Union

from phalanx.errors import InputError

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_results import SearchResults
from ..api.search_space import DiscreteSearchSpace
from ..api.searcher import Searcher
from ._population import fronts

__all__ = ["SuccessiveHalvingSearch"]

# How often a model is drawn anew that was drawn before.
_PATIENCE = 30


class SuccessiveHalvingSearch(Searcher):
    """Evaluates all models with a budget, keeps the better fronts, and goes on with a larger budget until one is left.

    With a ``budget_multiplier`` of 2 the better half of the fronts is kept, always at least one.
    """

    def __init__(
        self,
        search_space: DiscreteSearchSpace,
        objectives: SearchObjectives,
        dataset_provider: Any,
        output_dir: Union[str, Path],
        num_iters: int = 10,
        init_num_models: int = 10,
        init_budget: float = 1.0,
        budget_multiplier: float = 2.0,
        seed: int = 1,
    ) -> None:
        if budget_multiplier <= 1:
            raise InputError(f"`budget_multiplier` must be above 1, not {budget_multiplier}")
        self.search_space = search_space
        self.objectives = objectives
        self.dataset_provider = dataset_provider
        self.output_dir = Path(output_dir)
        self.num_iters = num_iters
        self.init_num_models = init_num_models
        self.init_budget = init_budget
        self.budget_multiplier = budget_multiplier
        self.seed = seed
        self.search_state = SearchResults(search_space, objectives)

    def search(self) -> SearchResults:
        """Searches; tables, plots and models are in the output directory after every iteration."""
        self.output_dir.mkdir(parents=True, exist_ok=True)
        # Two of one architecture have the same values, and none of them would ever be dropped.
        drawn = (self.search_space.random_sample() for _ in range(self.init_num_models * _PATIENCE))
        models = list(itertools.islice(_distinct(drawn), self.init_num_models))
        budget = self.init_budget
        for number in range(self.num_iters):
            if len(models) <= 1:
                break
            models = self._iteration(number, models, budget)
            budget *= self.budget_multiplier
        if len(models) == 1:
            self.search_space.save_arch(models[0], str(self.output_dir / "final_model"))
        return self.search_state

    def _iteration(self, number: int, models: List[ArchaiModel], budget: float) -> List[ArchaiModel]:
        """Evaluates models; gives those that are kept."""
        budgets = {name: [budget] * len(models) for name in self.objectives.objective_names}
        values = self.objectives.eval_all_objs(models, budgets)
        self.search_state.add_iteration_results(models, values, {"budget": [budget] * len(models)})
        folder = self.output_dir / f"models_iter_{number}"
        folder.mkdir(exist_ok=True)
        for model in models:
            self.search_space.save_arch(model, str(folder / model.archid))
        self.search_state.save_search_state(self.output_dir / f"search_state_{number}.csv")
        self.search_state.save_all_2d_pareto_evolution_plots(self.output_dir)
        ranked = fronts(values, self.objectives)
        kept = ranked[: max(1, int(len(ranked) / self.budget_multiplier))]
        return [models[at] for front in kept for at in front]


def _distinct(models: Iterable[ArchaiModel]) -> Iterator[ArchaiModel]:
    seen: Set[str] = set()
    for model in models:
        if model.archid not in seen:
            seen.add(model.archid)
            yield model
