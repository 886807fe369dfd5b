"""An agent that other networks come to."""

from __future__ import annotations

from typing import Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ._agents import Addresses, Guide, Listening
from ._domain import domain_of

__all__ = ["ServerNode"]


class ServerNode:
    """Lets the nodes of its domain and network meet those that come to its addresses."""

    def __init__(self, name: str, listening_addresses: Addresses, domain: Optional[int] = None) -> None:
        self._listening = Listening(listening_addresses, [domain_of(domain)])
        self._guide = Guide(name, domain_of(domain), listening_addresses)

    def get_id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return self._guide.id

    def close(self) -> None:
        """Leaves the domain and listens no more."""
        self._guide.close()
        self._listening.close()
