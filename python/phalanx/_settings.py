"""Arguments as keys of a run file."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Optional, Tuple

from .errors import ConfigError

Setting = Tuple[str, str, str]

_KEYS = {
    "loss": "train.loss",
    "optimizer": "train.optimizer",
    "lr": "train.lr",
    "schedule": "train.schedule",
    "epochs": "train.epochs",
    "steps": "train.steps",
    "batch": "train.batch",
    "accumulate": "train.accumulate",
    "clip_norm": "train.clip_norm",
    "metrics": "train.metrics",
    "seed": "train.seed",
    "threads": "train.threads",
    "shuffle": "data.shuffle",
    "drop_last": "data.drop_last",
    "replicas": "formation.replicas",
    "stages": "formation.stages",
}


def to_toml(value: Any, name: str) -> str:
    """A value as TOML.

    >>> to_toml({"name": "sgd", "momentum": 0.9}, "optimizer")
    '{"name" = "sgd", "momentum" = 0.9}'
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"`{name}` must be finite, not {value}")
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(to_toml(item, name) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {to_toml(item, name)}" for key, item in value.items()) + "}"
    raise ConfigError(f"`{name}` cannot be {type(value).__name__}")


def settings(arguments: Mapping[str, Any], more: Optional[Mapping[str, Any]] = None) -> list[Setting]:
    """Arguments that were given, and keys of a run file that have no argument of their own."""
    found = []
    for name, value in arguments.items():
        if value is None:
            continue
        if name == "lr":
            # A whole number is a learning rate, too.
            value = float(value)
        found.append((name, _KEYS[name], to_toml(value, name)))
    for key, value in (more or {}).items():
        found.append((f"settings[{key!r}]", key, to_toml(value, key)))
    return found
