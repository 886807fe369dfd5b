"""Closes what is open before the interpreter ends, while its threads can still be joined."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Callable

__all__ = ["close_at_exit"]

_OPEN: "weakref.WeakSet[Any]" = weakref.WeakSet()


def close_at_exit(what: Any) -> None:
    """Has ``what.close()`` called before the interpreter ends, if it still lives."""
    _OPEN.add(what)


def _close_all() -> None:
    for what in list(_OPEN):
        what.close()


_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(_close_all)
