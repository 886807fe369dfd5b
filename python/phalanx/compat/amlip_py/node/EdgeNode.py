"""An edge node that waits for each solution."""

from __future__ import annotations

from typing import Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.InferenceDataType import InferenceDataType
from ..types.InferenceSolutionDataType import InferenceSolutionDataType
from ._asking import AskingNode

__all__ = ["EdgeNode"]


class EdgeNode(AskingNode[InferenceSolutionDataType]):
    """An edge node that waits for each solution."""

    def __init__(self, name: str, doedge: Optional[int] = None) -> None:
        super().__init__(name, doedge, "amlip.inference", InferenceSolutionDataType, is_edge=True)

    def request_inference(self, data: InferenceDataType) -> tuple[InferenceSolutionDataType, AmlipIdDataType]:
        """Has samples inferred from; gives what was inferred and the id of the node that did it."""
        return self._request(data)
