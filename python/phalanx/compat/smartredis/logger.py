"""Messages of SmartRedis programs, as messages of Python's logging: the loggers are ``smartredis.CONTEXT``."""

from __future__ import annotations

import enum
import logging
import os

from .util import typecheck

__all__ = [
    "LLDebug",
    "LLDeveloper",
    "LLInfo",
    "LLQuiet",
    "SRLoggingLevel",
    "log_data",
    "log_error",
    "log_warning",
]


class SRLoggingLevel(enum.IntEnum):
    """How much is told."""

    LLQuiet = 1
    LLInfo = 2
    LLDebug = 3
    LLDeveloper = 4


LLQuiet = SRLoggingLevel.LLQuiet
LLInfo = SRLoggingLevel.LLInfo
LLDebug = SRLoggingLevel.LLDebug
LLDeveloper = SRLoggingLevel.LLDeveloper

_NAMES = {"QUIET": LLQuiet, "INFO": LLInfo, "DEBUG": LLDebug, "DEVELOPER": LLDeveloper}


def _log(severity: int, context: str, level: SRLoggingLevel, data: str) -> None:
    typecheck(context, "context", str)
    typecheck(level, "level", SRLoggingLevel)
    typecheck(data, "data", str)
    wanted = _NAMES.get(os.environ.get("SR_LOG_LEVEL", "INFO").upper(), LLInfo)
    if LLQuiet < level <= wanted:
        logging.getLogger(f"smartredis.{context}").log(severity, data)


def log_data(context: str, level: SRLoggingLevel, data: str) -> None:
    """Tells something."""
    _log(logging.INFO, context, level, data)


def log_warning(context: str, level: SRLoggingLevel, data: str) -> None:
    """Warns of something."""
    _log(logging.WARNING, context, level, data)


def log_error(context: str, level: SRLoggingLevel, data: str) -> None:
    """Tells an error."""
    _log(logging.ERROR, context, level, data)
