"""SmartSim's interface, over Phalanx: the classes for training data, in ``smartsim.ml``."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise ImportError(f"phalanx.compat does not have `smartsim.{name}`; docs/coming-from.md lists what it has")
