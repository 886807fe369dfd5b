"""Futures whose outcome comes from nodes."""

from __future__ import annotations

import os
import time
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Optional, TypeVar

from .errors import ForkError

__all__ = ["NodeFuture"]

# A signal that comes just before a wait without end would be seen after it.
_TICK = 0.1

T = TypeVar("T")


class NodeFuture(Future[T]):
    """What nodes will have computed. ``cancel`` also ends what runs."""

    def __init__(self, main: Any, pid: int) -> None:
        super().__init__()
        self._main = main
        # The process that settles it.
        self._pid = pid
        self._ticket: Optional[int] = None

    def result(self, timeout: Optional[float] = None) -> T:
        """Waits for the result. Ctrl-C ends the wait."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits for the end, and gives the exception if there is one. Ctrl-C ends the wait."""
        self._wait(timeout)
        return super().exception(0)

    def cancel(self) -> bool:
        """Gives it up, also when it runs; ``False`` if it has ended."""
        cancelled = super().cancel()
        if cancelled and self._ticket is not None:
            self._main.cancel(self._ticket)
        return cancelled

    def why(self) -> str:
        """Where it stands and why, in the words of ``phalanx job explain``: ``waiting: no computing node …``."""
        told: Optional[str] = None
        if not self.done() and self._ticket is not None:
            told = self._main.explain(self._ticket)
        return told or ("cancelled" if self.cancelled() else "ended")

    def _wait(self, timeout: Optional[float]) -> None:
        if self.done():
            return
        if self._pid != os.getpid():
            raise ForkError(
                "this process was forked from the one that waits for this result",
                'start processes with `multiprocessing.get_context("spawn")`',
            )
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _TICK if until is None else min(_TICK, until - time.monotonic())
            try:
                super().exception(max(left, 0))
                return
            except futures.CancelledError:
                return
            except futures.TimeoutError:
                if left < _TICK:
                    return
