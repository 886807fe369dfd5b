"""What a node says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .AmlipIdDataType import AmlipIdDataType

__all__ = ["NodeKind", "StateKind", "StatusDataType"]


class NodeKind(Enum):
    """What a node is for."""

    UNDETERMINED = 0
    DISCOVERY = 1
    AGENT = 2
    MAIN = 3
    COMPUTING = 4
    EDGE = 5
    INFERENCE = 6
    STATUS = 7


class StateKind(Enum):
    """What a node does."""

    UNKNOWN = 0
    STOPPED = 1
    RUNNING = 2
    DROPPED = 3


@dataclass(frozen=True)
class StatusDataType:
    """The id, kind and state of a node."""

    id: AmlipIdDataType = AmlipIdDataType("")
    node_kind: NodeKind = NodeKind.UNDETERMINED
    state: StateKind = StateKind.UNKNOWN

    def get_id(self) -> AmlipIdDataType:
        """Which node."""
        return self.id

    def get_node_kind(self) -> NodeKind:
        """What it is for."""
        return self.node_kind

    def get_state(self) -> StateKind:
        """What it does."""
        return self.state

    def to_string(self) -> str:
        """In one line."""
        return f"{self.id}: {self.node_kind.name.lower()}, {self.state.name.lower()}"

    def __str__(self) -> str:
        return self.to_string()
