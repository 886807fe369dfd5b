"""``python -m phalanx.compat program.py arguments``: runs a program that was written for another tool."""

from __future__ import annotations

import os
import runpy
import sys

from ._serve import SERVED, serve

_USAGE = """\
usage: python -m phalanx.compat PROGRAM [ARGUMENT ...]
       python -m phalanx.compat -m MODULE [ARGUMENT ...]

Runs a Python program; in it, these packages come from Phalanx: {served}

example: python -m phalanx.compat main_node.py
"""


def main(arguments: list[str]) -> int:
    """Runs the program that the arguments name."""
    if not arguments or arguments[0] in ("-h", "--help"):
        stream = sys.stdout if arguments else sys.stderr
        print(_USAGE.format(served=", ".join(SERVED)), end="", file=stream)
        return 0 if arguments else 2
    serve()
    print(f"phalanx.compat: serves {', '.join(SERVED)}", file=sys.stderr)
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print("phalanx.compat: `-m` needs the name of a module", file=sys.stderr)
            return 2
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    program = arguments[0]
    if not os.path.isfile(program):
        print(f"phalanx.compat: there is no program {program}", file=sys.stderr)
        return 2
    sys.argv = list(arguments)
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
