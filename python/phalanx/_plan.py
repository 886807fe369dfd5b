"""Plans: which nodes would hold which part of a model."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple, Union

from . import _arrays, _models, _phalanx
from ._settings import settings
from .errors import InputError


@dataclass(frozen=True)
class Machine:
    """A machine to plan for: its name, its memory, and its speed in billions of operations per second.

    Machines with the same ``host`` share its links.
    """

    name: str
    memory_bytes: int
    speed_gflops: float
    host: Optional[str] = None


@dataclass(frozen=True)
class Stage:
    """A part of the model on a node: the operators from ``first_op`` up to, but without, ``end_op``."""

    node: str
    first_op: int
    end_op: int
    memory_bytes: int
    utilisation: float
    tensors: Tuple[str, ...] = ()
    """The names of the parameters and buffers that it holds."""


@dataclass(frozen=True)
class Plan:
    """Which node holds which part of the model, and what a step would cost."""

    replicas: Tuple[Tuple[Stage, ...], ...]
    step_seconds: float
    samples_per_second: float
    bottleneck: str
    picture: str

    def __str__(self) -> str:
        return self.picture


def plan(
    model: Any,
    machines: Union[Sequence[Machine], str, os.PathLike[str]],
    *,
    example: Any = None,
    batch: Optional[int] = None,
    replicas: Optional[int] = None,
    stages: Union[int, str] = "auto",
    optimizer: Union[str, Mapping[str, Any]] = "adam",
    settings: Optional[Mapping[str, Any]] = None,
) -> Plan:
    """Plans a formation of a model on machines: a list of them, or the path of a pool file. Nothing is trained.

    A torch module needs ``example``: some samples that it takes.

    >>> import phalanx
    >>> machines = [phalanx.Machine("desk", 8 << 30, 80.0), phalanx.Machine("old", 8 << 30, 20.0)]
    >>> plan = phalanx.plan("resnet-18", machines, batch=64, stages=2)
    >>> [[stage.node for stage in replica] for replica in plan.replicas]
    [['desk', 'old']]
    """
    samples = None if example is None else _arrays.as_array(example, "example")
    found = _models.source(model, samples)
    arguments = {"loss": "mse", "epochs": 1, "batch": batch, "replicas": replicas, "stages": stages}
    told = _settings({**arguments, "optimizer": optimizer}, settings)
    text = _phalanx.plan(found, _pool(machines), told)
    return _of_json(json.loads(text))


_settings = settings


def _pool(machines: Union[Sequence[Machine], str, os.PathLike[str]]) -> Union[str, list[Tuple[str, int, float, str]]]:
    if isinstance(machines, (str, os.PathLike)):
        try:
            with open(machines, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise InputError(f"could not read the pool file {os.fspath(machines)}: {error.strerror}") from error
    return [(m.name, m.memory_bytes, m.speed_gflops, m.host or m.name) for m in machines]


def _of_json(told: Mapping[str, Any]) -> Plan:
    names = told["nodes"]

    def stage(found: Mapping[str, Any], tensors: Sequence[str]) -> Stage:
        ops = found["ops"]
        return Stage(
            names[found["node"]], ops["start"], ops["end"], found["memory"], found["utilisation"], tuple(tensors)
        )

    held = told["tensors"]

    return Plan(
        replicas=tuple(
            tuple(stage(found, tensors) for found, tensors in zip(replica["stages"], names_of))
            for replica, names_of in zip(told["replicas"], held)
        ),
        step_seconds=told["predicted"]["step_s"],
        samples_per_second=told["predicted"]["samples_per_s"],
        bottleneck=told["bottleneck"],
        picture=told["picture"],
    )
