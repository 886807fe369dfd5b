"""Programs that go on when ranks are lost or come anew."""

from __future__ import annotations

import copy
import functools
import logging
from typing import Any, Callable, TypeVar

from . import _objects, _ops
from .errors import DuplicateName, MismatchError, OperandError, OperationError

__all__ = ["HostsUpdatedInterrupt", "ObjectState", "State", "run"]

_log = logging.getLogger("phalanx.elastic")
_Result = TypeVar("_Result")


class HostsUpdatedInterrupt(RuntimeError):
    """The ranks meet again although none was lost: to let new ones in. Programs may raise it, too, on all ranks."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the ranks meet again")
        self.skip_sync = skip_sync


class State:
    """What a program keeps when the group of ranks changes.

    Derived classes say how it is saved, restored and synchronised from rank 0.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Has functions called when the ranks have met again: to change a learning rate by the number of ranks, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have met again."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state in memory, where :meth:`restore` finds it after a loss, and lets new ranks in."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises :class:`HostsUpdatedInterrupt` on all ranks if new ones wait to be let in. All ranks call it.

        It costs a small operation, and nothing where no ranks can come later.
        """
        if _ops.is_initialized() and _ops.newcomers_wait():
            raise HostsUpdatedInterrupt()

    def save(self) -> None:
        """Saves the state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Takes over the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called when the ranks have met again, before the callbacks."""


class ObjectState(State):
    """A state of Python objects, which are its attributes.

    >>> from phalanx._elastic import ObjectState
    >>> state = ObjectState(epoch=0)
    >>> state.epoch = 3
    >>> state.restore()
    >>> state.epoch
    0
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = _objects.broadcast_object,
        get_rank: Callable[[], int] = _ops.rank,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self._bcast_object = bcast_object
        self._saved: dict[str, Any] = dict(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save()

    def save(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self) -> None:
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self) -> None:
        if not self._saved:
            return
        own = {name: getattr(self, name) for name in self._saved}
        for name, value in self._bcast_object(own, 0, "elastic_state").items():
            setattr(self, name, value)
        self.save()


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Makes a function go on when ranks are lost or come: ``func(state, …)`` is called again.

    After a loss it begins with the state of the last commit; when ranks come nothing is lost. The ranks that there are
    form a new group, and rank 0 gives its state to all.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        _ops.init()
        meet, sync = False, True
        while True:
            try:
                if meet:
                    _ops.reset()
                    meet = False
                    state.on_reset()
                if sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except (DuplicateName, MismatchError, OperandError):
                # The next group would fail in the same way.
                raise
            except OperationError as error:
                _log.warning("the ranks meet again: %s", error.reason)
                state.restore()
                meet, sync = True, True
            except HostsUpdatedInterrupt as interrupt:
                _log.info("the ranks meet again: new ones wait")
                meet, sync = True, not interrupt.skip_sync

    return wrapper
