"""What a search wants of models, and what it asks of them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy

from phalanx.errors import InputError

from .archai_model import ArchaiModel
from .model_evaluator import AsyncModelEvaluator, ModelEvaluator

__all__ = ["SearchObjectives"]

_Evaluator = Union[ModelEvaluator, AsyncModelEvaluator]
_Limits = Tuple[float, float]
_Budgets = Optional[Mapping[str, Union[float, Sequence[Optional[float]], None]]]
_Values = Dict[str, "numpy.ndarray[Any, numpy.dtype[numpy.float64]]"]


@dataclass(frozen=True)
class _Objective:
    evaluator: _Evaluator
    higher_is_better: bool
    compute_intensive: bool
    limits: Optional[_Limits]


class SearchObjectives:
    """Objectives and constraints by name. A value is computed once per architecture and budget."""

    def __init__(self, cache_objective_evaluation: bool = True) -> None:
        self._objectives: Dict[str, _Objective] = {}
        self._constraints: Dict[str, _Objective] = {}
        self._is_cached = cache_objective_evaluation
        self._cache: Dict[Tuple[str, str, Optional[float]], Optional[float]] = {}

    def add_objective(
        self,
        name: str,
        model_evaluator: _Evaluator,
        higher_is_better: bool,
        compute_intensive: bool = True,
        constraint: Optional[_Limits] = None,
    ) -> None:
        """Adds an objective. One that is not compute intensive may have limits, both included."""
        if constraint is not None and compute_intensive:
            raise InputError(f"the objective `{name}` has a constraint but is compute intensive")
        self._new(name, model_evaluator)
        self._objectives[name] = _Objective(model_evaluator, higher_is_better, compute_intensive, constraint)

    def add_constraint(self, name: str, model_evaluator: _Evaluator, constraint: _Limits) -> None:
        """Adds a value that must lie between limits, both included, and is no objective."""
        self._new(name, model_evaluator)
        self._constraints[name] = _Objective(model_evaluator, False, False, constraint)

    def _new(self, name: str, evaluator: Any) -> None:
        if name in self._objectives or name in self._constraints:
            raise InputError(f"there are two objectives or constraints called `{name}`")
        if not isinstance(evaluator, (ModelEvaluator, AsyncModelEvaluator)):
            raise InputError(f"the evaluator of `{name}` is neither a ModelEvaluator nor an AsyncModelEvaluator")

    @property
    def objective_names(self) -> List[str]:
        """Names of the objectives."""
        return list(self._objectives)

    @property
    def cheap_objective_names(self) -> List[str]:
        """Names of the objectives that are not compute intensive."""
        return [name for name, each in self._objectives.items() if not each.compute_intensive]

    @property
    def expensive_objective_names(self) -> List[str]:
        """Names of the objectives that are compute intensive."""
        return [name for name, each in self._objectives.items() if each.compute_intensive]

    @property
    def constraint_names(self) -> List[str]:
        """Names of the constraints that are no objectives."""
        return list(self._constraints)

    def is_higher_better(self, name: str) -> bool:
        """Whether more is better."""
        return self._objectives[name].higher_is_better

    def eval_cheap_objs(
        self, models: Sequence[ArchaiModel], budgets: _Budgets = None, progress_bar: bool = False
    ) -> _Values:
        """The values of the objectives that are not compute intensive."""
        return self._evaluate(self.cheap_objective_names, models, budgets)

    def eval_expensive_objs(
        self, models: Sequence[ArchaiModel], budgets: _Budgets = None, progress_bar: bool = False
    ) -> _Values:
        """The values of the objectives that are compute intensive."""
        return self._evaluate(self.expensive_objective_names, models, budgets)

    def eval_all_objs(
        self, models: Sequence[ArchaiModel], budgets: _Budgets = None, progress_bar: bool = False
    ) -> _Values:
        """The values of all objectives; NaN where an evaluator failed."""
        return self._evaluate(self.objective_names, models, budgets)

    def eval_constraints(self, models: Sequence[ArchaiModel], progress_bar: bool = False) -> _Values:
        """The values of all that has limits."""
        limited = [name for name, each in self._objectives.items() if each.limits is not None]
        return self._evaluate([*self._constraints, *limited], models, None)

    def is_model_valid(self, model: ArchaiModel) -> bool:
        """Whether a model keeps to all limits."""
        return bool(self.validate_constraints([model])[1])

    def validate_constraints(
        self, models: Sequence[ArchaiModel], progress_bar: bool = False
    ) -> Tuple[_Values, List[int]]:
        """The values of all that has limits, and the numbers of the models that keep to them."""
        values = self.eval_constraints(models)
        everything = {**self._objectives, **self._constraints}

        def is_within(name: str, value: float) -> bool:
            low, high = everything[name].limits or (-math.inf, math.inf)
            return low <= value <= high

        valid = [at for at in range(len(models)) if all(is_within(name, each[at]) for name, each in values.items())]
        return values, valid

    def _evaluate(self, names: Sequence[str], models: Sequence[ArchaiModel], budgets: _Budgets) -> _Values:
        everything = {**self._objectives, **self._constraints}
        found: Dict[str, List[Optional[float]]] = {}
        missing: Dict[str, List[int]] = {}
        spent: Dict[str, Sequence[Optional[float]]] = {}
        for name in names:
            budget_of = (budgets or {}).get(name)
            is_one = budget_of is None or isinstance(budget_of, (int, float))
            spent[name] = [budget_of] * len(models) if is_one else budget_of  # type: ignore[list-item, assignment]
            keys = [(name, model.archid, budget) for model, budget in zip(models, spent[name])]
            found[name] = [self._cache.get(key) for key in keys]
            missing[name] = [at for at, key in enumerate(keys) if key not in self._cache]
        sent = [name for name in names if isinstance(everything[name].evaluator, AsyncModelEvaluator)]
        for name in sent:
            for at in missing[name]:
                everything[name].evaluator.send(models[at], spent[name][at])  # type: ignore[union-attr]
        for name in names:
            evaluator = everything[name].evaluator
            if isinstance(evaluator, ModelEvaluator):
                for at in missing[name]:
                    found[name][at] = evaluator.evaluate(models[at], spent[name][at])
        for name in sent:
            values = everything[name].evaluator.fetch_all()  # type: ignore[union-attr]
            if len(values) != len(missing[name]):
                raise InputError(
                    f"the evaluator of `{name}` was sent {len(missing[name])} models and gave {len(values)} values"
                )
            for at, value in zip(missing[name], values):
                found[name][at] = value
        if self._is_cached:
            for name in names:
                for at in missing[name]:
                    self._cache[name, models[at].archid, spent[name][at]] = found[name][at]
        numbers = {name: [math.nan if value is None else float(value) for value in found[name]] for name in names}
        return {name: numpy.array(values, dtype=numpy.float64) for name, values in numbers.items()}

    def lookup_cache(self, name: str, archid: str, budget: Optional[float] = None) -> Optional[float]:
        """A value that was computed before."""
        return self._cache.get((name, archid, budget))

    def save_cache(self, file: Union[str, Path]) -> None:
        """Writes the values that were computed: YAML, in the part of it that JSON is."""
        rows = [[*key, value] for key, value in self._cache.items()]
        Path(file).write_text(json.dumps(rows, indent=1), encoding="utf-8")

    def load_cache(self, file: Union[str, Path]) -> None:
        """Reads values that were written before."""
        for name, archid, budget, value in json.loads(Path(file).read_text(encoding="utf-8")):
            self._cache[name, archid, budget] = value
