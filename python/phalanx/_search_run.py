"""Runs the trials of a search: in threads, or where an executor runs its calls."""

from __future__ import annotations

import inspect
import math
import platform
import queue
import threading
import time
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import _phalanx
from ._search_space import Space
from .errors import InputError, InternalError

# How often a wait looks for Ctrl-C.
_TICK = 0.1

_Call = Tuple[int, float, Dict[str, Any], Dict[str, Any]]


@dataclass(frozen=True)
class _Done:
    """A call that has ended: what it returned and after how many seconds, or what it raised."""

    trial: int
    budget: float
    returned: Optional[Tuple[Any, float]]
    error: Optional[BaseException]


def takes(function: Callable[..., Any], name: str, required: bool = False) -> bool:
    """Whether a function takes an argument of this name; with ``required``, whether it must have it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    if required:
        return name in parameters and parameters[name].default is inspect.Parameter.empty
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return name in parameters or takes_all


class Knows:
    """Gives the cheap values of a candidate. The extension module calls it; Ctrl-C meanwhile is remembered."""

    def __init__(self, space: Space, known: Mapping[str, Callable[[Dict[str, Any]], float]]) -> None:
        for name, function in known.items():
            if not callable(function):
                raise InputError(f"`known` has no function for `{name}` but {function!r}")
        self._space, self._known = space, dict(known)
        self.is_interrupted = False

    def __call__(self, genes: List[int]) -> Dict[str, float]:
        if self.is_interrupted:
            raise InterruptedError
        try:
            candidate = self._space.candidate(genes)
            return {name: float(function(dict(candidate))) for name, function in self._known.items()}
        except KeyboardInterrupt:
            self.is_interrupted = True
            raise


def drive(
    core: "_phalanx.SearchCore",
    space: Space,
    objective: Callable[..., Any],
    wanted: List[str],
    workers: int,
    executor: Optional[Executor],
    has_budgets: bool,
    knows: Optional[Knows],
) -> Tuple[str, Optional[str], Optional[BaseException]]:
    """Searches to the end or until Ctrl-C. Gives how it ended, why if it failed, and what a trial raised last."""
    done: "queue.Queue[_Done]" = queue.Queue()
    runner = _Calls(executor, objective, done) if executor is not None else _Threads(objective, done, workers)
    last_error: Optional[BaseException] = None
    try:
        commands = core.resume() + core.capacity(workers)
        while True:
            if knows is not None and knows.is_interrupted:
                raise KeyboardInterrupt
            for command in commands:
                if command[0] == "run":
                    _, trial, genes, _, budget, _ = command
                    keywords = {"budget": budget} if has_budgets else {}
                    core.started(trial, runner.node)
                    runner.start((trial, budget, space.candidate(genes), keywords))
                elif command[0] == "cancel":
                    runner.cancel(command[1])
                elif command[0] == "ended":
                    return command[1], command[2], last_error
            if not runner.running:
                raise InternalError(f"a mistake in Phalanx: the search waits for nothing: {core.reason()}")
            ended = _next(done)
            last_error = ended.error or last_error
            runner.running.discard(ended.trial)
            commands = _tell(core, ended, wanted)
    except KeyboardInterrupt:
        while not done.empty():
            _tell(core, done.get_nowait(), wanted)
        core.stop()
        return "stopped", None, last_error
    finally:
        runner.end()


def _next(done: "queue.Queue[_Done]") -> _Done:
    """Waits with a limit: Ctrl-C just before an endless wait would not be seen."""
    while True:
        try:
            return done.get(timeout=_TICK)
        except queue.Empty:
            continue


def _tell(core: "_phalanx.SearchCore", ended: _Done, wanted: List[str]) -> "List[Tuple[Any, ...]]":
    if ended.returned is None:
        error = ended.error
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return core.failed(ended.trial, why.strip(), False)
    returned, seconds = ended.returned
    values, problem = _values(returned, wanted)
    if problem is not None:
        return core.failed(ended.trial, problem, False)
    return core.reached(ended.trial, ended.budget, values, seconds)


def _values(returned: Any, wanted: List[str]) -> Tuple[Dict[str, float], Optional[str]]:
    """The values by name, or what is wrong with them."""
    if not isinstance(returned, Mapping):
        number = _number(returned)
        if len(wanted) != 1 or number is None:
            kind = type(returned).__name__
            return {}, f"the objective returned {kind}, not a dict with {', '.join(f'`{name}`' for name in wanted)}"
        returned = {wanted[0]: number}
    values = {str(name): _number(value) for name, value in returned.items()}
    for name in wanted:
        value = values.get(name)
        if name not in values:
            others = ", ".join(f"`{other}`" for other in sorted(values)) or "nothing"
            return {}, f"the objective returned no `{name}` but {others}"
        if value is None or not math.isfinite(value):
            return {}, f"the objective returned {returned[name]!r} as `{name}`"
    return {name: value for name, value in values.items() if value is not None}, None


def _number(value: Any) -> Optional[float]:
    if isinstance(value, (str, bytes)):
        return None
    try:
        # A tensor that remembers what it was computed from warns otherwise.
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError):
        return None


def _timed(objective: Callable[..., Any], candidate: Dict[str, Any], keywords: Dict[str, Any]) -> Tuple[Any, float]:
    since = time.perf_counter()
    return objective(candidate, **keywords), time.perf_counter() - since


class _Threads:
    """Threads of this program. They do not hold it up when it ends, whatever their trials do."""

    def __init__(self, objective: Callable[..., Any], done: "queue.Queue[_Done]", workers: int) -> None:
        self.running: "set[int]" = set()
        self.node = platform.node() or "threads"
        self._objective, self._done, self._workers = objective, done, workers
        self._waiting: "queue.Queue[Optional[_Call]]" = queue.Queue()
        self._threads: List[threading.Thread] = []
        self._cancelled: "set[int]" = set()

    def start(self, call: _Call) -> None:
        self.running.add(call[0])
        self._cancelled.discard(call[0])
        self._waiting.put(call)
        if len(self._threads) < min(self._workers, len(self.running)):
            name = f"phalanx-trial-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    def cancel(self, trial: int) -> None:
        self.running.discard(trial)
        self._cancelled.add(trial)

    def end(self) -> None:
        """No call begins any more."""
        while not self._waiting.empty():
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._waiting.put(None)

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            trial, budget, candidate, keywords = call
            if trial in self._cancelled:
                continue
            try:
                ended = _Done(trial, budget, _timed(self._objective, candidate, keywords), None)
            except BaseException as error:
                ended = _Done(trial, budget, None, error)
            self._done.put(ended)


class _Calls:
    """Calls of an executor."""

    def __init__(self, executor: Executor, objective: Callable[..., Any], done: "queue.Queue[_Done]") -> None:
        self.running: "set[int]" = set()
        self.node = type(executor).__name__
        self._executor, self._objective, self._done = executor, objective, done
        self._futures: "dict[int, Future[Any]]" = {}

    def start(self, call: _Call) -> None:
        trial, budget, candidate, keywords = call
        self.running.add(trial)
        future = self._executor.submit(_timed, self._objective, candidate, keywords)
        self._futures[trial] = future
        future.add_done_callback(lambda future: self._ended(trial, budget, future))

    def cancel(self, trial: int) -> None:
        self.running.discard(trial)
        future = self._futures.pop(trial, None)
        if future is not None:
            future.cancel()

    def end(self) -> None:
        for trial in list(self._futures):
            self.cancel(trial)

    def _ended(self, trial: int, budget: float, future: "Future[Any]") -> None:
        if self._futures.get(trial) is future:
            del self._futures[trial]
        try:
            self._done.put(_Done(trial, budget, future.result(), None))
        except CancelledError as error:
            self._done.put(_Done(trial, budget, None, error))
        except BaseException as error:
            self._done.put(_Done(trial, budget, None, error))
