"""Variables between ranks."""

from __future__ import annotations

import zlib
from typing import Any, Iterable, Optional

import tensorflow as tf

from .._objects import allgather_object, broadcast_object
from .._ops import ProcessSet, global_process_set
from .collectives import send_dense

__all__ = ["allgather_object", "broadcast_object", "broadcast_variables"]


def name_of(kind: str, tensors: Iterable[Any]) -> str:
    """A name for operations on tensors of these types and shapes; the same in every step."""
    told = ";".join(f"{tensor.dtype}{tensor.shape}" for tensor in tensors)
    return f"{kind}.{zlib.crc32(told.encode()):08x}"


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: Optional[bool] = None,
) -> None:
    """Gives all ranks the variables of one, by one operation. Works inside functions, too."""
    listed = list(variables() if callable(variables) and not isinstance(variables, (list, tuple)) else variables)
    if not listed:
        return
    values = [tf.convert_to_tensor(variable) for variable in listed]
    results = send_dense(values, root_rank, name_of("broadcast_variables", values), process_set)
    for variable, result in zip(listed, results):
        variable.assign(result)
