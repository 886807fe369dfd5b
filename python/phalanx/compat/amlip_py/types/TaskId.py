"""The number of a task."""

from __future__ import annotations

__all__ = ["TaskId"]


class TaskId(int):
    """The number of a task at the node that asked for it, counted from 0."""
