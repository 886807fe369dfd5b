"""Gradients of collectives: each is a collective itself, which all ranks compute in their backward passes."""

from __future__ import annotations

from typing import Any, Tuple

import torch

from .. import _ops
from .._ops import Average, ProcessSet, ReduceOp, Sum
from ._adapter import collectives

__all__ = ["AllGather", "AllReduce", "AllToAll", "Broadcast", "ReduceScatter"]


class AllReduce(torch.autograd.Function):
    """The gradient of a reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        name: Any,
        op: ReduceOp,
        factors: Tuple[float, float],
        process_set: ProcessSet,
        *tensors: Any,
    ) -> Any:
        ctx.op, ctx.factors, ctx.process_set = op, factors, process_set
        return tuple(_reduced(tensors, name, op, factors, process_set))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, None, None, *_reduced(grads, None, ctx.op, ctx.factors, ctx.process_set))


def _reduced(tensors: Any, name: Any, op: ReduceOp, factors: Tuple[float, float], process_set: ProcessSet) -> Any:
    return collectives.allreduce(
        list(tensors),
        in_place=False,
        op=op,
        name=name,
        prescale=factors[0],
        postscale=factors[1],
        process_set=process_set,
    ).wait()


class AllGather(torch.autograd.Function):
    """Every rank has a gradient of all rows; a rank gets the average of those of its own rows."""

    @staticmethod
    def forward(ctx: Any, name: Any, process_set: ProcessSet, *tensors: Any) -> Any:
        gathered = collectives.allgather(list(tensors), name=name, process_set=process_set).wait()
        own = process_set.rank()
        ctx.process_set = process_set
        ctx.rows = [(sum(rows[:own]), rows[own]) for _, rows in gathered]
        return tuple(tensor for tensor, _ in gathered)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        reduced = _reduced(grads, None, Average, (1.0, 1.0), ctx.process_set)
        own = [grad.narrow(0, start, count) for grad, (start, count) in zip(reduced, ctx.rows)]
        return (None, None, *own)


class Broadcast(torch.autograd.Function):
    """The root gets the average of the gradients of all ranks, the others get zeros."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, root_rank: int, name: Any, process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        (result,) = collectives.broadcast(
            [tensor], root_rank, in_place=False, name=name, process_set=process_set
        ).wait()
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (reduced,) = _reduced(grads, None, Average, (1.0, 1.0), ctx.process_set)
        return reduced if _ops.rank() == ctx.root_rank else torch.zeros_like(reduced), None, None, None


class AllToAll(torch.autograd.Function):
    """Gradients go back the way the rows came."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Any, process_set: ProcessSet) -> Any:
        ((received, rows),) = collectives.alltoall([tensor], splits, name=name, process_set=process_set).wait()
        ctx.rows, ctx.process_set = rows, process_set
        counts = torch.tensor(rows, dtype=torch.int32)
        ctx.mark_non_differentiable(counts)
        return received, counts

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ((back, _),) = collectives.alltoall([grads[0]], ctx.rows, process_set=ctx.process_set).wait()
        return back, None, None, None


class ReduceScatter(torch.autograd.Function):
    """The gradient of all rows is gathered from the ranks that have them."""

    @staticmethod
    def forward(
        ctx: Any,
        name: Any,
        op: ReduceOp,
        factors: Tuple[float, float],
        process_set: ProcessSet,
        *tensors: Any,
    ) -> Any:
        ctx.process_set = process_set
        ctx.factor = factors[0] * factors[1] * (process_set.size() if op is Sum else 1)
        scattered = collectives.reducescatter(
            list(tensors), op=op, name=name, prescale=factors[0], postscale=factors[1], process_set=process_set
        ).wait()
        return tuple(tensor for tensor, _ in scattered)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scaled = [grad * ctx.factor for grad in grads]
        gathered = collectives.allgather(scaled, process_set=ctx.process_set).wait()
        return (None, None, None, None, *(grad for grad, _ in gathered))
