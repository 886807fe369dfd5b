"""What clients, datasets and contexts of messages have in common."""

from __future__ import annotations

from . import logger

__all__ = ["SRObject"]


class SRObject:
    """Something that tells messages under a name."""

    def __init__(self, context: str) -> None:
        self._context = context

    def log_data(self, level: logger.SRLoggingLevel, data: str) -> None:
        """Tells something."""
        logger.log_data(self._context, level, data)

    def log_warning(self, level: logger.SRLoggingLevel, data: str) -> None:
        """Warns of something."""
        logger.log_warning(self._context, level, data)

    def log_error(self, level: logger.SRLoggingLevel, data: str) -> None:
        """Tells an error."""
        logger.log_error(self._context, level, data)
