"""Settings of a client."""

from __future__ import annotations

import os
from typing import Dict, Union

from .error import RedisKeyError, RedisRuntimeError
from .util import typecheck

__all__ = ["ConfigOptions"]


class ConfigOptions:
    """Settings from environment variables, whose names may end with a suffix: ``SSDB_x``, ``SR_DB_TYPE_x``, …

    >>> import os
    >>> os.environ["SSDB_doctest"] = "127.0.0.1:6780"
    >>> ConfigOptions.create_from_environment("doctest").get_string_option("SSDB")
    '127.0.0.1:6780'
    """

    def __init__(self) -> None:
        self._suffix: Union[None, str] = None
        self._overrides: Dict[str, Union[int, str]] = {}

    @classmethod
    def create_from_environment(cls, db_suffix: str) -> "ConfigOptions":
        """Settings from the variables of this suffix; ``""`` for none."""
        typecheck(db_suffix, "db_suffix", str)
        options = cls()
        options._suffix = db_suffix
        return options

    @property
    def suffix(self) -> str:
        """What the names of variables end with."""
        if self._suffix is None:
            raise RedisRuntimeError("create_from_environment must be used to make a ConfigOptions")
        return f"_{self._suffix}" if self._suffix else ""

    def _value(self, option_name: str) -> Union[None, int, str]:
        typecheck(option_name, "option_name", str)
        suffix = self.suffix
        if option_name in self._overrides:
            return self._overrides[option_name]
        return os.environ.get(option_name + suffix)

    def get_integer_option(self, option_name: str) -> int:
        """A setting that is a number."""
        value = self._value(option_name)
        if value is None:
            raise RedisKeyError(f"No value found for option {option_name}")
        return int(value)

    def get_string_option(self, option_name: str) -> str:
        """A setting that is a text."""
        value = self._value(option_name)
        if value is None:
            raise RedisKeyError(f"No value found for option {option_name}")
        return str(value)

    def is_configured(self, option_name: str) -> bool:
        """Whether a setting has a value."""
        return self._value(option_name) is not None

    def override_integer_option(self, option_name: str, value: int) -> None:
        """Sets a number for clients that are made with these settings."""
        typecheck(option_name, "option_name", str)
        typecheck(value, "value", int)
        self._overrides[option_name] = value

    def override_string_option(self, option_name: str, value: str) -> None:
        """Sets a text for clients that are made with these settings."""
        typecheck(option_name, "option_name", str)
        typecheck(value, "value", str)
        self._overrides[option_name] = value
