"""An agent between networks that belongs to none."""

from __future__ import annotations

from typing import Optional

from ....errors import ConfigError
from ..types.AmlipIdDataType import AmlipIdDataType
from ._agents import Addresses, Listening, known_domains

__all__ = ["RepeaterNode"]


class RepeaterNode:
    """Connects the networks whose agents come to its addresses, for every domain whose key is on this machine."""

    def __init__(
        self, name: str, listening_addresses: Addresses, connection_addresses: Optional[Addresses] = None
    ) -> None:
        if connection_addresses is not None:
            raise ConfigError(
                "repeaters do not connect to other repeaters",
                "give every client the addresses of both repeaters",
            )
        self._name = name
        self._listening = Listening(listening_addresses, known_domains())

    def get_id(self) -> AmlipIdDataType:
        """What the node is called. It is in no domain."""
        return AmlipIdDataType(self._name)

    def close(self) -> None:
        """Listens no more."""
        self._listening.close()
