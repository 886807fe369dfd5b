"""A node that watches the others."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Optional

from .... import _phalanx
from ...._closing import close_at_exit
from ..types.AmlipIdDataType import AmlipIdDataType
from ..types.StatusDataType import NodeKind, StateKind, StatusDataType
from ._domain import domain_of

__all__ = ["StatusLambda", "StatusListener", "StatusNode"]

_KINDS = {
    "main": NodeKind.MAIN,
    "computing": NodeKind.COMPUTING,
    "edge": NodeKind.EDGE,
    "inference": NodeKind.INFERENCE,
    "observer": NodeKind.STATUS,
}
_STATES = {
    "running": StateKind.RUNNING,
    "draining": StateKind.RUNNING,
    "stopped": StateKind.STOPPED,
    "lost": StateKind.DROPPED,
}


class StatusListener:
    """Is told of every change."""

    def status_received(self, status: StatusDataType) -> None:
        """A node came, changed or went."""
        raise NotImplementedError("a StatusListener needs a method `status_received`")


class StatusLambda(StatusListener):
    """Calls a function with every change."""

    def __init__(self, callback: Callable[[StatusDataType], None]) -> None:
        self.callback_ = callback

    def status_received(self, status: StatusDataType) -> None:
        self.callback_(status)


class StatusNode:
    """A node that watches the others of its domain come, change and go."""

    def __init__(self, name: str, domain: Optional[int] = None) -> None:
        self._watch = _phalanx.NodeWatch(domain_of(domain), name)
        self._thread: Optional[threading.Thread] = None
        close_at_exit(self)

    def get_id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return AmlipIdDataType(self._watch.id)

    def id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return self.get_id()

    def process_status_async(
        self,
        listener: Optional[StatusListener] = None,
        callback: Optional[Callable[[StatusDataType], None]] = None,
    ) -> None:
        """Tells the listener of every change from now on, on a thread of its own."""
        if listener is None and callback is None:
            raise ValueError("process_status_async needs a `listener` or a `callback`")
        if self._thread is not None:
            raise RuntimeError("the status node tells a listener already")
        tell = listener if listener is not None else StatusLambda(callback)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._hear, args=(tell,), name="phalanx-status", daemon=True)
        self._thread.start()

    def stop_processing(self) -> None:
        """Tells no more, and leaves the domain."""
        self.close()

    def close(self) -> None:
        """Leaves the domain."""
        self._watch.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _hear(self, listener: StatusListener) -> None:
        while (changes := self._watch.take_changes()) is not None:
            for change in json.loads(changes):
                node: dict[str, Any] = change["node"]
                kind = _KINDS.get(node["kind"], NodeKind.UNDETERMINED)
                state = _STATES.get(node["state"], StateKind.UNKNOWN)
                listener.status_received(StatusDataType(AmlipIdDataType(node["id"]), kind, state))
