"""What a search has found so far."""

from __future__ import annotations

import csv
import itertools
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy

from phalanx.search import pareto_front

from .archai_model import ArchaiModel
from .search_objectives import SearchObjectives
from .search_space import DiscreteSearchSpace

__all__ = ["SearchResults"]


class SearchResults:
    """Models and their values, iteration by iteration."""

    def __init__(self, search_space: DiscreteSearchSpace, objectives: SearchObjectives) -> None:
        self.search_space = search_space
        self.objectives = objectives
        self.iteration_num = 0
        self.results: List[Dict[str, Any]] = []
        self._models: List[ArchaiModel] = []
        self._rows: List[Dict[str, Any]] = []
        self._begun = time.monotonic()

    def add_iteration_results(
        self,
        models: Sequence[ArchaiModel],
        evaluation_results: Mapping[str, Any],
        extra_model_data: Optional[Mapping[str, Sequence[Any]]] = None,
    ) -> None:
        """Adds an iteration: models, the values of all objectives, and further columns."""
        extra = dict(extra_model_data or {})
        hours = (time.monotonic() - self._begun) / 3600
        for at, model in enumerate(models):
            row: Dict[str, Any] = {"archid": model.archid}
            row.update({name: float(evaluation_results[name][at]) for name in self.objectives.objective_names})
            row.update({name: column[at] for name, column in extra.items()})
            self._rows.append({**row, "iteration_num": self.iteration_num, "search_walltime_hours": hours})
        self._models.extend(models)
        values = {name: numpy.asarray(evaluation_results[name]) for name in self.objectives.objective_names}
        archids = [model.archid for model in models]
        self.results.append({"models": list(models), "archid": archids, **values, **extra})
        self.iteration_num += 1

    @property
    def all_evaluated_objs(self) -> Dict[str, Any]:
        """The values of each objective, of all models in the order of their evaluation."""
        names = self.objectives.objective_names
        return {name: numpy.array([row[name] for row in self._rows], dtype=numpy.float64) for name in names}

    def get_all_evaluated_models(self) -> List[ArchaiModel]:
        """All models, in the order of their evaluation."""
        return list(self._models)

    def get_pareto_frontier(self, start_iteration: int = 0, end_iteration: Optional[int] = None) -> Dict[str, Any]:
        """The models that no other is better than, from one iteration up to but without another.

        Their values, their numbers among all models and their iterations are there too.
        """
        end = self.iteration_num if end_iteration is None else end_iteration
        indices = self._front(start_iteration, end)
        names = self.objectives.objective_names
        return {
            "models": [self._models[at] for at in indices],
            "evaluation_results": {name: numpy.array([self._rows[at][name] for at in indices]) for name in names},
            "indices": indices,
            "iteration_nums": [self._rows[at]["iteration_num"] for at in indices],
        }

    def _front(self, start: int, end: int) -> List[int]:
        names = self.objectives.objective_names
        goals = ["max" if self.objectives.is_higher_better(name) else "min" for name in names]
        within = [
            at
            for at, row in enumerate(self._rows)
            if start <= row["iteration_num"] < end and all(numpy.isfinite(row[name]) for name in names)
        ]
        points = [[self._rows[at][name] for name in names] for at in within]
        return [within[at] for at in pareto_front(points, goals)]

    def get_search_state(self) -> List[Dict[str, Any]]:
        """A dict per model: archid, objectives, further columns, iteration_num, search_walltime_hours, is_pareto."""
        front = set(self._front(0, self.iteration_num))
        return [{**row, "is_pareto": at in front} for at, row in enumerate(self._rows)]

    def get_search_state_df(self) -> Any:
        """The same as a data frame of pandas."""
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return pandas.DataFrame(self.get_search_state())

    def save_search_state(self, file: Union[str, Path]) -> None:
        """Writes the state as CSV."""
        rows = self.get_search_state()
        columns = list(dict.fromkeys(name for row in rows for name in row if name != "is_pareto"))
        with open(file, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, [*columns, "is_pareto"], restval="")
            writer.writeheader()
            for row in rows:
                writer.writerow({name: "" if value != value else value for name, value in row.items()})

    def save_pareto_frontier_models(self, directory: Union[str, Path], save_weights: bool = False) -> None:
        """Writes the architectures of the front, and the weights if they are asked for."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for model in self.get_pareto_frontier()["models"]:
            self.search_space.save_arch(model, str(folder / model.archid))
            if save_weights:
                self.search_space.save_model_weights(model, str(folder / f"{model.archid}_weights.pt"))

    def plot_2d_pareto_evolution(
        self, objective_names: Tuple[str, str], figsize: Tuple[int, int] = (10, 5)
    ) -> Any:
        """A figure of matplotlib: the front after each iteration."""
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.figure import Figure

        x, y = objective_names
        figure = Figure(figsize=figsize)
        axes = figure.subplots()
        last, plasma = max(self.iteration_num, 1), colormaps["plasma"]
        for end in range(1, self.iteration_num + 1):
            points = sorted((self._rows[at][x], self._rows[at][y]) for at in self._front(0, end))
            xs, ys = [point[0] for point in points], [point[1] for point in points]
            axes.step(xs, ys, "o-", where="post", color=plasma(end / last))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        figure.colorbar(ScalarMappable(Normalize(0, last), plasma), ax=axes).set_label("iteration")
        return figure

    def save_all_2d_pareto_evolution_plots(self, directory: Union[str, Path]) -> None:
        """Draws the front of every pair of objectives; without matplotlib nothing."""
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            return
        Path(directory).mkdir(parents=True, exist_ok=True)
        for pair in itertools.combinations(self.objectives.objective_names, 2):
            name = re.sub(r"[^-\w.]", "", f"pareto_{pair[0]}_vs_{pair[1]}.png".replace(" ", "_"))
            self.plot_2d_pareto_evolution(pair).savefig(Path(directory) / name)
