"""The exceptions of Phalanx.

Every exception has the ``reason`` and, where there is one, a ``hint``: what to do about it.

>>> from phalanx.errors import ConfigError, InputError, PhalanxError
>>> error = ConfigError("`train.batch` must be at least 1", "say `batch=32`")
>>> error.reason, error.hint
('`train.batch` must be at least 1', 'say `batch=32`')
>>> isinstance(error, InputError) and isinstance(error, PhalanxError)
True
>>> print(error)
`train.batch` must be at least 1
hint: say `batch=32`
"""

from __future__ import annotations

from typing import Optional

__all__ = [
    "ConfigError",
    "DuplicateName",
    "ForkError",
    "InputError",
    "InternalError",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "MachineError",
    "MismatchError",
    "ModelError",
    "NotInitialized",
    "OperandError",
    "OperationError",
    "PeerLost",
    "PhalanxError",
    "RankShutDown",
    "SearchFailed",
    "StallError",
    "StoreError",
    "StoreFull",
    "StoreKeyError",
    "StoreLost",
    "StoreTimeout",
    "TrainingError",
]


class PhalanxError(Exception):
    """Something did not work."""

    reason: str
    hint: Optional[str]

    def __init__(self, reason: str, hint: Optional[str] = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return self.reason if self.hint is None else f"{self.reason}\nhint: {self.hint}"


class InputError(PhalanxError, ValueError):
    """A model, data or a directory cannot be used."""


class ConfigError(InputError):
    """A setting cannot be used."""


class ModelError(InputError):
    """A model cannot be exported, or its weights do not fit."""


class TrainingError(PhalanxError, RuntimeError):
    """The training itself failed: a loss that is not finite, say."""


class SearchFailed(PhalanxError, RuntimeError):
    """A search has no result: its first trials all failed, or no candidate can be tried. The reason says why."""


class MachineError(PhalanxError, RuntimeError):
    """A disk, memory, a process or the network failed."""


class ForkError(PhalanxError, RuntimeError):
    """The process was forked from one that had used Phalanx."""


class InternalError(PhalanxError, RuntimeError):
    """A mistake in Phalanx itself."""


class JobFailed(PhalanxError, RuntimeError):
    """A job failed: its handler did, or every node that ran it was lost."""


class JobExpired(PhalanxError, TimeoutError):
    """A job had no outcome before its deadline."""


class JobCancelled(PhalanxError, RuntimeError):
    """A job was cancelled, or the node that it was submitted by was closed."""


class NotInitialized(PhalanxError, ValueError):
    """A collective was called before ``init()`` or after ``shutdown()``."""


class OperationError(PhalanxError, RuntimeError):
    """A collective operation of ranks did not happen."""


class OperandError(OperationError, InputError):
    """An operation makes no sense on this rank: a wrong root, wrong splits, a type that cannot be reduced so."""


class MismatchError(OperationError):
    """Ranks mean different operations by one name. All of them get this error."""


class StallError(OperationError):
    """Some ranks did not issue an operation in time."""


class DuplicateName(OperationError, ValueError):
    """An operation of this name is under way already."""


class PeerLost(OperationError):
    """A rank died. Every operation ends with this error until the ranks meet again."""


class RankShutDown(OperationError):
    """A rank that an operation needs has shut down."""


class StoreError(PhalanxError, RuntimeError):
    """The store did not do what was asked."""


class StoreKeyError(StoreError, KeyError):
    """The store has nothing of this name."""


class StoreTimeout(StoreError, TimeoutError):
    """What was waited for did not come into the store in time."""


class StoreFull(StoreError):
    """There is no room in the store."""


class StoreLost(StoreError, ConnectionError):
    """No store answers at the address, or it went away."""
