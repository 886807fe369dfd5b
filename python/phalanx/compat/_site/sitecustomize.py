"""Read by interpreters that ``phalanx launch --compat`` starts: serves the packages of other tools."""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _serve() -> None:
    try:
        from phalanx.compat import serve
    except ImportError:
        # This interpreter does not have the package: take the one of the launcher.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
        from phalanx.compat import serve
    serve(announce=os.environ.get("PHALANX_WORKER", "0") == "0")


_serve()

# The interpreter's own module of this name, if it has one, comes after.
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
_this = sys.modules.pop(__name__)
try:
    importlib.import_module(__name__)
except ImportError:
    sys.modules[__name__] = _this
