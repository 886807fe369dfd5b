"""A gate that threads wait at."""

from __future__ import annotations

from typing import Optional

from ._handler import AwakeReason, WaitHandler

__all__ = ["AwakeReason", "BooleanWaitHandler"]


class BooleanWaitHandler(WaitHandler[bool]):
    """A gate that threads wait at until it is open.

    >>> gate = BooleanWaitHandler(True, False)
    >>> gate.open()
    >>> gate.wait()
    <AwakeReason.condition_met: 0>
    """

    def __init__(self, enabled: bool = True, opened: bool = False) -> None:
        super().__init__(opened, enabled)

    def open(self) -> None:
        """Lets all threads through."""
        self.set_value(True)

    def close(self) -> None:
        """Lets threads wait again."""
        self.set_value(False)

    def is_open(self) -> bool:
        """Whether threads go through."""
        return self.get_value()

    def wait(self, timeout: Optional[float] = None) -> AwakeReason:  # type: ignore[override]
        """Waits until the gate is open; ``timeout`` is in milliseconds."""
        return super().wait(bool, timeout)
