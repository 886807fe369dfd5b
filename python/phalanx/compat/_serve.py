"""Makes the packages of other tools importable by their own names, from ``phalanx.compat``."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Iterable, Optional, Sequence

__all__ = ["SERVED", "serve"]

SERVED = ("amlip_py", "amlip_swig", "archai", "horovod", "py_utils", "ravnest", "smartredis", "smartsim")
"""The packages that are served."""


class _Loader(importlib.abc.Loader):
    """Gives the module of ``phalanx.compat`` under the name that a program asks for."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        module = importlib.import_module(self.real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import of the other name replaced it.
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, names: Iterable[str], announce: bool) -> None:
        self.names = frozenset(names)
        self.announce = announce

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname.partition(".")[0] not in self.names:
            return None
        if self.announce:
            self.announce = False
            print(f"phalanx.compat: serves {', '.join(sorted(self.names))}", file=sys.stderr)
        real = f"phalanx.compat.{fullname}"
        if _find(real) is None:
            print(f"phalanx.compat: there is no `{fullname}` here", file=sys.stderr)
            raise ModuleNotFoundError(
                f"phalanx.compat does not have `{fullname}`; docs/coming-from.md lists what it has", name=fullname
            )
        is_package = hasattr(importlib.import_module(real), "__path__")
        return importlib.machinery.ModuleSpec(fullname, _Loader(real), is_package=is_package)


def _find(name: str) -> Optional[importlib.machinery.ModuleSpec]:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


def serve(names: Iterable[str] = SERVED, *, announce: bool = False) -> None:
    """Makes these packages importable by their own names in this process.

    With ``announce``, standard error says so when the first of them is imported.

    >>> import phalanx.compat
    >>> phalanx.compat.serve(["py_utils"])
    >>> from py_utils.wait.IntWaitHandler import IntWaitHandler
    >>> IntWaitHandler.__module__
    'phalanx.compat.py_utils.wait.IntWaitHandler'
    """
    unknown = sorted(set(names) - set(SERVED))
    if unknown:
        raise ValueError(f"phalanx.compat does not serve {', '.join(unknown)}; it serves {', '.join(SERVED)}")
    sys.meta_path.insert(0, _Finder(names, announce))
