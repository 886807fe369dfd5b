"""Relays between networks."""

from __future__ import annotations

from typing import Any, Sequence, Union

from . import _phalanx
from ._closing import close_at_exit
from ._nodes import Domain
from .errors import ConfigError

__all__ = ["Relay"]


class Relay:
    """A meeting point for the nodes of networks that cannot reach each other.

    It passes their bytes on and cannot read them. Nodes come to it with ``Domain(…, relays=["host:7700"])``; one node
    of each network is enough, the others take the relay over from it. A relay needs the key of every domain that it
    serves.
    """

    def __init__(self, bind: str = "0.0.0.0:7700", domains: Sequence[Union[str, Domain]] = ("default",)) -> None:
        named = [Domain(domain) if isinstance(domain, str) else domain for domain in domains]
        without = [domain.name for domain in named if domain.key_file is None]
        if without or not named:
            raise ConfigError(
                f"a relay needs the key of a domain, and there is none of `{without[0]}`"
                if without
                else "a relay serves at least one domain",
                f"`phalanx domain new {without[0]}` makes one; every machine of the domain needs a copy"
                if without
                else None,
            )
        self._relay = _phalanx.Relay(bind, [domain.key_file or "" for domain in named])
        close_at_exit(self)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._relay.address

    def close(self) -> None:
        """Ends every connection."""
        self._relay.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
