"""Gradients that are exchanged with the other ranks: for tapes and for optimizers."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from .._ops import Average, ProcessSet, ReduceOp, Sum, global_process_set
from ..errors import OperandError
from .collectives import reduce_dense, reduce_sparse
from .compression import Compression
from .functions import name_of

__all__ = ["DistributedGradientTape", "Exchange"]


class Exchange:
    """How gradients are combined: all dense ones by one operation, then all sparse ones by another."""

    def __init__(
        self,
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: ReduceOp = Average,
        gradient_predivide_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if op not in (Average, Sum):
            raise OperandError(f"gradients of TensorFlow can be averaged or added, not combined by {op!r}")
        if gradient_predivide_factor != 1.0 and op is not Average:
            raise OperandError("`gradient_predivide_factor` is for `op=Average`")
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.op = op
        self.factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor)
        self.process_set = process_set

    def reduce(self, gradients: Sequence[Any], kind: str) -> list[Any]:
        """The gradients of all ranks; those that are ``None`` stay so."""
        if self.process_set is not global_process_set and not self.process_set.included():
            return list(gradients)
        results = list(gradients)
        if self.sparse_as_dense:
            results = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in results]
        sparse = [place for place, one in enumerate(results) if isinstance(one, tf.IndexedSlices)]
        dense = [place for place, one in enumerate(results) if one is not None and place not in sparse]
        if dense:
            packed = [self.compression.compress(tf.convert_to_tensor(results[place])) for place in dense]
            small = [tensor for tensor, _ in packed]
            name = name_of(kind, small)
            reduced = reduce_dense(small, self.op, self.factors, name, self.process_set)
            for place, tensor, (_, ctx) in zip(dense, reduced, packed):
                results[place] = self.compression.decompress(tensor, ctx)
        if sparse:
            slices = [results[place] for place in sparse]
            name = f"{kind}.sparse.{len(sparse)}.{'.'.join(map(str, sparse))}"
            for place, tensor in zip(sparse, reduce_sparse(slices, self.op, name, self.process_set)):
                results[place] = tensor
        return results


class _DistributedTape:
    """Comes before the tape's own class."""

    _exchange: Exchange

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The gradients, averaged over all ranks."""
        own = super().gradient(target, sources, output_gradients, *args, **kwargs)  # type: ignore[misc]
        # Slices are leaves here, not structures.
        flat = tf.nest.flatten(own, expand_composites=False)
        return tf.nest.pack_sequence_as(own, self._exchange.reduce(flat, "tape"), expand_composites=False)


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Optional[Any] = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The tape, whose gradients are now those of all ranks.

    All gradients of a call are one operation, so that ``groups`` make no difference.
    """
    base = type(gradtape)
    cls: Any = type(base.__name__, (_DistributedTape, base), {})
    distributed = cls.__new__(cls)
    distributed.__dict__ = gradtape.__dict__
    distributed._exchange = Exchange(compression, sparse_as_dense, op, gradient_predivide_factor, process_set)
    return distributed
