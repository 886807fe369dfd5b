"""A computing node that solves jobs in the background."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.JobDataType import JobDataType
from ..types.JobSolutionDataType import JobSolutionDataType
from ..types.TaskId import TaskId
from ._answering import AnsweringNode

__all__ = ["AsyncComputingNode", "JobReplier", "JobReplierLambda"]


class JobReplier:
    """Solves jobs."""

    def process_job(self, job: JobDataType, task_id: TaskId, client_id: AmlipIdDataType) -> JobSolutionDataType:
        """Gives the solution of a job."""
        raise NotImplementedError("a JobReplier needs a method `process_job`")


class JobReplierLambda(JobReplier):
    """Solves jobs with a function."""

    def __init__(self, callback: Callable[[JobDataType, TaskId, AmlipIdDataType], JobSolutionDataType]) -> None:
        self.callback_ = callback

    def process_job(self, job: JobDataType, task_id: TaskId, client_id: AmlipIdDataType) -> JobSolutionDataType:
        return self.callback_(job, task_id, client_id)


class AsyncComputingNode(AnsweringNode):
    """A computing node that solves jobs in the background, one at a time, from ``run`` to ``stop``."""

    def __init__(
        self,
        name: str,
        listener: Optional[JobReplier] = None,
        callback: Optional[Callable[[JobDataType, TaskId, AmlipIdDataType], JobSolutionDataType]] = None,
        domain: Optional[int] = None,
    ) -> None:
        if listener is None and callback is None:
            raise ValueError("AsyncComputingNode needs a `listener` or a `callback`")
        self.listener_ = listener if listener is not None else JobReplierLambda(callback)  # type: ignore[arg-type]
        super().__init__(name, domain, "amlip.job", JobDataType)

    def run(self) -> None:
        """Solves jobs from now on."""
        self._run(self.listener_.process_job)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Solves no more jobs once those that it has are solved, and leaves the domain."""
        if self._running:
            self._node.drain()
        self.close()
