"""A main node that waits for each solution."""

from __future__ import annotations

from typing import Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.JobDataType import JobDataType
from ..types.JobSolutionDataType import JobSolutionDataType
from ._asking import AskingNode

__all__ = ["MainNode"]


class MainNode(AskingNode[JobSolutionDataType]):
    """A main node that waits for each solution."""

    def __init__(self, name: str, domain: Optional[int] = None) -> None:
        super().__init__(name, domain, "amlip.job", JobSolutionDataType)

    def request_job_solution(self, data: JobDataType) -> tuple[JobSolutionDataType, AmlipIdDataType]:
        """Has a job solved; gives its solution and the id of the node that solved it."""
        return self._request(data)
