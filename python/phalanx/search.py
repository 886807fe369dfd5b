"""Searches for the best candidates: any function as objective, any space, one call.

>>> from phalanx.search import search
>>> def objective(candidate):
...     return {"accuracy": 1 - 0.5 / candidate["layers"], "params": candidate["layers"] * candidate["width"]}
>>> space = {"layers": range(1, 5), "width": [16, 32]}
>>> found = search(objective, space, objectives={"accuracy": "max", "params": "min"}, trials=8, workers=1)
>>> [(trial.candidate["layers"], trial.values["params"]) for trial in found.front]
[(1, 16.0), (2, 32.0), (3, 48.0), (4, 64.0)]
>>> found.best.candidate
{'layers': 4, 'width': 16}
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Executor
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _phalanx
from ._search_nodes import NodeSearchResult, run
from ._search_run import Knows, drive, takes
from ._search_result import SearchResult, Trial
from ._search_space import Repeat, Space, Values, When, log_range, repeat, when
from .errors import InputError, SearchFailed

__all__ = [
    "NodeSearchResult",
    "SearchResult",
    "Space",
    "Trial",
    "hypervolume",
    "log_range",
    "pareto_front",
    "repeat",
    "run",
    "search",
    "when",
]

Candidate = Dict[str, Any]
Objective = Callable[..., Union[Mapping[str, float], float]]
Limits = Union[Tuple[Optional[float], Optional[float]], Mapping[str, float]]

_EARLY_FAILURES = 5


def search(
    objective: Objective,
    space: Union[Space, Mapping[str, Union[Values, When, Repeat, Any]]],
    *,
    objectives: Mapping[str, str],
    trials: int = 50,
    algorithm: str = "guided",
    seed: int = 0,
    workers: Optional[int] = None,
    executor: Optional[Executor] = None,
    budgets: Optional[Sequence[float]] = None,
    constraints: Optional[Mapping[str, Limits]] = None,
    known: Optional[Mapping[str, Callable[[Candidate], float]]] = None,
    directory: Union[str, "os.PathLike[str]", None] = None,
    settings: Optional[Mapping[str, Any]] = None,
) -> SearchResult:
    """Tries candidates of a space and gives those that no other is better than.

    ``objective`` is called with a candidate, a dict of choices, and returns a dict with the values of the objectives;
    further values are kept. With one objective it may return the number alone. What it raises fails the trial; a search
    whose first trials all fail ends with ``SearchFailed`` and the reason. ``space`` has the choices of each name, see
    ``Space``; ``objectives`` says of each whether ``"max"`` or ``"min"`` is better.

    ``workers`` trials run at once, in threads, or where the ``executor`` runs its calls (``phalanx.jobs.Executor``: on
    the nodes of a domain). A worker that is free gets the next candidate at once. With one worker, the same seed gives
    the same candidates. ``algorithm`` is guided, evolution_pareto, nsga2, regularized, local, random, grid or bananas;
    ``settings`` are those of the algorithm, such as ``{"population": 30}``.

    ``budgets`` are ascending: every candidate is tried with the first, the better ones with the next, and those on the
    front with the last; the objective gets them as ``budget``. ``known`` are functions of a candidate for values that
    need no trial: objectives among them are computed beforehand, which lets the algorithm choose better. ``constraints``
    are limits, both included, of values by name: ``{"params": (None, 1e6)}``; on known values they are checked before
    a candidate is tried.

    Ctrl-C ends the search and gives what was found until then. ``directory`` records the search, so that ``phalanx
    search status``, ``show`` and ``plot`` read it while it goes on and after; the same call goes on with it and does
    no trial again.

    >>> from phalanx.search import log_range, search, when
    >>> space = {"lr": log_range(1e-4, 1e-2, 5), "head": ["pool", "dense"], "width": when([32, 64], head="dense")}
    >>> def objective(candidate):
    ...     return candidate.get("width", 16) * candidate["lr"]
    >>> found = search(objective, space, objectives={"loss": "min"}, trials=15, workers=1)
    >>> found.best.candidate, found.best.values
    ({'lr': 0.0001, 'head': 'pool'}, {'loss': 0.0016})
    """
    space = space if isinstance(space, Space) else Space(space)
    known, count = dict(known or {}), _workers(workers, executor)
    goals, limits = _goals(objectives), _limits(constraints or {})
    if not callable(objective):
        raise InputError(f"the objective is no function but {type(objective).__name__}")
    if trials < 1:
        raise InputError("`trials` must be at least 1")
    rungs = _rungs(budgets, objective)
    told = {
        "name": os.path.basename(os.path.abspath(directory)) if directory is not None else "search",
        "algorithm": algorithm,
        "algorithm_settings": dict(settings or {}),
        "seed": seed,
        "trials": trials,
        "objectives": [{"name": name, "goal": goal, "cheap": name in known} for name, goal in goals.items()],
        "constraints": limits,
        "rungs": rungs,
        "eta": 3,
        "finish": "front",
        "early_failures": _EARLY_FAILURES,
    }
    knows = Knows(space, known) if known else None
    core = _phalanx.SearchCore(space._space, json.dumps(told), knows, directory)
    try:
        wanted = [name for name in dict.fromkeys([*goals, *limits]) if name not in known]
        ended, why, error = drive(core, space, objective, wanted, count, executor, budgets is not None, knows)
        core.write_results()
        if ended == "failed":
            raise SearchFailed(why or "the search has failed") from error
        return SearchResult._of(core, space, goals, ended, None if directory is None else os.fspath(directory))
    finally:
        core.close()


def pareto_front(points: Sequence[Sequence[float]], goals: Optional[Sequence[str]] = None) -> List[int]:
    """The numbers of the points that no other is better than. ``goals`` are ``"min"`` (the default) or ``"max"``.

    >>> from phalanx.search import pareto_front
    >>> pareto_front([(1, 5), (2, 2), (3, 3), (5, 1)])
    [0, 1, 3]
    >>> pareto_front([(0.9, 10), (0.8, 20), (0.7, 5)], ["max", "min"])
    [0, 2]
    """
    return _phalanx.pareto_front(_turned(points, goals))


def hypervolume(
    points: Sequence[Sequence[float]], reference: Sequence[float], goals: Optional[Sequence[str]] = None
) -> float:
    """The volume between the points and a reference that is worse than them, exactly, for any number of objectives.

    >>> from phalanx.search import hypervolume
    >>> hypervolume([(1, 2), (2, 1)], (3, 3))
    3.0
    """
    return _phalanx.hypervolume(_turned(points, goals), _turned([reference], goals)[0])


def _turned(points: Sequence[Sequence[float]], goals: Optional[Sequence[str]]) -> List[List[float]]:
    if goals is None:
        return [[float(value) for value in point] for point in points]
    checked = _goals({f"objective {at}": goal for at, goal in enumerate(goals)})
    signs = [-1.0 if goal == "max" else 1.0 for goal in checked.values()]
    if any(len(point) != len(signs) for point in points):
        raise InputError(f"there are {len(signs)} goals, and points of other lengths")
    return [[sign * float(value) for sign, value in zip(signs, point)] for point in points]


def _goals(objectives: Any) -> Dict[str, str]:
    if not isinstance(objectives, Mapping) or not objectives:
        raise InputError("the search has no objective", 'say `objectives={"accuracy": "max"}`')
    for name, goal in objectives.items():
        if goal not in ("max", "min"):
            raise InputError(f"the goal of `{name}` is {goal!r}", 'it is "max" or "min"')
    return dict(objectives)


def _limits(constraints: Mapping[str, Any]) -> Dict[str, Dict[str, float]]:
    limits = {}
    for name, given in constraints.items():
        pairs: List[Tuple[Any, Any]]
        if isinstance(given, Mapping):
            pairs = list(given.items())
        elif isinstance(given, (tuple, list)) and len(given) == 2:
            pairs = list(zip(("at_least", "at_most"), given))
        else:
            pairs = [("", None)]
        if any(which not in ("at_least", "at_most") for which, _ in pairs):
            hint = 'say (least, most) with None for no limit, or {"at_most": 1e6}'
            raise InputError(f"the constraint `{name}` cannot be used: {given!r}", hint)
        limits[name] = {which: float(value) for which, value in pairs if value is not None}
        if not limits[name]:
            raise InputError(f"the constraint `{name}` has no limit")
    return limits


def _rungs(budgets: Optional[Sequence[float]], objective: Objective) -> List[float]:
    if budgets is None:
        if takes(objective, "budget", required=True):
            raise InputError("the objective takes a `budget`", "say `budgets=[1, 3, 9]`")
        return [1.0]
    rungs = [float(budget) for budget in budgets]
    if not rungs or rungs[0] <= 0 or any(later <= budget for budget, later in zip(rungs, rungs[1:])):
        raise InputError(f"budgets must be above 0 and ascend: {rungs}")
    if not takes(objective, "budget"):
        raise InputError("there are `budgets`, but the objective takes no `budget`")
    return rungs


def _workers(workers: Optional[int], executor: Optional[Executor]) -> int:
    if workers is None:
        workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    if workers < 1:
        raise InputError("`workers` must be at least 1")
    return workers
