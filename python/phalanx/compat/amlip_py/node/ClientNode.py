"""An agent that brings its network to a server or repeater."""

from __future__ import annotations

from typing import Optional

from ..types.AmlipIdDataType import AmlipIdDataType
from ._agents import Addresses, Guide
from ._domain import domain_of

__all__ = ["ClientNode"]


class ClientNode:
    """Brings the nodes of its domain and network to the agents at these addresses."""

    def __init__(self, name: str, connection_addresses: Addresses, domain: Optional[int] = None) -> None:
        self._guide = Guide(name, domain_of(domain), connection_addresses)

    def get_id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return self._guide.id

    def close(self) -> None:
        """Leaves the domain."""
        self._guide.close()
