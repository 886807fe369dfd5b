"""Which program starts local nodes."""

from __future__ import annotations

import os
import sys


def program() -> list[str]:
    """The words that start the command line from another process.

    They name the file of this package, so that a process finds it without the caller's path or directory. Empty if
    the interpreter does not know its own file, as in a program that embeds it; ``PHALANX_NODE_PROGRAM`` names another
    program.
    """
    named = os.environ.get("PHALANX_NODE_PROGRAM")
    if named:
        return [named]
    if not sys.executable:
        return []
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    return [sys.executable, here]
