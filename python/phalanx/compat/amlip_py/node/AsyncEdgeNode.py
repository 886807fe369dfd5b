"""An edge node that is told of inferences."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.InferenceDataType import InferenceDataType
from ..types.InferenceSolutionDataType import InferenceSolutionDataType
from ..types.TaskId import TaskId
from ._asking import AskingNode

__all__ = ["AsyncEdgeNode", "InferenceSolutionListener", "InferenceListenerLambda"]


class InferenceSolutionListener:
    """Is told of every inference."""

    def inference_received(
        self, inference: InferenceSolutionDataType, task_id: TaskId, server_id: AmlipIdDataType
    ) -> None:
        """Something was inferred."""
        raise NotImplementedError("a InferenceSolutionListener needs a method `inference_received`")


class InferenceListenerLambda(InferenceSolutionListener):
    """Calls a function with every inference."""

    def __init__(self, callback: Callable[[InferenceSolutionDataType, TaskId, AmlipIdDataType], None]) -> None:
        self.callback_ = callback

    def inference_received(
        self, inference: InferenceSolutionDataType, task_id: TaskId, server_id: AmlipIdDataType
    ) -> None:
        self.callback_(inference, task_id, server_id)


class AsyncEdgeNode(AskingNode[InferenceSolutionDataType]):
    """An edge node whose listener is told of every inference."""

    def __init__(
        self,
        name: str,
        listener: Optional[InferenceSolutionListener] = None,
        callback: Optional[Callable[[InferenceSolutionDataType, TaskId, AmlipIdDataType], None]] = None,
        domain: Optional[int] = None,
    ) -> None:
        if listener is None and callback is None:
            raise ValueError("AsyncEdgeNode needs a `listener` or a `callback`")
        self.listener_ = listener if listener is not None else InferenceListenerLambda(callback)  # type: ignore[arg-type]
        super().__init__(name, domain, "amlip.inference", InferenceSolutionDataType, is_edge=True)

    def request_inference(self, data: InferenceDataType) -> TaskId:
        """Asks for an inference; the listener is told of it."""
        return self._request_async(data, self.listener_.inference_received)
