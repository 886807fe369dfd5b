"""A name for messages."""

from __future__ import annotations

from .srobject import SRObject
from .util import typecheck

__all__ = ["LogContext"]


class LogContext(SRObject):
    """Tells messages under a name."""

    def __init__(self, context: str) -> None:
        typecheck(context, "context", str)
        super().__init__(context)
