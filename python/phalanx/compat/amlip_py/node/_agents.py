"""Agents: relays between networks, and the nodes that bring the others to them."""

from __future__ import annotations

import glob
import os
import threading
from dataclasses import replace
from typing import Iterable, Optional, Union

from .... import _phalanx
from ...._closing import close_at_exit
from ...._nodes import Domain, keys_folder
from ...._relay import Relay
from ....errors import ConfigError
from ..types.Address import Address
from ..types.AmlipIdDataType import AmlipIdDataType

Addresses = Union[Address, Iterable[Address]]


def _listed(addresses: Optional[Addresses]) -> list[Address]:
    if addresses is None:
        return []
    return [addresses] if isinstance(addresses, Address) else list(addresses)


def known_domains() -> list[Domain]:
    """The numbered domains whose keys are on this machine."""
    files = sorted(glob.glob(os.path.join(keys_folder(), "amlip-*.key")))
    if not files:
        raise ConfigError(
            "a repeater needs the key of a domain, and there is none on this machine",
            "`phalanx domain new amlip-0` makes the one of domain 0; every machine of the domain needs a copy",
        )
    return [Domain(os.path.basename(file)[: -len(".key")], key=file) for file in files]


class Listening:
    """Relays at some addresses."""

    def __init__(self, addresses: Addresses, domains: list[Domain]) -> None:
        self._relays = [Relay(address.listening, domains) for address in _listed(addresses)]
        close_at_exit(self)

    def close(self) -> None:
        """Ends the relays."""
        for relay in self._relays:
            relay.close()


class Guide:
    """A node that knows relays. The other nodes of its network take them over from it."""

    def __init__(self, name: str, domain: Domain, addresses: Addresses) -> None:
        if domain.key_file is None:
            raise ConfigError(
                f"an agent needs the key of its domain, and there is none of `{domain.name}`",
                f"`phalanx domain new {domain.name}` makes one; every machine of the domain needs a copy",
            )
        relays = [address.outside for address in _listed(addresses)]
        self._watch = _phalanx.NodeWatch(replace(domain, relays=[*domain.relays, *relays]), name)
        self._thread = threading.Thread(target=self._hear, name="phalanx-agent", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def id(self) -> AmlipIdDataType:
        """What the node is called in its domain."""
        return AmlipIdDataType(self._watch.id)

    def close(self) -> None:
        """Leaves the domain."""
        self._watch.close()
        self._thread.join()

    def _hear(self) -> None:
        while self._watch.take_changes() is not None:
            pass
