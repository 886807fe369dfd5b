"""An inference node that answers one request at a call."""

from __future__ import annotations

from typing import Callable, Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.InferenceDataType import InferenceDataType
from ..types.InferenceSolutionDataType import InferenceSolutionDataType
from ._answering import AnsweringNode

__all__ = ["InferenceNode", "InferenceLambda", "InferenceListener"]


class InferenceListener:
    """Infers from samples."""

    def process_inference(self, inference: InferenceDataType) -> InferenceSolutionDataType:
        """Gives what is inferred."""
        raise NotImplementedError("an InferenceListener needs a method `process_inference`")


class InferenceLambda(InferenceListener):
    """Infers with a function."""

    def __init__(self, callback: Callable[[InferenceDataType], InferenceSolutionDataType]) -> None:
        self.callback_ = callback

    def process_inference(self, inference: InferenceDataType) -> InferenceSolutionDataType:
        return self.callback_(inference)


class InferenceNode(AnsweringNode):
    """An inference node that answers one request at a call."""

    def __init__(self, name: str, domain: Optional[int] = None) -> None:
        super().__init__(name, domain, "amlip.inference", InferenceDataType, infers=True)

    def process_inference(
        self,
        listener: Optional[InferenceListener] = None,
        callback: Optional[Callable[[InferenceDataType], InferenceSolutionDataType]] = None,
    ) -> AmlipIdDataType:
        """Waits for a request and answers it; gives the id of the node that asked."""
        if listener is None and callback is None:
            raise ValueError("process_inference needs a `listener` or a `callback`")
        solve = listener.process_inference if listener is not None else callback
        return self._answer_one(lambda inference, _task, _client: solve(inference))  # type: ignore[misc, arg-type]
