"""The errors that SmartRedis programs catch."""

from __future__ import annotations

import functools
from typing import Any, Callable, Type, TypeVar, cast

from ... import errors

__all__ = [
    "RedisBadAllocError",
    "RedisConnectionError",
    "RedisDatabaseError",
    "RedisInternalError",
    "RedisKeyError",
    "RedisReplyError",
    "RedisRuntimeError",
    "RedisTimeoutError",
]


class RedisConnectionError(RuntimeError):
    """No store answers."""


class RedisReplyError(RuntimeError):
    """The store did not do what was asked; also the base of all errors below."""

    def __init__(self, cpp_error: str, method: str = "", key: str = "") -> None:
        super().__init__(f"{method} execution failed\n{cpp_error}" if method else cpp_error)
        self.key = key


class RedisRuntimeError(RedisReplyError):
    """A call cannot be done as it was made."""


class RedisBadAllocError(RedisReplyError):
    """There is no memory."""


class RedisDatabaseError(RedisReplyError):
    """The store is full."""


class RedisInternalError(RedisReplyError):
    """A mistake in the client."""


class RedisTimeoutError(RedisReplyError):
    """The store did not answer in time."""


class RedisKeyError(RedisReplyError):
    """There is nothing of this name."""


def _class_of(error: errors.PhalanxError, method: str) -> Type[RedisReplyError]:
    if isinstance(error, errors.StoreKeyError) and "dataset" in method:
        return RedisKeyError
    if isinstance(error, errors.StoreTimeout):
        return RedisTimeoutError
    if isinstance(error, errors.StoreFull):
        return RedisDatabaseError
    if isinstance(error, errors.InternalError):
        return RedisInternalError
    return RedisRuntimeError


F = TypeVar("F", bound=Callable[..., Any])


def translated(function: F) -> F:
    """Has a method raise the errors of SmartRedis."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except errors.PhalanxError as error:
            raise _class_of(error, function.__name__)(str(error), function.__qualname__) from error

    return cast(F, call)
