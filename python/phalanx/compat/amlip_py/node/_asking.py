"""What main and edge nodes share: they ask, and hear the answer."""

from __future__ import annotations

import threading
from typing import Any, Callable, Generic, Optional, Type, TypeVar

from ....jobs import JobFuture, Main, Solution
from ..types._data import GenericDataType
from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.TaskId import TaskId
from ._domain import domain_of

Answer = TypeVar("Answer", bound=GenericDataType)
Heard = Callable[[Any, TaskId, AmlipIdDataType], None]


class AskingNode(Generic[Answer]):
    """A node that asks for jobs of one kind."""

    def __init__(
        self, name: str, domain: Optional[int], kind: str, answer: Type[Answer], is_edge: bool = False
    ) -> None:
        self._main = Main(domain_of(domain), name=name, is_edge=is_edge)
        self._kind = kind
        self._answer = answer
        self._tasks = 0
        self._lock = threading.Lock()

    def get_id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return AmlipIdDataType(self._main.id)

    def id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return self.get_id()

    def close(self) -> None:
        """Leaves the domain."""
        self._main.close()

    def _submit(self, data: GenericDataType) -> tuple[TaskId, JobFuture]:
        with self._lock:
            task = TaskId(self._tasks)
            self._tasks += 1
        import numpy

        arrays = {"task": numpy.array([task], dtype="uint64")}
        return task, self._main.submit(self._kind, bytes(data), arrays)

    def _request(self, data: GenericDataType) -> tuple[Answer, AmlipIdDataType]:
        return self._unpack(self._submit(data)[1].result())

    def _request_async(self, data: GenericDataType, heard: Heard) -> TaskId:
        task, future = self._submit(data)

        def tell(done: JobFuture) -> None:
            # A job that failed has no solution; the exception is shown by the thread that hears it.
            answer, server = self._unpack(done.result())
            heard(answer, task, server)

        future.add_done_callback(tell)  # type: ignore[arg-type]
        return task

    def _unpack(self, solution: Solution) -> tuple[Answer, AmlipIdDataType]:
        return self._answer(solution.payload), AmlipIdDataType(solution.solver or "")
