"""Collectives of torch tensors: asynchronous, in place, and with gradients."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import torch

from .._collectives import first, first_tensor, only_tensors
from .._ops import Average, Handle, ProcessSet, ReduceOp, Sum, global_process_set, reduction_of
from ..errors import OperandError
from ._adapter import collectives
from ._autograd import AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter
from .compression import Compression

__all__ = [
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
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]

Tensor = torch.Tensor


def _reduced(
    in_place: bool,
    tensors: Sequence[Tensor],
    name: Optional[str],
    op: ReduceOp,
    factors: Tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    return collectives.allreduce(
        tensors,
        in_place=in_place,
        op=op,
        name=name,
        prescale=factors[0],
        postscale=factors[1],
        process_set=process_set,
    )


def allreduce_async(
    tensor: Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to combine the tensors of all ranks; :func:`synchronize` gives the result."""
    factors = (prescale_factor, postscale_factor)
    return _reduced(False, [tensor], name, reduction_of(op, average), factors, process_set).then(first)


def allreduce(
    tensor: Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The tensors of all ranks, combined: averaged unless ``op`` says otherwise. Gradients flow through it."""
    (result,) = grouped_allreduce(
        [tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set
    )
    return result


def allreduce_async_(
    tensor: Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`allreduce_async`, in the tensor itself."""
    factors = (prescale_factor, postscale_factor)
    return _reduced(True, [tensor], name, reduction_of(op, average), factors, process_set).then(first)


def allreduce_(
    tensor: Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """As :func:`allreduce`, in the tensor itself."""
    result: Tensor = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`allreduce_async` of several tensors, all of which are combined, or none."""
    factors = (prescale_factor, postscale_factor)
    return _reduced(False, tensors, name, reduction_of(op, average), factors, process_set)


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """As :func:`allreduce` of several tensors."""
    packed = [compression.compress(tensor) for tensor in tensors]
    factors = (prescale_factor, postscale_factor)
    results = AllReduce.apply(name, reduction_of(op, average), factors, process_set, *(small for small, _ in packed))
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(results, packed)]


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As :func:`grouped_allreduce_async`, in the tensors themselves."""
    factors = (prescale_factor, postscale_factor)
    return _reduced(True, tensors, name, reduction_of(op, average), factors, process_set)


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """As :func:`grouped_allreduce`, in the tensors themselves."""
    result: list[Tensor] = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    ).wait()
    return result


def sparse_allreduce_async(
    tensor: Tensor, name: Optional[str], op: ReduceOp, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to add or average sparse tensors: indices and values of all ranks are gathered."""
    if op not in (Average, Sum):
        raise OperandError(f"sparse tensors can be averaged or added; there is no {op.value} of them")
    own = tensor.detach().coalesce()
    shape, ranks = own.shape, process_set.size()

    def joined(result: Any) -> Tensor:
        (indices, _), (values, _) = result
        if op is Average:
            values = values / ranks
        return torch.sparse_coo_tensor(indices.t(), values, shape).coalesce()

    indices = own.indices().t().contiguous()
    return collectives.allgather([indices, own.values()], name=name, process_set=process_set).then(joined)


def allgather_async(
    tensor: Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to gather the rows of all ranks."""
    return collectives.allgather([tensor], name=name, process_set=process_set).then(first_tensor)


def allgather(tensor: Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """The rows of all ranks, in the order of ranks. First dimensions may differ. Gradients flow through it."""
    (result,) = grouped_allgather([tensor], name, process_set)
    return result


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """As :func:`allgather_async` of several tensors."""
    return collectives.allgather(tensors, name=name, process_set=process_set).then(only_tensors)


def grouped_allgather(
    tensors: Sequence[Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """As :func:`allgather` of several tensors."""
    return list(AllGather.apply(name, process_set, *tensors))


def broadcast_async(
    tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to give all ranks the tensor of one."""
    return collectives.broadcast(
        [tensor], root_rank, in_place=False, name=name, process_set=process_set
    ).then(first)


def broadcast(
    tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The tensor of one rank. Gradients flow through it."""
    result: Tensor = Broadcast.apply(tensor, root_rank, name, process_set)
    return result


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """As :func:`broadcast_async`, in the tensor itself."""
    return collectives.broadcast(
        [tensor], root_rank, in_place=True, name=name, process_set=process_set
    ).then(first)


def broadcast_(
    tensor: Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """As :func:`broadcast`, in the tensor itself."""
    result: Tensor = broadcast_async_(tensor, root_rank, name, process_set).wait()
    return result


def _splits(splits: Any) -> Optional[list[int]]:
    if splits is None:
        return None
    given = torch.as_tensor(splits)
    if given.dim() != 1 or given.is_floating_point() or given.is_complex():
        raise OperandError("splits must be a list of whole numbers")
    return [int(rows) for rows in given.tolist()]


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to send some rows to each rank. The result is a pair: the tensor, and how many rows came from each rank."""

    def pair(result: Any) -> Tuple[Tensor, Tensor]:
        received, rows = result[0]
        return received, torch.tensor(rows, dtype=torch.int32)

    return collectives.alltoall([tensor], _splits(splits), name=name, process_set=process_set).then(pair)


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[Tensor, Tuple[Tensor, Tensor]]:
    """The rows that the ranks send to this one; with ``splits``, also how many came from each.

    Gradients flow through it.
    """
    received, rows = AllToAll.apply(tensor, _splits(splits), name, process_set)
    return received if splits is None else (received, rows)


def reducescatter_async(
    tensor: Tensor,
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begins to combine the tensors of all ranks, of which each gets some rows."""
    return grouped_reducescatter_async(
        [tensor], name, op, process_set, prescale_factor, postscale_factor
    ).then(first)


def reducescatter(
    tensor: Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Some rows of the combined tensors: the first ranks get one row more if rows are left over.

    Gradients flow through it.
    """
    (result,) = grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )
    return result


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: Optional[str] = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """As :func:`reducescatter_async` of several tensors."""
    return collectives.reducescatter(
        tensors,
        op=reduction_of(op),
        name=name,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    ).then(only_tensors)


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """As :func:`reducescatter` of several tensors."""
    packed = [compression.compress(tensor) for tensor in tensors]
    factors = (prescale_factor, postscale_factor)
    results = ReduceScatter.apply(name, reduction_of(op), factors, process_set, *(small for small, _ in packed))
    return [compression.decompress(small, ctx) for small, (_, ctx) in zip(results, packed)]


