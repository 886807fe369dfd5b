"""The evolutionary Pareto search: the front's mutants and crossings, and some random models, over and over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Union

from phalanx.errors import SearchFailed

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_results import SearchResults
from ..api.search_space import EvolutionarySearchSpace
from ..api.searcher import Searcher

__all__ = ["EvolutionParetoSearch"]

# How often a model is made anew that was seen before or breaks a constraint.
_PATIENCE = 30


class EvolutionParetoSearch(Searcher):
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
        self.search_space = search_space
        self.so = search_objectives
        self.output_dir = Path(output_dir)
        self.num_iters = num_iters
        self.init_num_models = init_num_models
        self.initial_population_paths = initial_population_paths
        self.num_random_mix = num_random_mix
        self.max_unseen_population = max_unseen_population
        self.mutations_per_parent = mutations_per_parent
        self.num_crossovers = num_crossovers
        self.clear_evaluated_models = clear_evaluated_models
        self.save_pareto_model_weights = save_pareto_model_weights
        self.search_state = SearchResults(search_space, search_objectives)
        self.seen_archs: Set[str] = set()
        self._random = random.Random(seed)

    def search(self) -> SearchResults:
        """Searches; tables, plots and the models of the front are in the output directory after every iteration."""
        self.output_dir.mkdir(parents=True, exist_ok=True)
        unseen = self._first()
        if not unseen:
            raise SearchFailed("no model of the space keeps to the constraints")
        for number in range(1, self.num_iters + 1):
            extra = {
                "parent": [model.metadata.get("parent") for model in unseen],
                "parents": [model.metadata.get("parents") for model in unseen],
            }
            self.search_state.add_iteration_results(unseen, self.so.eval_all_objs(unseen), extra)
            self.seen_archs.update(model.archid for model in unseen)
            front: List[ArchaiModel] = self.search_state.get_pareto_frontier()["models"]
            self._write(number)
            self._clear(unseen, front)
            if number == self.num_iters or not (unseen := self._next(front)):
                break
        return self.search_state

    def _write(self, number: int) -> None:
        self.search_state.save_search_state(self.output_dir / f"search_state_{number}.csv")
        models = self.output_dir / f"pareto_models_iter_{number}"
        self.search_state.save_pareto_frontier_models(models, self.save_pareto_model_weights)
        self.search_state.save_all_2d_pareto_evolution_plots(self.output_dir)

    def _clear(self, evaluated: Sequence[ArchaiModel], front: Sequence[ArchaiModel]) -> None:
        """Models off the front are not needed again."""
        if self.clear_evaluated_models:
            keep = {id(model) for model in front}
            for model in evaluated:
                if id(model) not in keep:
                    model.clear()

    def _first(self) -> List[ArchaiModel]:
        if self.initial_population_paths:
            return self._valid([self.search_space.load_arch(path) for path in self.initial_population_paths])
        return self._fresh(self.init_num_models, self.search_space.random_sample, {})

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        made: Dict[str, ArchaiModel] = {}
        for parent in front:

            def mutant(parent: ArchaiModel = parent) -> ArchaiModel:
                model = self.search_space.mutate(parent)
                model.metadata["parent"] = parent.archid
                return model

            self._fresh(self.mutations_per_parent, mutant, made)

        def crossing() -> ArchaiModel:
            parents = self._random.choices(front, k=2)
            model = self.search_space.crossover(parents)
            model.metadata["parents"] = ",".join(parent.archid for parent in parents)
            return model

        if front:
            self._fresh(self.num_crossovers, crossing, made)
        self._fresh(self.num_random_mix, self.search_space.random_sample, made)
        unseen = list(made.values())
        return self._random.sample(unseen, min(len(unseen), self.max_unseen_population))

    def _fresh(self, count: int, make: Any, made: Dict[str, ArchaiModel]) -> List[ArchaiModel]:
        """So many models that are new and keep to the constraints, fewer if they are hard to find."""
        wanted = len(made) + count
        for _ in range(count * _PATIENCE):
            if len(made) >= wanted:
                break
            model = make()
            if model.archid not in self.seen_archs and model.archid not in made and self._valid([model]):
                made[model.archid] = model
        return list(made.values())

    def _valid(self, models: List[ArchaiModel]) -> List[ArchaiModel]:
        _, valid = self.so.validate_constraints(models)
        return [models[at] for at in valid]
