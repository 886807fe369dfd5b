"""Horovod's interface for NumPy arrays: collectives of the ranks that ``phalanx launch`` starts.

>>> import numpy as np
>>> import phalanx.numpy as hvd
>>> hvd.init()
>>> hvd.allreduce(np.arange(3.0), op=hvd.Sum) / hvd.size()
array([0., 1., 2.])
>>> hvd.shutdown()
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _rank_names
from ._collectives import Collectives, first, first_tensor, only_tensors
from ._ops import Average, Handle, ProcessSet, ReduceOp, global_process_set, poll, reduction_of, synchronize
from ._phalanx import OpsOutput
from ._rank_names import *
from .errors import OperandError

__all__ = _rank_names.__all__ + [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

Array = npt.NDArray[Any]


class _NumpyAdapter:
    def host(self, tensor: Any) -> Tuple[Array, bool]:
        array = np.asarray(tensor)
        if not array.dtype.isnative:
            return array.astype(array.dtype.newbyteorder("="), order="C"), True
        if array.flags.c_contiguous and array.flags.aligned:
            return array, not isinstance(tensor, np.ndarray)
        return array.copy(order="C"), True

    def empty_like(self, host: Array) -> Array:
        return np.empty_like(host)

    def address(self, host: Array) -> int:
        return int(host.__array_interface__["data"][0])

    def describe(self, host: Any) -> Tuple[str, Sequence[int]]:
        array = np.asarray(host)
        return array.dtype.name, array.shape

    def from_output(self, output: OpsOutput, given: Any) -> Array:
        array: Array = np.asarray(output)
        dtype = np.asarray(given).dtype
        return array if array.dtype == dtype else array.view(dtype.newbyteorder("="))

    def give(self, host: Array, given: Any) -> Array:
        return host

    def assign(self, target: Array, host: Array) -> None:
        target[...] = host

    def writable(self, tensor: Any) -> bool:
        return isinstance(tensor, np.ndarray) and bool(tensor.flags.writeable)


_collectives = Collectives(_NumpyAdapter())


def allreduce_async(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to combine the arrays of all ranks; :func:`synchronize` gives the result."""
    return grouped_allreduce_async(
        [tensor], average, name, op, prescale_factor, postscale_factor, process_set
    ).then(first)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """The arrays of all ranks, combined: averaged unless ``op`` says otherwise."""
    result: Array = allreduce_async(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def allreduce_async_(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`allreduce_async`, in the array itself."""
    return grouped_allreduce_async_(
        [tensor], average, name, op, prescale_factor, postscale_factor, process_set
    ).then(first)


def allreduce_(
    tensor: Array,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """As :func:`allreduce`, in the array itself."""
    result: Array = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def _grouped_allreduce(
    in_place: bool,
    tensors: Sequence[Any],
    average: Optional[bool],
    name: Optional[str],
    op: Optional[ReduceOp],
    factors: Tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    return _collectives.allreduce(
        tensors,
        in_place=in_place,
        op=reduction_of(op, average),
        name=name,
        prescale=factors[0],
        postscale=factors[1],
        process_set=process_set,
    )


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`allreduce_async` of several arrays, all of which are combined, or none."""
    return _grouped_allreduce(
        False, tensors, average, name, op, (prescale_factor, postscale_factor), process_set
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """As :func:`allreduce` of several arrays."""
    result: list[Array] = grouped_allreduce_async(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def grouped_allreduce_async_(
    tensors: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`grouped_allreduce_async`, in the arrays themselves."""
    return _grouped_allreduce(
        True, tensors, average, name, op, (prescale_factor, postscale_factor), process_set
    )


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """As :func:`grouped_allreduce`, in the arrays themselves."""
    result: list[Array] = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def allgather_async(
    tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to gather the rows of all ranks."""
    return _collectives.allgather([tensor], name=name, process_set=process_set).then(first_tensor)


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Array:
    """The rows of all ranks, in the order of ranks. First dimensions may differ."""
    result: Array = allgather_async(tensor, name, process_set).wait()
    return result


def grouped_allgather_async(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """As :func:`allgather_async` of several arrays."""
    return _collectives.allgather(tensors, name=name, process_set=process_set).then(only_tensors)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """As :func:`allgather` of several arrays."""
    result: list[Array] = grouped_allgather_async(tensors, name, process_set).wait()
    return result


def broadcast_async(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to give all ranks the array of one."""
    return _collectives.broadcast(
        [tensor], root_rank, in_place=False, name=name, process_set=process_set
    ).then(first)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """The array of one rank."""
    result: Array = broadcast_async(tensor, root_rank, name, process_set).wait()
    return result


def broadcast_async_(
    tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """As :func:`broadcast_async`, in the array itself."""
    return _collectives.broadcast(
        [tensor], root_rank, in_place=True, name=name, process_set=process_set
    ).then(first)


def broadcast_(
    tensor: Array, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Array:
    """As :func:`broadcast`, in the array itself."""
    result: Array = broadcast_async_(tensor, root_rank, name, process_set).wait()
    return result


def _splits(splits: Any) -> Optional[list[int]]:
    if splits is None:
        return None
    array = np.asarray(splits)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise OperandError("splits must be a list of whole numbers")
    return [int(rows) for rows in array]


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to send some rows to each rank. The result is a pair: the array, and how many rows came from each rank."""

    def pair(result: Any) -> Tuple[Array, Array]:
        received, rows = result[0]
        return received, np.asarray(rows, dtype=np.int32)

    return _collectives.alltoall([tensor], _splits(splits), name=name, process_set=process_set).then(pair)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[Array, Tuple[Array, Array]]:
    """The rows that the ranks send to this one; with ``splits``, also how many came from each."""
    received, rows = alltoall_async(tensor, splits, name, process_set).wait()
    return received if splits is None else (received, rows)


def reducescatter_async(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begins to combine the arrays of all ranks, of which each gets some rows."""
    return grouped_reducescatter_async(
        [tensor], name, op, process_set, prescale_factor, postscale_factor
    ).then(first)


def reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Some rows of the combined arrays: the first ranks get one row more if rows are left over."""
    result: Array = reducescatter_async(
        tensor, name, op, process_set, prescale_factor, postscale_factor
    ).wait()
    return result


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """As :func:`reducescatter_async` of several arrays."""
    return _collectives.reducescatter(
        tensors,
        op=reduction_of(op),
        name=name,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    ).then(only_tensors)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """As :func:`reducescatter` of several arrays."""
    result: list[Array] = grouped_reducescatter_async(
        tensors, name, op, process_set, prescale_factor, postscale_factor
    ).wait()
    return result
