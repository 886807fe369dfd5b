"""BANANAS for several objectives: a model predicts what mutants are worth, and the most promising are evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy

from ..api.archai_model import ArchaiModel
from ..api.predictor import MeanVar, Predictor
from ..api.search_objectives import SearchObjectives
from ..api.search_space import BayesOptSearchSpace
from ..predictors import PredictiveDNNEnsemble
from ._population import Columns, PopulationSearch, fronts

__all__ = ["MoBananasSearch"]


class MoBananasSearch(PopulationSearch):
    """Every iteration evaluates those mutants of the best models that a draw of the prediction finds best.

    Objectives that are not compute intensive are computed of all mutants, not predicted.
    """

    _first_number = 0

    def __init__(
        self,
        search_space: BayesOptSearchSpace,
        search_objectives: SearchObjectives,
        output_dir: Union[str, Path],
        surrogate_model: Optional[Predictor] = None,
        num_iters: int = 10,
        init_num_models: int = 10,
        num_parents: int = 10,
        mutations_per_parent: int = 5,
        num_candidates: int = 10,
        clear_evaluated_models: bool = True,
        save_pareto_weights: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(
            search_space, search_objectives, output_dir, num_iters, seed, clear_evaluated_models, save_pareto_weights
        )
        self.surrogate_model = PredictiveDNNEnsemble() if surrogate_model is None else surrogate_model
        self.init_num_models = init_num_models
        self.num_parents = num_parents
        self.mutations_per_parent = mutations_per_parent
        self.num_candidates = num_candidates
        self._draws = numpy.random.default_rng(seed)
        self._predicted: Dict[str, Dict[str, float]] = {}

    def _first(self) -> List[ArchaiModel]:
        return self._initial(self.init_num_models, None)

    def _columns(self, models: Sequence[ArchaiModel]) -> Columns:
        names = [f"Predicted {name} {of}" for name in self.so.expensive_objective_names for of in ("mean", "var")]
        return {name: [self._predicted.get(model.archid, {}).get(name) for model in models] for name in names}

    def _next(self, front: Sequence[ArchaiModel]) -> List[ArchaiModel]:
        models, values = self.search_state.get_all_evaluated_models(), self.search_state.all_evaluated_objs
        ranked = [at for each in fronts(values, self.so) for at in each]
        mutants = self._mutants([models[at] for at in ranked[: self.num_parents]], self.mutations_per_parent, {})
        if not mutants:
            return []
        predicted = self._predict(mutants, [models[at] for at in ranked], {n: v[ranked] for n, v in values.items()})
        drawn: Dict[str, Any] = dict(self.so.eval_cheap_objs(mutants))
        for name, found in predicted.items():
            drawn[name] = self._draws.normal(found.mean, numpy.sqrt(found.var))
            for at, model in enumerate(mutants):
                told = self._predicted.setdefault(model.archid, {})
                told[f"Predicted {name} mean"] = float(found.mean[at])
                told[f"Predicted {name} var"] = float(found.var[at])
        best = [at for each in fronts(drawn, self.so) for at in each]
        return [mutants[at] for at in best[: self.num_candidates]]

    def _predict(
        self, mutants: Sequence[ArchaiModel], models: Sequence[ArchaiModel], values: Dict[str, Any]
    ) -> Dict[str, MeanVar]:
        """What the surrogate, fitted to everything evaluated, makes of models, for each expensive objective."""
        names = self.so.expensive_objective_names
        if not names:
            return {}
        encoded = numpy.stack([self.search_space.encode(model) for model in models])
        self.surrogate_model.fit(encoded, numpy.stack([values[name] for name in names], axis=1))
        found = self.surrogate_model.predict(numpy.stack([self.search_space.encode(model) for model in mutants]))
        return {name: MeanVar(found.mean[:, at], found.var[:, at]) for at, name in enumerate(names)}
