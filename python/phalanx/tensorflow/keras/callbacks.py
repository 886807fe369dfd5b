"""Callbacks for `model.fit` on many ranks."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import numpy as np
import tensorflow as tf

from ... import _ops
from ... import numpy as arrays
from ...errors import OperandError
from ..elastic import optimizer_variables
from ..functions import broadcast_variables

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):
    """Gives all ranks the variables of one after the first batch, when the optimizer has its own."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.is_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.is_done:
            return
        self.is_done = True
        variables = list(self.model.variables) + optimizer_variables(self.model.optimizer)
        broadcast_variables(variables, self.root_rank)


class MetricAverageCallback(tf.keras.callbacks.Callback):
    """Averages metrics over all ranks at the end of a pass. Comes before callbacks that use them."""

    def __init__(self, device: str = "", process_set: Any = _ops.global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        names = sorted(name for name in logs or () if np.isscalar(logs[name]) or np.ndim(logs[name]) == 0)
        if not names:
            return
        own = np.asarray([float(logs[name]) for name in names])
        average = arrays.allreduce(own, name="metrics." + ".".join(names), process_set=self.process_set)
        for name, value in zip(names, average):
            logs[name] = float(value)


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):
    """Multiplies the learning rate by a factor, or by a function of the pass, between two passes.

    With ``staircase`` it changes once a pass, otherwise every batch.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None or initial_lr <= 0:
            raise OperandError("`initial_lr` must be above 0")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.staircase = staircase
        self.restore_momentum: Optional[float] = None
        self.current_epoch = 0
        if callable(multiplier):
            self.multiplier: Callable[[float], float] = multiplier
        else:
            self.staircase = True
            factor = float(multiplier)
            self.multiplier = lambda epoch: factor

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before = float(np.asarray(optimizer.learning_rate))
        after = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate.assign(after)
        momentum: Any = getattr(optimizer, "momentum", None)
        if self.momentum_correction and hasattr(momentum, "assign") and before > 0:
            # Velocities hold the old rate: they are scaled for one batch.
            self.restore_momentum = float(np.asarray(momentum))
            momentum.assign(self.restore_momentum * after / before)

    def _is_active(self) -> bool:
        begun = self.current_epoch >= self.start_epoch
        return begun and (self.end_epoch is None or self.current_epoch < self.end_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = (self.params or {}).get("steps")
        if not self.steps_per_epoch:
            raise OperandError("`steps_per_epoch` is not known", "say `steps_per_epoch=…`")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._is_active():
            return
        if self.staircase and batch == 0:
            self._adjust(self.current_epoch)
        elif not self.staircase and self.steps_per_epoch:
            self._adjust(self.current_epoch + batch / self.steps_per_epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.restore_momentum is not None:
            self.model.optimizer.momentum.assign(self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(np.asarray(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Lets the learning rate grow from that of one rank to ``initial_lr``, that of all ranks, in the first passes."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The last batch of the warm-up has the whole rate.
            steps = self.steps_per_epoch or 1
            reached = min(1.0, (epoch + 1.0 / steps) / warmup_epochs) if warmup_epochs else 1.0
            return (1.0 + reached * (_ops.size() - 1)) / _ops.size()

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == self.end_epoch - 1:
            rate = float(np.asarray(self.model.optimizer.learning_rate))
            print(f"pass {epoch + 1}: the warm-up has ended, the learning rate is {rate:g}")
