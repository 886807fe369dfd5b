"""Trains models on many unequal machines as if they were one.

>>> import numpy as np
>>> import phalanx
>>> x = np.random.default_rng(0).normal(size=(64, 784)).astype("float32")
>>> y = (x[:, 0] > 0).astype("int64")
>>> run = phalanx.fit("mlp", train=(x, y), loss="cross_entropy", epochs=2, progress=False)
>>> run.metrics["loss"].shape
(4,)
>>> run.predict(x).shape
(64, 10)

Modules are loaded when they are first used: ``import phalanx`` itself loads neither NumPy nor the library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import (
    ConfigError,
    ForkError,
    InputError,
    InternalError,
    MachineError,
    ModelError,
    PhalanxError,
    TrainingError,
)

if TYPE_CHECKING:
    from ._fit import fit
    from ._nodes import Domain, NodeInfo, nodes
    from ._plan import Machine, Plan, Stage, plan
    from ._relay import Relay
    from ._run import Fused, Run, fuse
    from ._runs import RunRecord, runs

    __version__: str

__all__ = [
    "ConfigError",
    "Domain",
    "ForkError",
    "Fused",
    "InputError",
    "InternalError",
    "Machine",
    "MachineError",
    "ModelError",
    "NodeInfo",
    "PhalanxError",
    "Plan",
    "Relay",
    "Run",
    "RunRecord",
    "Stage",
    "TrainingError",
    "__version__",
    "fit",
    "fuse",
    "nodes",
    "plan",
    "runs",
]

_HOMES = {
    "Domain": "._nodes",
    "Fused": "._run",
    "Machine": "._plan",
    "NodeInfo": "._nodes",
    "Plan": "._plan",
    "Relay": "._relay",
    "Run": "._run",
    "RunRecord": "._runs",
    "Stage": "._plan",
    "fit": "._fit",
    "fuse": "._run",
    "nodes": "._nodes",
    "plan": "._plan",
    "runs": "._runs",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("._phalanx", __name__).version()
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
