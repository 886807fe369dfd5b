"""A value that one thread sets and others wait for."""

from __future__ import annotations

import enum
import threading
from typing import Callable, Generic, Optional, TypeVar

T = TypeVar("T")


class AwakeReason(enum.Enum):
    """Why a wait ended."""

    condition_met = 0
    timeout = 1
    disabled = 2


class WaitHandler(Generic[T]):
    """A value that one thread sets and others wait for. While it is disabled, every wait ends at once."""

    def __init__(self, value: T, enabled: bool = True) -> None:
        self._value = value
        self._enabled = enabled
        self._changed = threading.Condition()

    def enable(self) -> None:
        """Lets threads wait."""
        with self._changed:
            self._enabled = True

    def disable(self) -> None:
        """Wakes all threads that wait, and lets none wait."""
        with self._changed:
            self._enabled = False
            self._changed.notify_all()

    def enabled(self) -> bool:
        """Whether threads wait."""
        return self._enabled

    def get_value(self) -> T:
        """The value now."""
        with self._changed:
            return self._value

    def set_value(self, value: T) -> None:
        """Sets the value, and wakes the threads that wait for it."""
        with self._changed:
            self._value = value
            self._changed.notify_all()

    def wait(self, predicate: Callable[[T], bool], timeout: Optional[float] = None) -> AwakeReason:
        """Waits until the value is as wanted; ``timeout`` is in milliseconds, and 0 or ``None`` is for ever."""
        seconds = timeout / 1000 if timeout else None
        with self._changed:
            ended = self._changed.wait_for(lambda: not self._enabled or predicate(self._value), seconds)
            if not ended:
                return AwakeReason.timeout
            return AwakeReason.condition_met if self._enabled else AwakeReason.disabled
