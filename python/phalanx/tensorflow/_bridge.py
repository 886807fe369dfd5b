"""Tensors of TensorFlow as arrays for the collectives: without a copy when they are computed at once, and inside
functions by one call of Python for all tensors of an operation."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Sequence

import numpy as np
import tensorflow as tf

from .._collectives import Collectives
from ..errors import OperationError
from ..numpy import _NumpyAdapter

__all__ = ["call", "collectives", "take_failure"]

_ALIGNED = 64


class _Capsule:
    """What NumPy wants of a tensor that it shares."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return tf.experimental.dlpack.to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


_SHARED = "biuf"


def to_numpy(tensor: Any) -> Any:
    """The values of a tensor that has been computed."""
    if isinstance(tensor, tf.Variable):
        tensor = tensor.value()
    if not tf.is_tensor(tensor):
        return np.asarray(tensor)
    dtype = tensor.dtype.as_numpy_dtype
    shares = np.dtype(dtype).kind in _SHARED and dtype not in (np.bool_, tf.bfloat16.as_numpy_dtype)
    if shares and tensor.shape.rank and "CPU" in tensor.device:
        try:
            return np.from_dlpack(_Capsule(tensor))
        except (BufferError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
            pass
    return np.asarray(tensor.numpy())


def from_numpy(array: Any) -> Any:
    """A tensor of these values."""
    aligned = array.__array_interface__["data"][0] % _ALIGNED == 0
    shares = array.dtype.kind in "iuf" and array.ndim and array.size and array.flags.writeable
    if aligned and shares and array.dtype.name != "bfloat16":
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except (BufferError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
            pass
    return tf.convert_to_tensor(array)


class _TensorFlowAdapter(_NumpyAdapter):
    def empty_like(self, host: Any) -> Any:
        # Kernels expect memory that begins where vectors may.
        memory = np.empty(host.nbytes + _ALIGNED, dtype=np.uint8)
        begin = -memory.__array_interface__["data"][0] % _ALIGNED
        return memory[begin : begin + host.nbytes].view(host.dtype).reshape(host.shape)


collectives = Collectives(_TensorFlowAdapter())

_failure: Optional[OperationError] = None
_lock = threading.Lock()


def take_failure() -> Optional[OperationError]:
    """The error of an operation inside a function, which TensorFlow passes on as text."""
    global _failure
    with _lock:
        failure, _failure = _failure, None
    return failure


@tf.autograph.experimental.do_not_convert
def call(
    act: Callable[[list[Any]], Sequence[Any]],
    tensors: Sequence[Any],
    types: Sequence[Any],
    shapes: Sequence[Any],
) -> list[Any]:
    """Has ``act`` compute arrays from arrays: now, or whenever the function that is being traced runs."""
    if tf.executing_eagerly():
        return [from_numpy(np.asarray(result)) for result in act([to_numpy(tensor) for tensor in tensors])]

    @tf.autograph.experimental.do_not_convert
    def traced(*arrays: Any) -> list[Any]:
        global _failure
        try:
            return [np.asarray(result) for result in act([np.asarray(array) for array in arrays])]
        except OperationError as error:
            with _lock:
                _failure = error
            raise

    results = tf.numpy_function(traced, list(tensors), list(types))
    results = results if isinstance(results, (list, tuple)) else [results]
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return list(results)
