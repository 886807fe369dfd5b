"""An inference node that answers requests in the background."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.InferenceDataType import InferenceDataType
from ..types.InferenceSolutionDataType import InferenceSolutionDataType
from ..types.TaskId import TaskId
from ._answering import AnsweringNode

__all__ = ["AsyncInferenceNode", "InferenceReplier", "InferenceReplierLambda"]


class InferenceReplier:
    """Infers from samples."""

    def process_inference(self, inference: InferenceDataType, task_id: TaskId, client_id: AmlipIdDataType) -> InferenceSolutionDataType:
        """Gives what is inferred."""
        raise NotImplementedError("an InferenceReplier needs a method `process_inference`")


class InferenceReplierLambda(InferenceReplier):
    """Infers with a function."""

    def __init__(self, callback: Callable[[InferenceDataType, TaskId, AmlipIdDataType], InferenceSolutionDataType]) -> None:
        self.callback_ = callback

    def process_inference(self, inference: InferenceDataType, task_id: TaskId, client_id: AmlipIdDataType) -> InferenceSolutionDataType:
        return self.callback_(inference, task_id, client_id)


class AsyncInferenceNode(AnsweringNode):
    """An inference node that answers requests in the background, one at a time, from ``run`` to ``stop``."""

    def __init__(
        self,
        name: str,
        listener: Optional[InferenceReplier] = None,
        callback: Optional[Callable[[InferenceDataType, TaskId, AmlipIdDataType], InferenceSolutionDataType]] = None,
        domain: Optional[int] = None,
    ) -> None:
        if listener is None and callback is None:
            raise ValueError("AsyncInferenceNode needs a `listener` or a `callback`")
        self.listener_ = listener if listener is not None else InferenceReplierLambda(callback)  # type: ignore[arg-type]
        super().__init__(name, domain, "amlip.inference", InferenceDataType, infers=True)

    def run(self) -> None:
        """Answers requests from now on."""
        self._run(self.listener_.process_inference)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Answers no more requests once it has answered what it has, and leaves the domain."""
        if self._running:
            self._node.drain()
        self.close()
