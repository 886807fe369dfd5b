"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._ops import Sum, global_process_set
from .collectives import allreduce

__all__ = ["SyncBatchNormalization"]


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """As Keras' ``BatchNormalization``, with mean and variance over the batches of all ranks.

    Batches may have different sizes.
    """

    def __init__(self, *args: Any, process_set: Any = global_process_set, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.process_set = process_set

    def call(self, inputs: Any, training: Any = None, **kwargs: Any) -> Any:
        """Normalises a batch."""
        if not training or self.process_set.size() == 1:
            return super().call(inputs, training=training, **kwargs)
        (kept,) = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        kept %= inputs.shape.rank
        axes = [axis for axis in range(inputs.shape.rank) if axis != kept]
        features = inputs.shape[kept]
        wide = tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else inputs
        count = tf.cast(tf.size(inputs) // features, wide.dtype)
        told = tf.concat([tf.reduce_sum(wide, axes), tf.reduce_sum(wide * wide, axes), [count]], axis=0)
        told = allreduce(told, op=Sum, name=f"sync_batch_norm.{self.name}", process_set=self.process_set)
        total = tf.stop_gradient(told[-1])
        mean = told[:features] / total
        variance = tf.maximum(told[features:-1] / total - mean * mean, 0.0)
        for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            old = tf.convert_to_tensor(moving)
            moving.assign(old * self.momentum + tf.cast(value, old.dtype) * (1.0 - self.momentum))
        shape = [features if axis == kept else 1 for axis in range(inputs.shape.rank)]

        def spread(values: Any) -> Any:
            return None if values is None else tf.reshape(tf.cast(values, wide.dtype), shape)

        beta, gamma = spread(self.beta if self.center else None), spread(self.gamma if self.scale else None)
        result = tf.nn.batch_normalization(wide, spread(mean), spread(variance), beta, gamma, self.epsilon)
        return tf.cast(result, inputs.dtype)
