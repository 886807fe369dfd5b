"""The nodes of a project: ``node_configs.json``, and the domain in which they meet."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Mapping, Tuple

from .._nodes import Domain
from ..errors import ConfigError

CONFIGS = "node_configs.json"
_HERE = ("0.0.0.0", "127.0.0.1", "localhost", "::", "::1")
_EXAMPLE = '{"0": {"IP": "0.0.0.0:8080", "benchmarks": {"ram": 8, "bandwidth": 10}}}'


@dataclass(frozen=True)
class Provider:
    """A node of the pool: its address, its memory in GB and its bandwidth in Mbit/s."""

    id: str
    address: str
    ram: float
    bandwidth: float

    @property
    def name(self) -> str:
        """What ``Node`` calls it."""
        return f"node_{self.id}"

    @property
    def host(self) -> str:
        """The host of its address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def is_here(self) -> bool:
        """Whether its address is one of this machine, whichever that is."""
        return self.host in _HERE


@dataclass(frozen=True)
class Pool:
    """All nodes of a project."""

    folder: str
    text: str
    providers: Tuple[Provider, ...]

    @property
    def is_local(self) -> bool:
        """Whether all nodes are on this machine."""
        return all(provider.is_here for provider in self.providers)

    def beside(self, provider: Provider) -> int:
        """How many nodes share the machine of this one, itself included."""
        return sum(other.host == provider.host or self.is_local for other in self.providers)

    def domain(self, provider: Provider, *, drives: bool = False) -> Domain:
        """Where the nodes of this project, and only those, meet."""
        if self.is_local:
            place = hashlib.sha256(f"{os.path.realpath(self.folder)}\n{self.text}".encode())
            return Domain(f"nodes-{place.hexdigest()[:12]}", bind="127.0.0.1:0")
        name = f"nodes-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"
        self._check_reachable()
        others = [other.address for other in self.providers if drives or other != provider]
        port = provider.address.rpartition(":")[2]
        domain = Domain(name, connect=others, bind=None if drives else f"0.0.0.0:{port}")
        if domain.key_file is None:
            raise ConfigError(
                "the nodes are on several machines, and their domain has no key: without a key nodes are only "
                "reached on their own machine",
                f"run `phalanx domain new {name}` and copy the file that it names to the same place on every machine",
            )
        return domain

    def _check_reachable(self) -> None:
        for provider in self.providers:
            if provider.is_here:
                raise ConfigError(
                    f"{CONFIGS}: node {provider.id} has the address {provider.address}, which other machines cannot reach",
                    "give it the address of its machine, as the other nodes have",
                )


def read_pool(folder: str) -> Pool:
    """Reads ``node_configs.json`` of a folder."""
    path = os.path.join(folder, CONFIGS)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        configs = json.loads(text)
    except OSError as error:
        raise ConfigError(f"could not read {path}: {error.strerror}", f"write one, such as {_EXAMPLE}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}", f"it may say {_EXAMPLE}") from error
    if not isinstance(configs, dict) or not configs:
        raise ConfigError(f"{path} names no nodes", f"it may say {_EXAMPLE}")
    providers = tuple(_provider(path, str(key), value) for key, value in configs.items())
    addresses = [provider.address for provider in providers]
    for address in addresses:
        if addresses.count(address) > 1:
            raise ConfigError(f"{path}: two nodes have the address {address}")
    return Pool(folder, text, providers)


def _provider(path: str, key: str, value: Any) -> Provider:
    wrong = ConfigError(f"{path}: node {key} is not described as it should be", f"it may say {_EXAMPLE}")
    if not isinstance(value, Mapping) or not isinstance(value.get("IP"), str):
        raise wrong
    measured = value.get("benchmarks")
    if not isinstance(measured, Mapping):
        raise wrong
    ram, bandwidth = measured.get("ram"), measured.get("bandwidth")
    if not isinstance(ram, (int, float)) or not isinstance(bandwidth, (int, float)) or ram <= 0 or bandwidth <= 0:
        raise wrong
    host, colon, port = value["IP"].rpartition(":")
    if not (host and colon and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{path}: node {key} has the address {value['IP']}", "an address is a host and a port")
    return Provider(key, value["IP"], float(ram), float(bandwidth))
