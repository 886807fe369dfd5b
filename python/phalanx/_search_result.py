"""What a search has found."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from . import _phalanx
from ._search_space import Space
from .errors import InputError


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried."""

    number: int
    candidate: Dict[str, Any]
    values: Dict[str, float]
    """Of the largest budget that it reached: objectives, and whatever else was returned."""
    status: str
    """completed, partial, failed, infeasible, queued, …"""
    why: Optional[str]
    """Why it failed or breaks a constraint."""
    archid: str
    budget: float
    seconds: float
    parents: Tuple[int, ...]
    is_on_front: bool


@dataclass(frozen=True)
class SearchResult:
    """What a search has found."""

    objectives: Dict[str, str]
    trials: List[Trial] = field(repr=False)
    hypervolumes: List[float] = field(repr=False)
    """After each result, the covered share of the space between the best value of each objective and the worst."""
    ended: str
    """``finished``, or ``stopped`` by Ctrl-C."""
    directory: Optional[str]

    @classmethod
    def _of(
        cls,
        core: "_phalanx.SearchCore",
        space: Space,
        objectives: Dict[str, str],
        ended: str,
        directory: Optional[str],
    ) -> "SearchResult":
        front = set(core.front())
        trials = []
        for row in json.loads(core.trials()):
            results = row["results"]
            measured = results[-1]["values"] if results else {}
            trials.append(
                Trial(
                    number=row["trial"],
                    candidate=space.candidate(row["genes"]),
                    values={**measured, **row["known"]},
                    status=row["status"],
                    why=row["why"],
                    archid=row["archid"],
                    budget=results[-1]["budget"] if results else 0.0,
                    seconds=sum(result["seconds"] for result in results),
                    parents=tuple(row["parents"]),
                    is_on_front=row["trial"] in front,
                )
            )
        volumes = [volume for _, volume in core.hypervolumes()]
        return cls(objectives, trials, volumes, ended, directory)

    @property
    def front(self) -> List[Trial]:
        """The trials that no other is better than, by the first objective."""
        first = next(iter(self.objectives))
        return sorted((trial for trial in self.trials if trial.is_on_front), key=lambda trial: trial.values[first])

    @property
    def best(self) -> Trial:
        """The trial that is best in the first objective; ``best_by`` asks for another."""
        return self.best_by(next(iter(self.objectives)))

    def best_by(self, objective: str) -> Trial:
        """The trial of the front that is best in this objective."""
        return best_of(self.front, self.objectives, objective)

    @property
    def hypervolume(self) -> float:
        """The covered share of the space between the best value of each objective and the worst."""
        return self.hypervolumes[-1] if self.hypervolumes else 0.0

    def to_dicts(self) -> List[Dict[str, Any]]:
        """A flat dict per trial, as ``pandas.DataFrame`` takes them: choices and values beside number and status.

        A value with the name of a choice is called ``value.<name>``.
        """
        return [flat(trial) for trial in self.trials]


def best_of(front: List[Trial], objectives: Dict[str, str], objective: str) -> Trial:
    """The trial of a front that is best in an objective."""
    if objective not in objectives:
        raise InputError(f"`{objective}` is no objective of the search; it has {', '.join(objectives)}")
    if not front:
        raise InputError("no trial has a result")
    best = max if objectives[objective] == "max" else min
    return best(front, key=lambda trial: trial.values[objective])


def flat(trial: Trial) -> Dict[str, Any]:
    """Choices and values of a trial beside its number and status."""
    flat: Dict[str, Any] = {"trial": trial.number, "archid": trial.archid, "status": trial.status}
    flat.update(trial.candidate)
    for name, value in trial.values.items():
        flat[f"value.{name}" if name in flat else name] = value
    return {**flat, "budget": trial.budget, "seconds": trial.seconds, "is_pareto": trial.is_on_front, "why": trial.why}
