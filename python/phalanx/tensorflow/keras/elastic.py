"""Keras programs that go on when ranks are lost or come anew."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..elastic import HostsUpdatedInterrupt, ObjectState, State, TensorFlowKerasState, run

__all__ = [
    "CommitStateCallback",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

KerasState = TensorFlowKerasState


class CommitStateCallback(tf.keras.callbacks.Callback):
    """Commits the state after every few batches, and at the end of each pass."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.left = batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left <= 0:
            self.left = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback(tf.keras.callbacks.Callback):
    """Keeps the number of the batch in ``state.batch``, so that a pass goes on where it was."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStateCallback(tf.keras.callbacks.Callback):
    """Keeps the number of the pass in ``state.epoch``."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.first = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.first = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.first + epoch + 1
