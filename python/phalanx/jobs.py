"""Jobs: a main node asks, nodes solve, and no job is lost.

``Executor`` calls functions on nodes. ``Main`` and ``Node`` need no code on the wire: a node solves jobs of the kinds
that it has handlers for, and a job is a kind, bytes and arrays.

>>> from phalanx.jobs import Main, Node
>>> with Node({"shout": lambda job: job.payload.upper()}, domain="doctest-jobs"):
...     with Main(domain="doctest-jobs") as main:
...         main.submit("shout", b"hold the line").result(timeout=30).payload
b'HOLD THE LINE'
"""

from __future__ import annotations

import os
import threading
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Union

from . import _phalanx
from ._closing import close_at_exit
from ._executor import CallFuture, Executor, RemoteTraceback
from ._futures import NodeFuture
from ._nodes import Domain
from .errors import JobCancelled, JobExpired, JobFailed

if TYPE_CHECKING:
    import numpy

    Arrays = Mapping[str, "numpy.ndarray[Any, Any]"]

__all__ = ["CallFuture", "Executor", "Job", "JobFuture", "Main", "Node", "RemoteTraceback", "Solution"]


@dataclass(frozen=True)
class Solution:
    """What a job came to: bytes, and arrays by name. ``solver`` names the node that solved it, if that is known."""

    payload: bytes = b""
    arrays: "Arrays" = field(default_factory=dict)
    solver: Optional[str] = None


class JobFuture(NodeFuture[Solution]):
    """The solution of a job that may not have been solved yet. ``cancel`` also ends a job that runs."""


def _domain(domain: Union[str, Domain]) -> Domain:
    return Domain(domain) if isinstance(domain, str) else domain


def _arrays(memories: Mapping[str, _phalanx.Memory]) -> "Arrays":
    if not memories:
        return {}
    import numpy

    return {name: numpy.asarray(memory) for name, memory in memories.items()}


def _tensors(arrays: "Arrays") -> list[tuple[str, Any]]:
    if not arrays:
        return []
    import numpy

    return [(name, numpy.require(array, requirements="C").view(numpy.ndarray)) for name, array in arrays.items()]


class Main:
    """A main node: submits jobs and hears how each ended.

    With a ``journal``, jobs outlive the program: the next ``Main`` of that journal goes on with them. Others see an edge
    node with ``is_edge``.
    """

    def __init__(
        self,
        domain: Union[str, Domain] = "default",
        *,
        name: str = "main",
        journal: Optional[str] = None,
        is_edge: bool = False,
    ) -> None:
        self._main = _phalanx.JobMain(_domain(domain), name, journal, is_edge)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._hear, name="phalanx-outcomes", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def id(self) -> str:
        """What the node is called in its domain."""
        return self._main.id

    def submit(
        self,
        kind: str,
        payload: bytes = b"",
        arrays: Optional["Arrays"] = None,
        *,
        priority: int = 0,
        deadline: Optional[float] = None,
        attempts: Optional[int] = None,
        cores: int = 1,
        memory: int = 0,
    ) -> JobFuture:
        """Submits a job. Higher priorities go first; a job without outcome ``deadline`` seconds later has expired.

        Arrays are not copied: do not write to them before the job has ended.
        """
        future = JobFuture(self._main, self._pid)
        future._ticket = self._main.submit(
            kind,
            payload,
            _tensors(arrays or {}),
            future,
            priority=priority,
            deadline=deadline,
            attempts=attempts,
            cores=cores,
            memory=memory,
        )
        return future

    def close(self) -> None:
        """Leaves the domain. Jobs without outcome are cancelled."""
        self._main.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "Main":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _hear(self) -> None:
        while (outcomes := self._main.take_outcomes()) is not None:
            for outcome in outcomes:
                _settle(outcome)


def _settle(outcome: Any) -> None:
    future, how, why, payload, memories = outcome
    if not future.set_running_or_notify_cancel():
        return
    if how == "solved":
        future.set_result(Solution(payload, _arrays(memories), why))
    elif how == "failed":
        future.set_exception(JobFailed(why))
    elif how == "expired":
        future.set_exception(JobExpired("the job had no outcome before its deadline"))
    else:
        future.set_exception(JobCancelled("the job was cancelled"))


@dataclass(frozen=True)
class Job:
    """A job as its handler sees it. ``main`` names the node that submitted it, if that is known."""

    kind: str
    number: int
    payload: bytes
    arrays: "Arrays"
    main: Optional[str]
    _call: Any = field(repr=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether the solution is wanted no more. Long handlers look now and then."""
        return bool(self._call.is_cancelled)


Handler = Callable[[Job], Union[Solution, bytes, None]]


class Node:
    """A node of this process that solves jobs with functions of this program, at most ``slots`` at once.

    An exception in a handler fails its job, with the traceback in the reason. Others see an inference node with
    ``infers``.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        domain: Union[str, Domain] = "default",
        *,
        name: str = "node",
        slots: int = 1,
        start: bool = True,
        infers: bool = False,
    ) -> None:
        self._handlers = dict(handlers)
        self._node = _phalanx.JobNode(_domain(domain), name, list(self._handlers), slots, infers)
        self._slots = slots
        self._threads: list[threading.Thread] = []
        close_at_exit(self)
        if start:
            self.start()

    @property
    def id(self) -> str:
        """What the node is called in its domain."""
        return self._node.id

    def start(self) -> None:
        """Solves jobs from now on, on threads of their own."""
        self._node.run()
        for number in range(self._slots):
            thread = threading.Thread(target=self._work, name=f"phalanx-handler-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def solve_one(self) -> Job:
        """Takes one job, solves it on this thread and gives it back."""
        self._node.solve_one()
        call = None
        while call is None:
            call, is_open = self._node.take_call()
            if not is_open:
                raise JobCancelled("the node was closed")
        job = self._solve(call)
        self._node.join()
        return job

    def drain(self) -> None:
        """Takes no new jobs, and waits for those that it has."""
        self._node.drain()
        self._join()

    def close(self) -> None:
        """Leaves the domain; jobs that are not solved go to other nodes."""
        self._node.close()
        self._join()

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _work(self) -> None:
        is_open = True
        while is_open:
            call, is_open = self._node.take_call()
            if call is not None:
                self._solve(call)

    def _solve(self, call: Any) -> Job:
        job = Job(call.kind, call.job, call.payload, _arrays(call.tensors), call.main, call)
        try:
            solution = self._handlers[job.kind](job)
            if not isinstance(solution, Solution):
                solution = Solution(bytes(solution or b""))
            call.answer(solution.payload, _tensors(solution.arrays))
        except Exception as error:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            call.fail(f"{type(error).__name__}: {error}\n{text}", False)
        return job
