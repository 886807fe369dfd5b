"""A model with the name of its architecture."""

from __future__ import annotations

from typing import Any, Dict, Optional

__all__ = ["ArchaiModel"]


class ArchaiModel:
    """A model: equal architectures have the same ``archid``, whatever their weights are."""

    def __init__(self, arch: Any, archid: str, metadata: Optional[Dict[str, Any]] = None) -> None:
        self.arch = arch
        self.archid = archid
        self.metadata = {} if metadata is None else metadata

    def clear(self) -> None:
        """Lets go of the model itself."""
        self.arch = None

    def __repr__(self) -> str:
        return f"ArchaiModel(archid={self.archid!r}, metadata={self.metadata!r})"
