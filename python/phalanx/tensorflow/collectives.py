"""Collectives of TensorFlow tensors, at once or inside functions, with gradients."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from .. import _ops
from .._ops import Average, ProcessSet, ReduceOp, Sum, global_process_set, reduction_of
from ..errors import OperandError
from ._bridge import call, collectives
from .compression import Compression

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]

Factors = Tuple[float, float]


def _tensors(values: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(value) for value in values]


def _any_rows(tensor: Any) -> Any:
    return tf.TensorShape([None]).concatenate(tensor.shape[1:]) if tensor.shape.rank else tf.TensorShape(None)


def reduce_dense(
    tensors: Sequence[Any],
    op: ReduceOp,
    factors: Factors = (1.0, 1.0),
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Combines dense tensors as one operation, without a gradient."""
    name = name or _ops._session().name("tensorflow.allreduce", process_set.number())

    def act(arrays: list[Any]) -> Any:
        return collectives.allreduce(
            arrays,
            in_place=False,
            op=op,
            name=name,
            prescale=factors[0],
            postscale=factors[1],
            process_set=process_set,
        ).wait()

    return call(act, tensors, [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors])


def gather_dense(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[list[Any], list[Any]]:
    """Gathers the rows of dense tensors as one operation; also how many rows came from each rank."""
    name = name or _ops._session().name("tensorflow.allgather", process_set.number())

    def act(arrays: list[Any]) -> Any:
        pairs = collectives.allgather(arrays, name=name, process_set=process_set).wait()
        return [array for array, _ in pairs] + [np.asarray(rows, np.int64) for _, rows in pairs]

    types = [tensor.dtype for tensor in tensors] + [tf.int64] * len(tensors)
    shapes = [_any_rows(tensor) for tensor in tensors] + [tf.TensorShape([None])] * len(tensors)
    results = call(act, tensors, types, shapes)
    return results[: len(tensors)], results[len(tensors) :]


def reduce_sparse(
    slices: Sequence[Any], op: ReduceOp, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Adds or averages sparse tensors: indices and values of all ranks are gathered."""
    if op not in (Average, Sum):
        raise OperandError(f"sparse tensors can be averaged or added; there is no {op.value} of them")
    parts = [part for one in slices for part in (one.values, one.indices)]
    gathered, _ = gather_dense(parts, name, process_set)
    ranks = process_set.size()
    results = []
    for one, values, indices in zip(slices, gathered[::2], gathered[1::2]):
        if op is Average:
            values = values / tf.cast(ranks, values.dtype)
        results.append(tf.IndexedSlices(values, indices, one.dense_shape))
    return results


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The tensors of all ranks, combined as one operation. Gradients flow through it."""
    reduction = reduction_of(op, average)
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        if not all(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
            raise OperandError("a group cannot have sparse and dense tensors")
        return reduce_sparse(tensors, reduction, name, process_set)
    factors = (prescale_factor, postscale_factor)

    @tf.custom_gradient
    def reduced(*given: Any) -> Any:
        results = reduce_dense(given, reduction, factors, name, process_set)

        def gradient(*grads: Any) -> Any:
            return reduce_dense(grads, reduction, factors, name and f"{name}.gradient", process_set)

        return results, gradient

    packed = [compression.compress(tensor) for tensor in _tensors(tensors)]
    results = reduced(*(small for small, _ in packed))
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(results, packed)]


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensors of all ranks, combined: averaged unless ``op`` says otherwise. Gradients flow through it."""
    (result,) = grouped_allreduce(
        [tensor],
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        name,
        process_set,
    )
    return result


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """As :func:`allgather` of several tensors."""

    @tf.custom_gradient
    def gathered(*given: Any) -> Any:
        results, rows = gather_dense(given, name, process_set)

        def gradient(*grads: Any) -> Any:
            reduced = reduce_dense(grads, Average, name=name and f"{name}.gradient", process_set=process_set)
            own = process_set.rank()
            return [
                grad[tf.reduce_sum(counts[:own]) : tf.reduce_sum(counts[: own + 1])]
                for grad, counts in zip(reduced, rows)
            ]

        return results, gradient

    return list(gathered(*_tensors(tensors)))


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows of all ranks, in the order of ranks. First dimensions may differ. Gradients flow through it."""
    (result,) = grouped_allgather([tensor], name, ignore_name_scope, process_set)
    return result


def send_dense(
    tensors: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives all ranks the tensors of one as one operation, without a gradient."""
    name = name or _ops._session().name("tensorflow.broadcast", process_set.number())

    def act(arrays: list[Any]) -> Any:
        return collectives.broadcast(
            arrays, root_rank, in_place=False, name=name, process_set=process_set
        ).wait()

    return call(act, tensors, [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors])


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of one rank. Gradients flow through it."""

    @tf.custom_gradient
    def sent(given: Any) -> Any:
        (result,) = send_dense([given], root_rank, name, process_set)

        def gradient(grad: Any) -> Any:
            (reduced,) = reduce_dense([grad], Average, name=name and f"{name}.gradient", process_set=process_set)
            return reduced if _ops.rank() == root_rank else tf.zeros_like(reduced)

        return result, gradient

    return sent(tf.convert_to_tensor(tensor))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Union[Any, Tuple[Any, Any]]:
    """The rows that the ranks send to this one; with ``splits``, also how many came from each.

    Gradients flow through it.
    """

    def exchange(given: Any, counts: Any, named: Optional[str]) -> Tuple[Any, Any]:
        own_name = named or _ops._session().name("tensorflow.alltoall", process_set.number())

        def act(arrays: list[Any]) -> Any:
            rows = [int(count) for count in arrays[1]] if len(arrays) > 1 else None
            ((array, received),) = collectives.alltoall(
                [arrays[0]], rows, name=own_name, process_set=process_set
            ).wait()
            return [array, np.asarray(received, np.int32)]

        given_all = [given] if counts is None else [given, counts]
        shapes = [_any_rows(given), tf.TensorShape([None])]
        received, rows = call(act, given_all, [given.dtype, tf.int32], shapes)
        return received, rows

    counts = None if splits is None else tf.convert_to_tensor(splits)

    @tf.custom_gradient
    def exchanged(given: Any) -> Any:
        received, rows = exchange(given, counts, name)

        def gradient(grad: Any, _: Any) -> Any:
            return exchange(grad, rows, name and f"{name}.gradient")[0]

        return (received, rows), gradient

    received, rows = exchanged(tf.convert_to_tensor(tensor))
    return received if splits is None else (received, rows)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """As :func:`reducescatter` of several tensors."""
    own_name = name or _ops._session().name("tensorflow.reducescatter", process_set.number())

    def act(arrays: list[Any]) -> Any:
        pairs = collectives.reducescatter(
            arrays,
            op=reduction_of(op),
            name=own_name,
            prescale=prescale_factor,
            postscale=postscale_factor,
            process_set=process_set,
        ).wait()
        return [array for array, _ in pairs]

    factor = prescale_factor * postscale_factor * (process_set.size() if op is Sum else 1)

    @tf.custom_gradient
    def scattered(*given: Any) -> Any:
        results = call(act, given, [one.dtype for one in given], [_any_rows(one) for one in given])

        def gradient(*grads: Any) -> Any:
            scaled = [grad * tf.cast(factor, grad.dtype) for grad in grads]
            return gather_dense(scaled, name and f"{name}.gradient", process_set)[0]

        return results, gradient

    packed = [compression.compress(tensor) for tensor in _tensors(tensors)]
    results = scattered(*(small for small, _ in packed))
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(results, packed)]


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Some rows of the combined tensors: the first ranks get one row more if rows are left over.

    Gradients flow through it.
    """
    (result,) = grouped_reducescatter(
        [tensor], device_dense, compression, op, name, process_set, prescale_factor, postscale_factor
    )
    return result
