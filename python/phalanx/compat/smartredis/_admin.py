"""Asking and setting up the servers of a store."""

from __future__ import annotations

from typing import Any, Dict, List, Union

from ...store import Store
from ._connection import Connected, open_store
from .error import RedisConnectionError, RedisRuntimeError, translated
from .util import typecheck

__all__ = ["Admin"]


def _value(reply: Any) -> str:
    return str(reply) if isinstance(reply, int) else bytes(reply).decode()


def _lines(text: bytes) -> Dict[str, str]:
    pairs = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def _sections(text: bytes) -> Dict[str, Dict[str, str]]:
    """Lines ``key:value`` by the title ``# Section`` above them."""
    sections: Dict[str, Dict[str, str]] = {}
    title = ""
    for line in text.decode().splitlines():
        if line.startswith("#"):
            title = line[1:].strip()
            sections[title] = {}
        elif ":" in line:
            name, _, value = line.partition(":")
            sections.setdefault(title, {})[name] = value
    return sections


class Admin(Connected):
    """Asks the servers that addresses name."""

    def _server(self, address: str) -> Store:
        typecheck(address, "address", str)
        if address == self._plain.address:
            return self._plain
        try:
            return open_store(address, cluster=False)
        except RedisConnectionError as error:
            raise RedisRuntimeError(str(error)) from error

    def _ask(self, addresses: List[str], *words: Union[str, bytes, int]) -> List[Any]:
        typecheck(addresses, "addresses", list)
        return [self._server(address).command(*words) for address in addresses]

    @translated
    def get_db_node_info(self, addresses: List[str]) -> List[Dict[str, Dict[str, str]]]:
        """What servers tell of themselves, by sections."""
        return [_sections(reply) for reply in self._ask(addresses, "INFO", "EVERYTHING")]

    @translated
    def get_db_cluster_info(self, addresses: List[str]) -> List[Dict[str, str]]:
        """What servers tell of their cluster, to clients that were made for one."""
        if not self._is_cluster:
            raise RedisRuntimeError("This client was not made for a cluster", "Client.get_db_cluster_info")
        return [_lines(reply) for reply in self._ask(addresses, "CLUSTER", "INFO")]

    @translated
    def get_ai_info(
        self, address: List[str], key: str, reset_stat: bool = False
    ) -> List[Dict[str, str]]:
        """How often a model or script ran, and for how long; with ``reset_stat`` counting begins anew."""
        typecheck(address, "address", list)
        typecheck(key, "key", str)
        typecheck(reset_stat, "reset_stat", bool)
        replies = self._ask(address, "AI.INFO", key, *(["RESETSTAT"] if reset_stat else []))
        values = ([_value(item) for item in reply] for reply in replies)
        return [dict(zip(reply[::2], reply[1::2])) for reply in values]

    @translated
    def flush_db(self, addresses: List[str]) -> None:
        """Deletes everything."""
        self._ask(addresses, "FLUSHDB")

    @translated
    def config_get(self, expression: str, address: str) -> Dict[str, str]:
        """The settings of a server whose names match."""
        typecheck(expression, "expression", str)
        reply = self._server(address).command("CONFIG", "GET", expression)
        values = [_value(item) for item in reply]
        return dict(zip(values[::2], values[1::2]))

    @translated
    def config_set(self, config_param: str, value: str, address: str) -> None:
        """Changes a setting of a server."""
        typecheck(config_param, "config_param", str)
        typecheck(value, "value", str)
        self._server(address).command("CONFIG", "SET", config_param, value)

    @translated
    def save(self, addresses: List[str]) -> None:
        """Has servers write what they hold to disk."""
        self._ask(addresses, "SAVE")
