"""Closes what is open before the interpreter ends, while its threads can still be joined."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any, Callable

__all__ = ["close_at_exit"]

_OPEN: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()


def close_at_exit(what: Any) -> None:
    """Has ``what.close()`` called before the interpreter ends, if it still lives."""
    _OPEN[what] = os.getpid()


def _close_all() -> None:
    for what, pid in list(_OPEN.items()):
        # In a forked process it belongs to the parent.
        if pid == os.getpid():
            what.close()


_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(_close_all)
