"""TensorFlow programs that go on when ranks are lost or come anew."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Optional

import tensorflow as tf

from .. import _elastic
from .._elastic import HostsUpdatedInterrupt, ObjectState, State
from ._bridge import take_failure
from .functions import broadcast_variables

__all__ = [
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function go on when ranks are lost or come: ``func(state, …)`` is called again, as in :mod:`phalanx.torch.elastic`."""

    @functools.wraps(func)
    def told(*args: Any, **kwargs: Any) -> Any:
        take_failure()
        try:
            return func(*args, **kwargs)
        except tf.errors.OpError as error:
            # Errors inside functions arrive as text; the operation has kept its own.
            failure = take_failure()
            if failure is None:
                raise
            raise failure from error

    return _elastic.run(told)


class TensorFlowState(ObjectState):
    """Variables and any other objects, which are its attributes."""

    def __init__(self, variables: Optional[Iterable[Any]] = None, **kwargs: Any) -> None:
        self._variables = list(variables or ())
        self._values: list[Any] = []
        super().__init__(**kwargs)

    def _current(self) -> list[Any]:
        return self._variables

    def save(self) -> None:
        self._values = [variable.numpy() for variable in self._current()]
        super().save()

    def restore(self) -> None:
        # What was made after the last commit begins anew on all ranks, from rank 0.
        for variable, value in zip(self._current(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        broadcast_variables(self._current(), root_rank=0)
        super().sync()
        self.save()


class TensorFlowKerasState(TensorFlowState):
    """A Keras model, its optimizer and any other objects, which are its attributes."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        super().__init__(None, **kwargs)

    def _current(self) -> list[Any]:
        return list(self.model.variables) + optimizer_variables(self.optimizer)

    def sync(self) -> None:
        # A new rank's optimizer has no moments yet.
        build = getattr(self.optimizer, "build", None)
        if build is not None:
            build(self.model.trainable_variables)
        super().sync()


def optimizer_variables(optimizer: Any) -> list[Any]:
    """The variables of an optimizer, which is a method or a list depending on the version of Keras."""
    variables = getattr(optimizer, "variables", None) or []
    return list(variables() if callable(variables) and not isinstance(variables, (list, tuple)) else variables)
