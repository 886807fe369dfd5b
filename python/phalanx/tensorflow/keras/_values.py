"""Collectives of plain values, and models from files."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np
import tensorflow as tf

from ... import numpy as arrays
from ..._ops import Average, ReduceOp, global_process_set, reduction_of
from ..compression import Compression
from ..elastic import optimizer_variables
from ..functions import broadcast_variables
from ..optimizer import DistributedOptimizer

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "load_model", "reducescatter"]


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[ReduceOp] = None,
    compression: Any = Compression.none,
) -> Any:
    """The values of all ranks, combined, as an array."""
    reduction = reduction_of(op, average)
    given = np.asarray(value)
    if reduction is Average and given.dtype.kind in "iub":
        given = given.astype(np.float64)
    return arrays.allreduce(
        given, None, name, reduction, prescale_factor, postscale_factor, global_process_set
    )


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """The rows of all ranks, as an array."""
    return arrays.allgather(np.asarray(value), name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The value of one rank, as an array."""
    return arrays.broadcast(np.asarray(value), root_rank, name)


def reducescatter(value: Any, name: Optional[str] = None, op: ReduceOp = Average) -> Any:
    """Some rows of the combined values, as an array."""
    return arrays.reducescatter(np.asarray(value), name, op)


def broadcast_global_variables(root_rank: int, model: Any = None) -> None:
    """Gives all ranks the variables of one rank's model; programs of TensorFlow 2 have no global ones."""
    if model is None:
        raise ValueError("say which model: `broadcast_global_variables(0, model)`")
    broadcast_variables(list(model.variables) + optimizer_variables(getattr(model, "optimizer", None)), root_rank)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[Any]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Any = Compression.none,
) -> Any:
    """A model from a file, whose optimizer exchanges gradients."""
    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = tf.keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
