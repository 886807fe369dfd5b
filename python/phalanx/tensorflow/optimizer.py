"""Keras optimizers that exchange gradients with the other ranks."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from .._ops import Average, ProcessSet, ReduceOp, global_process_set
from ..errors import OperandError
from .compression import Compression
from .gradients import Exchange

__all__ = ["DistributedOptimizer"]


class _Aggregation:
    """Gradients that are added up over several passes before they are exchanged."""

    def __init__(self, passes: int, average: bool) -> None:
        self.passes = passes
        self.average = average
        self.sums: list[Any] = []
        self.count: Any = None

    def add(self, gradients: list[Any]) -> Any:
        """Adds gradients; whether it is time to exchange them."""
        if self.count is None:
            with tf.init_scope():
                self.count = tf.Variable(0, trainable=False, dtype=tf.int32)
                self.sums = [
                    tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False) for one in gradients
                ]
        for total, one in zip(self.sums, gradients):
            total.assign_add(one)
        self.count.assign_add(1)
        return tf.equal(self.count, self.passes)

    def take(self) -> list[Any]:
        """The sums, which begin anew."""
        factor = 1.0 / self.passes if self.average else 1.0
        values = [tf.identity(total) * tf.cast(factor, total.dtype) for total in self.sums]
        with tf.control_dependencies(values):
            for total in self.sums:
                total.assign(tf.zeros_like(total))
            self.count.assign(0)
        return values


def _apply(self: Any, gradients: list[Any], act: Any) -> Any:
    exchange: Exchange = self._phalanx_exchange
    aggregation: Optional[_Aggregation] = self._phalanx_aggregation
    if aggregation is None:
        return act(exchange.reduce(gradients, "optimizer"))
    places = [place for place, one in enumerate(gradients) if one is not None]
    is_time = aggregation.add([tf.convert_to_tensor(gradients[place]) for place in places])

    def exchanged() -> Any:
        whole = list(gradients)
        for place, one in zip(places, exchange.reduce(aggregation.take(), "optimizer")):
            whole[place] = one
        act(whole)
        return tf.constant(True)

    if not tf.executing_eagerly():
        # Variables of the optimizer cannot be made in a branch.
        build = getattr(self, "build", None)
        if build is not None and self._phalanx_variables is not None:
            with tf.init_scope():
                build(self._phalanx_variables)
    return tf.cond(is_time, exchanged, lambda: tf.constant(False))


def _of_apply_gradients(base: Any) -> Any:
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        self.__dict__["_phalanx_variables"] = variables

        def act(gradients: Any) -> Any:
            return base.apply_gradients(self, list(zip(gradients, variables)), *args, **kwargs)

        return _apply(self, [gradient for gradient, _ in pairs], act)

    return {"apply_gradients": apply_gradients}


def _of_apply(base: Any) -> Any:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        self.__dict__["_phalanx_variables"] = trainable_variables
        return _apply(self, list(grads), lambda gradients: base.apply(self, gradients, trainable_variables))

    return {"apply": apply}


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Optional[Any] = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The Keras optimizer, which now exchanges gradients with the other ranks before it applies them.

    With ``backward_passes_per_step`` gradients of several calls are added up first, and averaged if
    ``average_aggregated_gradients``.
    """
    base = type(optimizer)
    if backward_passes_per_step < 1:
        raise OperandError("`backward_passes_per_step` must be at least 1")
    if not hasattr(base, "apply_gradients") or not hasattr(base, "get_config"):
        raise OperandError(f"{base.__name__} is not a Keras optimizer")
    # Keras 3 applies by `apply`, which its `apply_gradients` calls.
    methods = _of_apply(base) if hasattr(base, "apply") else _of_apply_gradients(base)
    exchange = Exchange(compression, sparse_as_dense, op, gradient_predivide_factor, process_set)
    optimizer.__class__ = type(base.__name__, (base,), {**methods, "__module__": base.__module__})
    attributes = optimizer.__dict__
    attributes["_phalanx_exchange"] = exchange
    attributes["_phalanx_variables"] = None
    attributes["_phalanx_aggregation"] = (
        _Aggregation(backward_passes_per_step, average_aggregated_gradients) if backward_passes_per_step > 1 else None
    )
    return optimizer
