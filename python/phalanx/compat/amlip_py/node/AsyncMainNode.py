"""A main node that is told of solutions."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.JobDataType import JobDataType
from ..types.JobSolutionDataType import JobSolutionDataType
from ..types.TaskId import TaskId
from ._asking import AskingNode

__all__ = ["AsyncMainNode", "SolutionListener", "SolutionListenerLambda"]


class SolutionListener:
    """Is told of every solution."""

    def solution_received(
        self, solution: JobSolutionDataType, task_id: TaskId, server_id: AmlipIdDataType
    ) -> None:
        """A job is solved."""
        raise NotImplementedError("a SolutionListener needs a method `solution_received`")


class SolutionListenerLambda(SolutionListener):
    """Calls a function with every solution."""

    def __init__(self, callback: Callable[[JobSolutionDataType, TaskId, AmlipIdDataType], None]) -> None:
        self.callback_ = callback

    def solution_received(
        self, solution: JobSolutionDataType, task_id: TaskId, server_id: AmlipIdDataType
    ) -> None:
        self.callback_(solution, task_id, server_id)


class AsyncMainNode(AskingNode[JobSolutionDataType]):
    """A main node whose listener is told of every solution."""

    def __init__(
        self,
        name: str,
        listener: Optional[SolutionListener] = None,
        callback: Optional[Callable[[JobSolutionDataType, TaskId, AmlipIdDataType], None]] = None,
        domain: Optional[int] = None,
    ) -> None:
        if listener is None and callback is None:
            raise ValueError("AsyncMainNode needs a `listener` or a `callback`")
        self.listener_ = listener if listener is not None else SolutionListenerLambda(callback)  # type: ignore[arg-type]
        super().__init__(name, domain, "amlip.job", JobSolutionDataType)

    def request_job_solution(self, data: JobDataType) -> TaskId:
        """Asks for a job to be solved; the listener is told of its solution."""
        return self._request_async(data, self.listener_.solution_received)
