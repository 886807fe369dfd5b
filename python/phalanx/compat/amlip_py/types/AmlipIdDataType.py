"""The id of a node."""

from __future__ import annotations

__all__ = ["AmlipIdDataType"]


class AmlipIdDataType(str):
    """The id of a node: its name and a random number."""

    def to_string(self) -> str:
        """As text."""
        return str(self)

    @property
    def name(self) -> str:
        """The name that the node was given."""
        return self.rpartition("-")[0]
