"""Where an agent is."""

from __future__ import annotations

import socket
from typing import Optional

__all__ = ["Address"]

_ANY = ("0.0.0.0", "::")


class Address:
    """An address and port, and the port under which other networks see it. Every connection is TCP."""

    def __init__(
        self,
        ip: Optional[str] = None,
        port: Optional[int] = None,
        external_port: Optional[int] = None,
        ip_version: Optional[int] = None,
        domain: Optional[str] = None,
        transport_protocol: object = None,
    ) -> None:
        self.ip = ip
        self.port = port if port is not None else external_port
        self.external_port = external_port if external_port is not None else port
        self.ip_version = ip_version
        self.domain = domain
        self.transport_protocol = transport_protocol
        if self.port is None:
            raise ValueError("an Address needs a `port`")

    @property
    def host(self) -> str:
        """The name or number by which others reach it."""
        host = self.ip or self.domain or _ANY[0]
        return socket.gethostname() if host in _ANY else host

    @property
    def outside(self) -> str:
        """Where other networks reach it."""
        return f"{self.host}:{self.external_port}"

    @property
    def listening(self) -> str:
        """Where it listens: on every interface, unless it is for this machine only."""
        loopback = self.host == "localhost" or self.host.startswith("127.")
        return f"{'127.0.0.1' if loopback else _ANY[0]}:{self.port}"
