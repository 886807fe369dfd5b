"""Which store a SmartRedis program means."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from ... import errors
from ...store import Store
from .configoptions import ConfigOptions
from .error import RedisConnectionError, RedisRuntimeError
from .srobject import SRObject

__all__ = ["Connected", "open_store"]

KINDS = ("tensors", "datasets", "lists")


def open_store(address: str, cluster: bool) -> Store:
    """Connects to the store at an address. A Redis cluster is asked for the nodes that it has."""
    is_one = "," not in address and not address.startswith(("unix://", "redis+cluster://"))
    try:
        store = Store(address, prefix="")
        if cluster and is_one and b"phalanx_version:" not in store.command("INFO", "server"):
            store.close()
            store = Store(f"redis+cluster://{address}", prefix="")
        return store
    except errors.PhalanxError as error:
        raise RedisConnectionError(f"Could not connect to the store at {address}: {error}") from error


def _address_form(cluster: bool, address: Optional[str] = None, logger_name: str = "Default") -> Tuple[Any, ...]:
    if address:
        # As in SmartRedis, clients that are made later without an address use this one.
        os.environ["SSDB"] = address
    if "SSDB" not in os.environ:
        raise RedisConnectionError("Could not connect to database. $SSDB not set")
    return os.environ["SSDB"], cluster, "", logger_name


def _standard_form(
    config_options: Optional[ConfigOptions] = None, logger_name: str = "Default"
) -> Tuple[Any, ...]:
    options = config_options or ConfigOptions.create_from_environment("")
    if not options.is_configured("SSDB"):
        raise RedisConnectionError(f"Could not connect to database. $SSDB{options.suffix} not set")
    kind = options.get_string_option("SR_DB_TYPE") if options.is_configured("SR_DB_TYPE") else "Clustered"
    if kind.lower() not in ("clustered", "standalone", "colocated"):
        raise RedisConnectionError(f"SR_DB_TYPE is {kind!r}; it can be Clustered, Standalone or Colocated")
    return options.get_string_option("SSDB"), kind.lower() == "clustered", options.suffix, logger_name


class Connected(SRObject):
    """A connection, and which prefixes its names have."""

    def __init__(self, *a: Any, **kw: Any) -> None:
        if a and not isinstance(a[0], (bool, ConfigOptions)) and a[0] is not None:
            raise TypeError(f"Invalid type for argument 0: {type(a[0])}")
        by_address = isinstance(a[0], bool) if a else "address" in kw or "cluster" in kw
        address, cluster, suffix, logger_name = (_address_form if by_address else _standard_form)(*a, **kw)
        super().__init__(logger_name)
        self._writes = os.environ.get(f"SSKEYOUT{suffix}", "")
        self._sources: List[str] = [name for name in os.environ.get(f"SSKEYIN{suffix}", "").split(",") if name]
        self._reads = self._sources[0] if self._sources else ""
        self._is_prefixed: Dict[str, bool] = {"models": False, **{kind: True for kind in KINDS}}
        self._is_cluster = cluster
        self._plain = open_store(address, cluster)
        self._store = self._plain
        self._use_prefixes()

    def _use_prefixes(self) -> None:
        kinds = [kind for kind, is_on in self._is_prefixed.items() if is_on]
        self._store = self._plain.with_prefix(self._writes, reads=self._reads, prefixed=kinds)

    def _key(self, kind: str, name: str, *, writes: bool) -> str:
        """The key that a name means."""
        prefix = self._writes if writes else self._reads
        return f"{prefix}.{name}" if prefix and self._is_prefixed[kind] else name

    def __str__(self) -> str:
        return f"Client of the store at {self._plain.address}"

    def set_data_source(self, source_id: str) -> None:
        """Reads what the program of this name writes; it must be one of ``SSKEYIN``."""
        if source_id not in self._sources:
            raise RedisRuntimeError(
                f"Client error: data source {source_id} could not be found during client initialization.",
                "Client.set_data_source",
            )
        self._reads = source_id
        self._use_prefixes()

    def _set_prefixed(self, kind: str, use_prefix: bool) -> None:
        if not isinstance(use_prefix, bool):
            raise TypeError(f"Argument use_prefix is of type {type(use_prefix)}, not {bool}")
        self._is_prefixed[kind] = use_prefix
        self._use_prefixes()

    def use_tensor_ensemble_prefix(self, use_prefix: bool) -> None:
        """Whether names of tensors have the prefix of this program; they have, unless this says otherwise."""
        self._set_prefixed("tensors", use_prefix)

    def use_dataset_ensemble_prefix(self, use_prefix: bool) -> None:
        """Whether names of datasets have the prefix of this program; they have, unless this says otherwise."""
        self._set_prefixed("datasets", use_prefix)

    def use_list_ensemble_prefix(self, use_prefix: bool) -> None:
        """Whether names of lists have the prefix of this program; they have, unless this says otherwise."""
        self._set_prefixed("lists", use_prefix)

    def use_model_ensemble_prefix(self, use_prefix: bool) -> None:
        """Whether names of models and scripts have the prefix of this program; they have not, by default."""
        self._set_prefixed("models", use_prefix)
