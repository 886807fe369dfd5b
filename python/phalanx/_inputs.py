"""Futures among the arguments of a call: what is pickled in their place, and what a worker puts there."""

from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional

__all__ = ["Collected", "collecting", "same", "taken"]


class Collected(threading.local):
    """The futures that the call which this thread pickles takes; none when it pickles something else."""

    inputs: "Optional[Any]" = None


collecting = Collected()

# Gives the result with a number to the call that a worker is at.
_give: "List[Callable[[int], Any]]" = []


def taken(number: int) -> Any:
    """The result of another call; stands in the pickled arguments."""
    if not _give:
        raise RuntimeError("results of other calls are given to workers only")
    return _give[-1](number)


def same(value: Any) -> Any:
    """A result that the caller has already; stands in the pickled arguments."""
    return value


def giving(give: "Optional[Callable[[int], Any]]") -> None:
    """From now on results come from here; none once the arguments are there."""
    _give[:] = [] if give is None else [give]
