"""The whole command line: ``phalanx …`` and ``python -m phalanx …``."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs one command with the arguments of this process, and gives its exit code."""
    from phalanx import _phalanx
    from phalanx._program import program

    # Python's handler would only make a note for the interpreter, which waits. The command sets its own where it has
    # something to save.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _phalanx.command(program(), sys.argv[1:])


if __name__ == "__main__":
    if not __package__:
        # Started by the path of this file, as local nodes are: the package is found beside it, however the process
        # that started this one had found it.
        import os

        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
