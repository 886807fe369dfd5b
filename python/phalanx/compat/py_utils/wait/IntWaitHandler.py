"""A number that threads wait for."""

from __future__ import annotations

from typing import Optional

from ._handler import AwakeReason, WaitHandler

__all__ = ["AwakeReason", "IntWaitHandler"]


class IntWaitHandler(WaitHandler[int]):
    """A number that threads wait for.

    >>> jobs = IntWaitHandler(True)
    >>> jobs.increase()
    >>> jobs.wait_equal(1)
    <AwakeReason.condition_met: 0>
    """

    def __init__(self, enabled: bool = True, init_value: int = 0) -> None:
        super().__init__(init_value, enabled)

    def increase(self) -> None:
        """Adds one."""
        self._add(1)

    def decrease(self) -> None:
        """Takes one away."""
        self._add(-1)

    def _add(self, amount: int) -> None:
        with self._changed:
            self._value += amount
            self._changed.notify_all()

    def wait_equal(self, value: int, timeout: Optional[float] = None) -> AwakeReason:
        """Waits until the number is ``value``."""
        return self.wait(lambda now: now == value, timeout)

    def wait_greater_equal_than(self, value: int, timeout: Optional[float] = None) -> AwakeReason:
        """Waits until the number is ``value`` or more."""
        return self.wait(lambda now: now >= value, timeout)

    def wait_less_equal_than(self, value: int, timeout: Optional[float] = None) -> AwakeReason:
        """Waits until the number is ``value`` or less."""
        return self.wait(lambda now: now <= value, timeout)
