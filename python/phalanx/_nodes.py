"""Domains, and the nodes in them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Optional, Sequence, Union

from . import _phalanx
from ._program import program
from .errors import ConfigError


@dataclass(frozen=True)
class Domain:
    """Which domain, and how to reach it.

    A domain without a key has the nodes of this user on this machine. The key that ``phalanx domain new`` made is
    found by itself where that command puts it.

    >>> Domain("lab", connect=["n1.example:7000"]).name
    'lab'
    """

    name: str = "default"
    key: Optional[str] = None
    connect: Sequence[str] = field(default=())
    relays: Sequence[str] = field(default=())
    bind: Optional[str] = None
    """The address at which nodes of this process listen, such as ``"0.0.0.0:7000"``."""

    @property
    def key_file(self) -> Optional[str]:
        """The file of the key, if there is one."""
        named = self.key or os.environ.get("PHALANX_KEY")
        if named:
            return os.fspath(named)
        usual = os.path.join(keys_folder(), f"{self.name}.key")
        return usual if os.path.isfile(usual) else None


def keys_folder() -> str:
    """Where ``phalanx domain new`` puts keys."""
    base = os.environ.get("PHALANX_CONFIG_DIR")
    if not base:
        config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        base = os.path.join(config, "phalanx")
    return os.path.join(base, "domains")


@dataclass(frozen=True)
class EmbeddedNode:
    """A node that trains inside this process while a call lasts."""

    domain: Domain
    name: str
    cores: Optional[int] = None
    memory: Optional[int] = None


@dataclass(frozen=True)
class NodeInfo:
    """A node of a domain."""

    id: str
    kind: str
    state: str
    cores: int
    memory_bytes: int
    host: Optional[str]
    speed_gflops: Optional[float]
    address: Optional[str]
    jobs_running: int
    jobs_done: int


@dataclass(frozen=True)
class Placement:
    """Who computes: this process, nodes of this machine, or nodes of a domain."""

    local: Optional[int]
    domain: Optional[Domain]
    program: list[str] = field(default_factory=program)


def placement(local: Optional[int], nodes: Union[str, Domain, None]) -> Placement:
    """Who computes, as arguments say it."""
    if local is not None and nodes is not None:
        raise ConfigError("`local` and `nodes` are both given", "say one of them")
    if local is not None and local < 1:
        raise ConfigError(f"`local` must be at least 1, not {local}")
    return Placement(local, Domain(nodes) if isinstance(nodes, str) else nodes)


def nodes(domain: Union[str, Domain] = "default", *, patience: float = 2.0) -> list[NodeInfo]:
    """The nodes of a domain that answer within some seconds.

    >>> import phalanx
    >>> phalanx.nodes("a-domain-without-nodes", patience=0.1)
    []
    """
    place = Domain(domain) if isinstance(domain, str) else domain
    return [NodeInfo(**node) for node in json.loads(_phalanx.nodes(place, patience))]
