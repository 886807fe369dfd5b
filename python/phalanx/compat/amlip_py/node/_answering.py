"""What computing and inference nodes share: they answer."""

from __future__ import annotations

from typing import Callable, Optional, Type

from ....jobs import Job, Node, Solution
from ..types._data import GenericDataType
from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.TaskId import TaskId
from ._domain import domain_of

Reply = Callable[[GenericDataType, TaskId, AmlipIdDataType], GenericDataType]


class AnsweringNode:
    """A node that answers jobs of one kind, one at a time."""

    def __init__(
        self, name: str, domain: Optional[int], kind: str, question: Type[GenericDataType], infers: bool = False
    ) -> None:
        self._question = question
        self._reply: Optional[Reply] = None
        self._running = False
        self._node = Node({kind: self._solve}, domain_of(domain), name=name, slots=1, start=False, infers=infers)

    def get_id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return AmlipIdDataType(self._node.id)

    def id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return self.get_id()

    def close(self) -> None:
        """Leaves the domain."""
        self._node.close()

    def _run(self, reply: Reply) -> None:
        if not self._running:
            self._reply, self._running = reply, True
            self._node.start()

    def _answer_one(self, reply: Reply) -> AmlipIdDataType:
        self._reply = reply
        job = self._node.solve_one()
        return AmlipIdDataType(job.main or "")

    def _solve(self, job: Job) -> Solution:
        assert self._reply is not None
        task = job.arrays.get("task")
        number = TaskId(job.number if task is None else int(task[0]))
        client = AmlipIdDataType(job.main or "")
        answer = self._reply(self._question(job.payload), number, client)
        if not isinstance(answer, GenericDataType):
            raise TypeError(f"a solution must be a data type of AML-IP, not {type(answer).__name__}")
        return Solution(bytes(answer))
