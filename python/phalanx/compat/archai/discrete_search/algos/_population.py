"""What searches by populations have in common: new models, and files after every iteration."""

from __future__ import annotations

import random
from abc import abstractmethod
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Union

import numpy

from phalanx.errors import SearchFailed
from phalanx.search import pareto_front

from ..api.archai_model import ArchaiModel
from ..api.search_objectives import SearchObjectives
from ..api.search_results import SearchResults
from ..api.searcher import Searcher

# How often a model is made anew that was seen before or breaks a constraint.
_PATIENCE = 30

Columns = Dict[str, Sequence[Any]]


class PopulationSearch(Searcher):
    """Evaluates a population per iteration, and makes the next one of what was found."""

    # The number of the first iteration in names of files.
    _first_number = 1

    def __init__(
        self,
        search_space: Any,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        num_iters: int,
        seed: Optional[int],
        clear_evaluated_models: bool,
        save_pareto_model_weights: bool,
    ) -> None:
        self.search_space = search_space
        self.so = search_objectives
        self.output_dir = Path(output_dir)
        self.num_iters = num_iters
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
        last = self._first_number + self.num_iters - 1
        for number in range(self._first_number, last + 1):
            self.search_state.add_iteration_results(unseen, self.so.eval_all_objs(unseen), self._columns(unseen))
            self.seen_archs.update(model.archid for model in unseen)
            front: List[ArchaiModel] = self.search_state.get_pareto_frontier()["models"]
            self._write(number)
            self._clear(unseen, front)
            if number == last or not (unseen := self._next(front)):
                break
        return self.search_state

    @abstractmethod
    def _first(self) -> List[ArchaiModel]:
        """The models of the first iteration."""

    @abstractmethod
    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        """The models of the next iteration; none ends the search."""

    def _columns(self, models: Sequence[ArchaiModel]) -> Columns:
        """Further columns of the table."""
        return {"parent": [model.metadata.get("parent") for model in models]}

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

    def _initial(self, count: int, paths: Optional[Sequence[str]]) -> List[ArchaiModel]:
        """Models of files, else random ones."""
        if paths:
            return self._valid([self.search_space.load_arch(path) for path in paths])
        return self._fresh(count, self.search_space.random_sample, {})

    def _mutants(self, parents: Sequence[ArchaiModel], count: int, made: Dict[str, ArchaiModel]) -> List[ArchaiModel]:
        """So many mutants of each parent."""
        for parent in parents:

            def mutant(parent: ArchaiModel = parent) -> ArchaiModel:
                model: ArchaiModel = self.search_space.mutate(parent)
                model.metadata["parent"] = parent.archid
                return model

            self._fresh(count, mutant, made)
        return list(made.values())

    def _fresh(
        self, count: int, make: Callable[[], ArchaiModel], made: Dict[str, ArchaiModel]
    ) -> List[ArchaiModel]:
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


def fronts(values: Mapping[str, Any], objectives: SearchObjectives) -> List[List[int]]:
    """The numbers of models, those that no other is better than first, then those that only these are better than, and
    so on. Models without all values are in none."""
    names = list(values)
    goals = ["max" if objectives.is_higher_better(name) else "min" for name in names]
    columns = [numpy.asarray(values[name], dtype=numpy.float64) for name in names]
    left = [at for at in range(len(columns[0])) if all(numpy.isfinite(column[at]) for column in columns)]
    found = []
    while left:
        front = [left[at] for at in pareto_front([[float(column[at]) for column in columns] for at in left], goals)]
        found.append(front)
        taken = set(front)
        left = [at for at in left if at not in taken]
    return found
