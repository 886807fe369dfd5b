"""Python objects between ranks, pickled."""

from __future__ import annotations

import importlib
import pickle
from typing import Any, Optional

import numpy as np

from . import _ops
from ._collectives import Collectives
from ._ops import ProcessSet, global_process_set

__all__ = ["allgather_object", "broadcast_object"]


def _pickled(value: Any) -> bytes:
    try:
        dumps = importlib.import_module("cloudpickle").dumps
    except ImportError:
        dumps = pickle.dumps
    data: bytes = dumps(value)
    return data


def _collectives() -> Collectives:
    # `phalanx.numpy` offers these functions, too.
    from .numpy import _collectives

    return _collectives


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The object of one rank. What other ranks give is ignored."""
    name = name or "broadcast_object"
    is_root = _ops.rank() == root_rank
    data = np.frombuffer(_pickled(obj) if is_root else b"", dtype=np.uint8).copy()
    length = np.array([data.size], dtype=np.int64)
    collectives = _collectives()
    collectives.broadcast([length], root_rank, in_place=True, name=f"{name}.size", process_set=process_set).wait()
    if not is_root:
        data = np.empty(int(length[0]), dtype=np.uint8)
    collectives.broadcast([data], root_rank, in_place=True, name=f"{name}.bytes", process_set=process_set).wait()
    return obj if is_root else pickle.loads(data.tobytes())


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks."""
    data = np.frombuffer(_pickled(obj), dtype=np.uint8)
    handle = _collectives().allgather([data], name=name or "allgather_object", process_set=process_set)
    ((gathered, rows),) = handle.wait()
    ends = np.cumsum(rows)
    return [pickle.loads(gathered[end - length : end].tobytes()) for end, length in zip(ends, rows)]
