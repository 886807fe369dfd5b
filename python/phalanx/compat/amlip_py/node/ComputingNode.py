"""A computing node that solves one job at a call."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.JobDataType import JobDataType
from ..types.JobSolutionDataType import JobSolutionDataType
from ._answering import AnsweringNode

__all__ = ["ComputingNode", "JobLambda", "JobListener"]


class JobListener:
    """Solves jobs."""

    def process_job(self, job: JobDataType) -> JobSolutionDataType:
        """Gives the solution of a job."""
        raise NotImplementedError("a JobListener needs a method `process_job`")


class JobLambda(JobListener):
    """Solves jobs with a function."""

    def __init__(self, callback: Callable[[JobDataType], JobSolutionDataType]) -> None:
        self.callback_ = callback

    def process_job(self, job: JobDataType) -> JobSolutionDataType:
        return self.callback_(job)


class ComputingNode(AnsweringNode):
    """A computing node that solves one job at a call."""

    def __init__(self, name: str, domain: Optional[int] = None) -> None:
        super().__init__(name, domain, "amlip.job", JobDataType)

    def process_job(
        self,
        listener: Optional[JobListener] = None,
        callback: Optional[Callable[[JobDataType], JobSolutionDataType]] = None,
    ) -> AmlipIdDataType:
        """Waits for a job and solves it; gives the id of the node that asked."""
        if listener is None and callback is None:
            raise ValueError("process_job needs a `listener` or a `callback`")
        solve = listener.process_job if listener is not None else callback
        return self._answer_one(lambda job, _task, _client: solve(job))  # type: ignore[misc, arg-type]
