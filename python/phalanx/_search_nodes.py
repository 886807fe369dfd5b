"""Searches of a search file, on nodes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, TextIO, Union

from . import _phalanx
from ._nodes import Domain, Placement, placement
from ._progress import is_watched
from ._run import Run
from ._search_result import Trial, best_of, flat
from .errors import ConfigError, InputError, SearchFailed

_Path = Union[str, "os.PathLike[str]"]
_Progress = Union[bool, Callable[[Mapping[str, Any]], None], None]

# How often a wait looks for Ctrl-C.
_TICK = 0.1


@dataclass(frozen=True)
class NodeSearchResult:
    """What a search on nodes has found."""

    objectives: Dict[str, str]
    trials: List[Dict[str, Any]] = field(repr=False)
    """A flat dict per trial: number, archid, status, the choices, the values, budget, seconds, is_pareto, why."""
    hypervolumes: List[float] = field(repr=False)
    """After each result, the covered share of the space between the best value of each objective and the worst."""
    models: List[Dict[str, Any]] = field(repr=False)
    """Of each member of the front its ONNX and safetensors files, and the accuracy of the ONNX file beside the recorded
    one. Empty of a search that did not finish, or whose trials are programs."""
    ended: str
    """``finished``, or ``stopped`` by Ctrl-C."""
    directory: str
    _trials: List[Trial] = field(repr=False)

    @classmethod
    def _of(cls, told: Mapping[str, Any], directory: str) -> "NodeSearchResult":
        objectives = {each["name"]: each["goal"] for each in told["objectives"]}
        trials = [Trial(**{**row, "parents": tuple(row["parents"])}) for row in told["trials"]]
        rows = [flat(trial) for trial in trials]
        return cls(objectives, rows, told["hypervolumes"], told["models"], told["ended"], directory, trials)

    @property
    def front(self) -> List[Trial]:
        """The trials that no other is better than, by the first objective."""
        first = next(iter(self.objectives))
        return sorted((trial for trial in self._trials if trial.is_on_front), key=lambda trial: trial.values[first])

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

    def open(self, trial: Union[Trial, int], model: Any = None) -> Run:
        """The run of a trial: its metrics and its trained model. A torch module or Keras model gets the weights."""
        number = trial.number if isinstance(trial, Trial) else trial
        return Run.open(os.path.join(self.directory, "trials", f"t{number}"), model)


@dataclass(frozen=True)
class _Told:
    file: str
    directory: Optional[str]
    placement: Placement
    allow_exec: bool
    trials: Optional[int]
    algorithm: Optional[str]
    seed: Optional[int]
    workers: Optional[int]
    data: Optional[str]


def run(
    file: _Path,
    *,
    local: Optional[int] = None,
    nodes: Union[str, Domain, None] = None,
    trials: Optional[int] = None,
    algorithm: Optional[str] = None,
    seed: Optional[int] = None,
    workers: Optional[int] = None,
    data: Optional[_Path] = None,
    directory: Optional[_Path] = None,
    allow_exec: bool = False,
    progress: _Progress = None,
) -> NodeSearchResult:
    """Searches as a search file says, on nodes: what ``phalanx search run`` does.

    ``file`` is a search file, or a space that comes with Phalanx, such as ``"ready:cnn"``. Candidates are trained by
    ``local`` nodes that this call starts, or by the ``nodes`` of a domain. ``trials``, ``algorithm``, ``seed`` and
    ``workers``, how many are trained at once, stand in the place of what the file says. ``data`` is the directory with
    the data of a space that comes with Phalanx. If the trials are programs, ``allow_exec`` lets local nodes run them.

    ``progress`` is a function that is called with a dict whenever there is news, or whether a line shows it; in a
    terminal and a notebook one does. Ctrl-C ends the search and gives what was found until then. Everything is recorded
    in the ``directory``, in ``searches/`` when none is given; the same call with a directory goes on with the search in
    it and trains nothing again. ``SearchFailed`` says why a search has no result.
    """
    place = placement(local, nodes)
    if local is None and nodes is None:
        raise ConfigError("no nodes are named to search on", 'say `local=2`, or `nodes="a domain"`')
    for name, value in (("trials", trials), ("workers", workers)):
        if value is not None and value < 1:
            raise InputError(f"`{name}` must be at least 1")
    where = None if directory is None else os.fspath(directory)
    told = _Told(os.fspath(file), where, place, allow_exec, trials, algorithm, seed, workers, None if data is None else os.fspath(data))
    search = _phalanx.NodeSearch(told)
    line = _Line(sys.stderr) if progress is True or (progress is None and is_watched()) else None
    show = progress if callable(progress) else line.show if line is not None else None
    try:
        done = _wait(search, show)
    finally:
        search.stop()
        if line is not None:
            line.end()
    if done["ended"] == "failed":
        raise SearchFailed(done["why"] or "the search has failed")
    return NodeSearchResult._of(done, search.directory)


def _wait(search: "_phalanx.NodeSearch", show: Optional[Callable[[Mapping[str, Any]], None]]) -> Mapping[str, Any]:
    """How the search ended. The first Ctrl-C ends it; another one gives it up."""
    is_stopping = False
    while True:
        try:
            news = search.wait(_TICK)
            if news is None:
                continue
            is_done, text = news
            told: Mapping[str, Any] = json.loads(text)
            if is_done:
                return told
            if show is not None:
                show(told)
        except KeyboardInterrupt:
            if is_stopping:
                raise
            is_stopping = True
            search.stop()


class _Line:
    """One line that is written over and over."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._width = 0

    def show(self, now: Mapping[str, Any]) -> None:
        text = _text(now)
        self._out.write("\r" + text.ljust(self._width))
        self._width = len(text)
        self._out.flush()

    def end(self) -> None:
        if self._width:
            self._out.write("\n")
            self._out.flush()


def _text(now: Mapping[str, Any]) -> str:
    parts = [f"{now['trials']}/{now['of']} trials", f"{now['running']} running", f"{now['front']} on the front"]
    if now["failed"]:
        parts.append(f"{now['failed']} failed")
    last = now["last"]
    if last is not None:
        values = " ".join(f"{name} {value:.4g}" for name, value in last["values"].items())
        parts.append(f"{last['archid']}: {values}")
    if now["waiting"]:
        parts.append(f"waiting: {now['waiting']}")
    return ", ".join(parts)[:150]
