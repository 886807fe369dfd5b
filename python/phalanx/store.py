"""The tensor store: tensors, datasets and lists that programs share by name.

>>> import numpy as np
>>> from phalanx.store import Dataset, Store, serve
>>> with serve() as server, Store(server.address) as store:
...     store.put("velocity", np.arange(6.0).reshape(2, 3))
...     velocity = store.get("velocity")
...     store.put_dataset(Dataset("step_0", {"u": velocity}, {"time": 0.1}))
...     store.append("steps", "step_0")
...     [step.metadata["time"] for step in store.datasets("steps")]
1
[[0.1]]
>>> float(velocity.sum()), velocity.flags.writeable
(15.0, False)

On the store's host large tensors go through shared memory: ``put`` copies once, ``get`` not at all. The same data are
seen by SmartRedis clients of any language, and by Redis tools.
"""

from __future__ import annotations

import json
import os
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import _phalanx
from ._arrays import Array
from ._closing import close_at_exit
from ._dataset import Dataset, MetaValue, storable
from ._streams import OnWait, StreamBatch, StreamProducer, StreamReader, read_mode, stream_settings
from .errors import InputError, StoreKeyError, StoreTimeout

__all__ = ["Dataset", "MetaValue", "Server", "Store", "StreamBatch", "StreamProducer", "StreamReader", "serve"]

DEFAULT_ADDRESS = "127.0.0.1:6780"
_KINDS = ("tensors", "datasets", "lists", "models")
_Keys = Tuple[Optional[str], Optional[str], bool, bool, bool, bool]
_Opened = Tuple[str, Optional[str], _Keys, bool, float]


def _keys(prefix: Optional[str], reads: Optional[str], prefixed: Collection[str]) -> _Keys:
    unknown = sorted(set(prefixed) - set(_KINDS))
    if unknown:
        raise InputError(f"there is no kind {unknown[0]!r} of keys", f"kinds are {', '.join(_KINDS)}")
    if prefix is None:
        prefix = os.environ.get("SSKEYOUT", "")
        reads = os.environ.get("SSKEYIN", "").split(",")[0] if reads is None else reads
    reads = prefix if reads is None else reads
    tensors, datasets, lists, models = (kind in prefixed for kind in _KINDS)
    return prefix or None, reads or None, tensors, datasets, lists, models


class Store:
    """A client of a store. Threads may share it; a process that was forked connects anew.

    ``address`` is ``host:port``, ``unix:///path``, ``rediss://host:port?ca=file`` or ``redis+cluster://host:port,…``; if
    it is not given, ``SSDB`` or ``PHALANX_STORE`` names it, else the store of this machine is used. ``domain`` is the
    domain whose nodes serve the store: the same as the address ``phalanx://domain``.

    With a ``prefix``, names of the kinds that ``prefixed`` lists begin with it, so that programs do not write over each
    other's data; ``reads`` is the prefix of the program whose data are read. A launcher may set both: ``SSKEYOUT`` and
    ``SSKEYIN`` count if ``prefix`` is not given; ``prefix=""`` is none.

    What a full store has no room for waits up to ``patience`` seconds, and Ctrl-C ends the wait; then ``StoreFull`` says
    what holds the memory. With ``patience=0`` it is raised at once.

    >>> with serve() as server:
    ...     with Store(server.address, prefix="a") as a, Store(server.address, prefix="b", reads="a") as b:
    ...         a.put("x", [1.0, 2.0])
    ...         b.get("x").tolist(), b.key_exists("a.x")
    ([1.0, 2.0], True)
    """

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        domain: Optional[str] = None,
        password: Optional[str] = None,
        prefix: Optional[str] = None,
        reads: Optional[str] = None,
        prefixed: Collection[str] = ("tensors", "datasets", "lists"),
        shared_memory: bool = True,
        patience: float = 30.0,
    ) -> None:
        if domain is not None:
            if address is not None:
                raise InputError("`address` and `domain` both name a store", "give one of them")
            address = f"phalanx://{domain}"
        named = address or os.environ.get("SSDB") or os.environ.get("PHALANX_STORE") or DEFAULT_ADDRESS
        keys = _keys(prefix, reads, prefixed)
        self._opened = (named, password, keys, shared_memory, float(patience))
        self._client = _phalanx.StoreClient(*self._opened)

    @classmethod
    def _of_client(cls, opened: _Opened, client: _phalanx.StoreClient) -> "Store":
        store = cls.__new__(cls)
        store._opened, store._client = opened, client
        return store

    def __reduce__(self) -> Any:
        # A store that is sent to another process connects there.
        return _reopen, self._opened

    def with_prefix(
        self,
        prefix: Optional[str] = None,
        *,
        reads: Optional[str] = None,
        prefixed: Collection[str] = ("tensors", "datasets", "lists"),
    ) -> "Store":
        """The same connection with other prefixes."""
        address, password, _, shared_memory, patience = self._opened
        keys = _keys(prefix, reads, prefixed)
        return Store._of_client((address, password, keys, shared_memory, patience), self._client.with_keys(keys))

    @property
    def address(self) -> str:
        """Where the store is."""
        return self._opened[0]

    def put(self, name: str, value: Any) -> None:
        """Stores a tensor: an array of any library. A single number has the shape ``(1,)``.

        Waits while the store is full, as everything that stores does: see ``patience`` of ``Store``.
        """
        self._client.put(name, storable(value, name))

    def put_all(self, tensors: Mapping[str, Any]) -> None:
        """Stores several tensors; small ones travel together."""
        self._client.put_all([(name, storable(value, name)) for name, value in tensors.items()])

    def get(self, name: str, *, copy: bool = False, out: Optional[Array] = None) -> Array:
        """Reads a tensor.

        The array cannot be written, and stays as it is when the tensor is stored anew. ``copy=True`` gives one that can
        be written; ``out`` is filled and given back.

        >>> with serve() as server, Store(server.address) as store:
        ...     store.put("x", [1, 2, 3])
        ...     y = store.get("x", copy=True)
        ...     y += 1
        ...     room = np.zeros(3, dtype="int64")
        ...     y.tolist(), store.get("x", out=room).tolist()
        ([2, 3, 4], [1, 2, 3])
        """
        found: Array = np.asarray(self._client.get(name))
        if out is None:
            return found.copy() if copy else found
        if out.shape != found.shape or out.dtype != found.dtype:
            has = f"{found.dtype} of shape {found.shape}"
            raise InputError(f"tensor {name!r} is {has}, `out` {out.dtype} of shape {out.shape}")
        np.copyto(out, found)
        return out

    def get_all(self, names: Iterable[str], *, copy: bool = False) -> Dict[str, Array]:
        """Reads several tensors together."""
        wanted = list(names)
        found: Dict[str, Array] = {}
        for name, memory in zip(wanted, self._client.get_all(wanted)):
            if memory is None:
                raise StoreKeyError(f'there is no tensor "{name}" in the store')
            found[name] = np.array(memory) if copy else np.asarray(memory)
        return found

    def delete(self, name: str) -> bool:
        """Deletes a tensor; whether it was there. Arrays that were read stay."""
        return self._client.delete(name)

    def copy(self, source: str, target: str) -> None:
        """Stores a tensor of the store under another name, too."""
        self._client.copy(source, target)

    def rename(self, source: str, target: str) -> None:
        """Gives a tensor another name."""
        self._client.rename(source, target)

    def exists(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return self._client.exists(name)

    def key_exists(self, key: str) -> bool:
        """Whether there is anything under a key as it is, without prefixes."""
        return self._client.key_exists(key)

    def wait(self, name: str, timeout: Optional[float] = None) -> None:
        """Waits until a tensor is there, at most ``timeout`` seconds; the store wakes those who wait."""
        if not self._client.wait_for(name, timeout):
            raise StoreTimeout(f'tensor "{name}" was not there within {timeout} s')

    def wait_for_key(self, key: str, timeout: Optional[float] = None) -> None:
        """Waits until there is anything under a key as it is."""
        if not self._client.wait_for_key(key, timeout):
            raise StoreTimeout(f'key "{key}" was not there within {timeout} s')

    def put_dataset(self, dataset: Dataset) -> None:
        """Stores a dataset. Readers see it when all of it is there."""
        self._client.put_dataset(dataset.name, *dataset._parts())

    def get_dataset(self, name: str, *, copy: bool = False) -> Dataset:
        """Reads a dataset; with ``copy`` its tensors can be written."""
        return Dataset._of_parts(self._client.get_dataset(name), copy)

    def dataset_exists(self, name: str) -> bool:
        """Whether all of a dataset is there."""
        return self._client.dataset_exists(name)

    def delete_dataset(self, name: str) -> bool:
        """Deletes a dataset with its tensors; whether it was there."""
        return self._client.delete_dataset(name)

    def copy_dataset(self, source: str, target: str) -> None:
        """Stores a copy of a dataset under another name."""
        self._client.copy_dataset(source, target)

    def rename_dataset(self, source: str, target: str) -> None:
        """Gives a dataset another name."""
        self._client.rename_dataset(source, target)

    def wait_for_dataset(self, name: str, timeout: Optional[float] = None) -> None:
        """Waits until all of a dataset is there, at most ``timeout`` seconds."""
        if not self._client.wait_for_dataset(name, timeout):
            raise StoreTimeout(f'dataset "{name}" was not there within {timeout} s')

    def append(self, list_name: str, dataset: Union[str, Dataset]) -> int:
        """Appends a dataset that is in the store to a list; gives the list's length."""
        return self._client.append(list_name, dataset if isinstance(dataset, str) else dataset.name)

    def length(self, list_name: str) -> int:
        """How many datasets a list has; 0 if there is no such list."""
        return self._client.list_length(list_name)

    def datasets(self, list_name: str, first: int = 0, last: int = -1, *, copy: bool = False) -> List[Dataset]:
        """The datasets of a list from ``first`` to ``last``, both included; negative numbers count from the end."""
        found = self._client.list_datasets(list_name, first, last)
        return [Dataset._of_parts(parts, copy) for parts in found]

    def elements(self, list_name: str, first: int = 0, last: int = -1) -> List[str]:
        """What a list names: the keys of its datasets without their endings, such as ``prefix.{name}``."""
        return self._client.list_elements(list_name, first, last)

    def wait_for_length(self, list_name: str, least: int, timeout: Optional[float] = None) -> None:
        """Waits until a list has at least this length, at most ``timeout`` seconds.

        >>> with serve() as server, Store(server.address) as store:
        ...     store.wait_for_length("steps", 1, timeout=0.01)
        Traceback (most recent call last):
        phalanx.errors.StoreTimeout: list "steps" did not have 1 datasets within 0.01 s
        """
        if not self._client.wait_for_length(list_name, least, timeout):
            raise StoreTimeout(f'list "{list_name}" did not have {least} datasets within {timeout} s')

    def delete_list(self, list_name: str) -> bool:
        """Deletes a list; its datasets stay."""
        return self._client.delete_list(list_name)

    def copy_list(self, source: str, target: str) -> None:
        """Makes a list of the same datasets."""
        self._client.copy_list(source, target)

    def rename_list(self, source: str, target: str) -> None:
        """Gives a list another name."""
        self._client.rename_list(source, target)

    def producer(
        self,
        stream: str,
        name: str,
        *,
        retention: Optional[str] = None,
        budget: Optional[int] = None,
        expected_producers: Optional[int] = None,
        incarnation: Optional[int] = None,
        timeout: Optional[float] = None,
        on_wait: Optional[OnWait] = None,
    ) -> StreamProducer:
        """Appends uploads of samples to a stream, which is made if it is not there.

        ``name`` is the same after a restart: uploads that have arrived are not made again (``producer.next``).
        ``retention`` (``"keep"`` or ``"free"`` when used), ``budget`` in bytes and ``expected_producers`` are settings
        of a new stream. ``put`` waits while there is no room, at most ``timeout`` seconds; ``on_wait`` is told why.

        >>> with serve() as server, Store(server.address) as store:
        ...     with store.producer("data", "sim-1", expected_producers=1) as producer:
        ...         for step in range(producer.next, 3):
        ...             _ = producer.put({"x": np.full((4, 2), step), "y": np.arange(4)})
        ...     with store.reader("data", "run-1", mode="static", batch=5, seed=1, passes=1) as reader:
        ...         sizes = [len(batch["x"]) for batch in reader]
        ...     sizes, store.stream_info("data")["stream"]["ended"]
        ([5, 5, 2], True)
        """
        settings = stream_settings(retention, budget, expected_producers)
        return StreamProducer(self._client.producer(stream, name, incarnation, settings), timeout, on_wait)

    def reader(
        self,
        stream: str,
        name: str,
        *,
        batch: int,
        mode: str = "grow",
        seed: int = 0,
        passes: Optional[int] = None,
        drop_last: bool = False,
        min_samples: int = 1,
        new_samples: int = 0,
        window: Optional[int] = None,
        capacity: Optional[int] = None,
        steps: Optional[int] = None,
        rank: int = 0,
        ranks: int = 1,
        trainer: Optional[str] = None,
        resume: Optional[Mapping[str, int]] = None,
        commit: bool = True,
        incarnation: Optional[int] = None,
        retention: Optional[str] = None,
        budget: Optional[int] = None,
        timeout: Optional[float] = None,
        on_wait: Optional[OnWait] = None,
    ) -> StreamReader:
        """Reads a stream in global batches of ``batch`` samples, in an order that ``seed`` decides.

        ``mode`` is ``"static"`` (passes over the whole stream, when it has ended), ``"grow"`` (over what has arrived),
        ``"once"`` (each sample once, in windows of ``window``) or ``"reservoir"`` (a sample of ``capacity``). The stream
        is made if it is not there; datasets that are appended to a list of its name are uploads.

        With ``rank`` and ``ranks`` every process of a run reads its share of every batch; all shares together are the
        batch. With ``trainer``, a name, the store gives the shares out step by step: trainers may come and go, and every
        sample is used once in a pass.

        ``resume`` is the ``state`` of a checkpoint. Streams that free samples are told what was used: batch by batch, or
        with ``commit=False`` when the program calls ``reader.commit()`` after a checkpoint.
        """
        settings = json.dumps(
            {
                "mode": read_mode(mode, min_samples, new_samples, window, capacity, steps),
                "seed": seed,
                "batch": batch,
                "partial": "Drop" if drop_last else "Keep",
                "passes": passes,
            }
        )
        if not 0 <= rank < ranks:
            raise InputError(f"rank {rank} is none of {ranks}")
        frees = mode in ("once", "reservoir")
        if ranks > 1 and frees:
            raise InputError(f"ranks of mode {mode!r} use samples that are freed", "give each a `trainer` name instead")
        if trainer is not None:
            # All trainers belong to the same life of the run.
            incarnation = 1 if incarnation is None else incarnation
        member = None
        if rank > 0 and trainer is None:
            run = self._client.attach(stream, name, timeout)
        else:
            places = (stream_settings(retention, budget, None), None if resume is None else json.dumps(dict(resume)))
            run = self._client.reader(stream, name, incarnation, settings, places)
        if trainer is not None:
            member = run.member(trainer, 1)
        return StreamReader(
            run, rank=rank, ranks=ranks, member=member, commits=commit and frees, timeout=timeout, on_wait=on_wait
        )

    def seal(self, stream: str) -> None:
        """Ends a stream: no more samples will arrive, whatever its producers do."""
        self._client.seal_stream(stream)

    def stream_info(self, stream: str) -> Dict[str, Any]:
        """Samples, producers, readers and their lag, memory, who waits and why."""
        info: Dict[str, Any] = json.loads(self._client.stream_info(stream))
        return info

    def streams(self) -> List[str]:
        """The names of all streams."""
        return self._client.streams()

    def delete_stream(self, stream: str) -> bool:
        """Deletes a stream with its samples; whether it was there."""
        return self._client.delete_stream(stream)

    def command(self, *words: Union[str, bytes, int]) -> Any:
        """Sends one command of the Redis protocol as it is; gives the reply: a number, bytes, a list, or None.

        >>> with serve() as server, Store(server.address) as store:
        ...     store.command("SET", "a", 1), store.command("GET", "a")
        (b'OK', b'1')
        """
        return self._client.command([word if isinstance(word, bytes) else str(word).encode() for word in words])

    def close(self) -> None:
        """Closes the connection. Arrays that were read stay."""
        self._client.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.address!r})"


def _reopen(address: str, password: Optional[str], keys: _Keys, shared_memory: bool, patience: float) -> Store:
    opened = (address, password, keys, shared_memory, patience)
    return Store._of_client(opened, _phalanx.StoreClient(*opened))


class Server:
    """A store inside this process, which ends with it; ``serve`` starts one."""

    def __init__(
        self,
        bind: str,
        unix: Optional[str],
        memory: Optional[int],
        password: Optional[str],
        disk: Tuple[Optional[str], str, Optional[str], Optional[int]] = (None, "every-second", None, None),
    ) -> None:
        self._server = _phalanx.StoreServer(bind, unix, memory, password, disk)
        self._password = password
        close_at_exit(self)

    @property
    def address(self) -> str:
        """Where clients connect to: ``host:port``."""
        return self._server.address

    def store(self, **options: Any) -> Store:
        """A client of this store; takes the options of ``Store``."""
        return Store(self.address, **{"password": self._password, **options})

    def close(self) -> None:
        """Ends the store. What it holds is gone unless ``persist`` kept it; arrays that were read from it stay."""
        self._server.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def serve(
    bind: str = "127.0.0.1:0",
    *,
    unix: Optional[str] = None,
    memory: Optional[int] = None,
    password: Optional[str] = None,
    persist: Optional[str] = None,
    durability: str = "every-second",
    spill: Optional[str] = None,
    spill_limit: Optional[int] = None,
) -> Server:
    """Serves a store inside this process, for tests, notebooks and single programs.

    Port 0 takes any that is free. ``memory`` bytes at most are held, most of the machine's if not given. Beyond loopback
    a password is needed. ``phalanx store serve`` runs a store of its own.
    The directory ``persist`` keeps everything for the next store; a write is acknowledged by ``durability``:
    "every-write", "every-second" or "never". Large values that memory has no room for go to the directory ``spill``,
    at most ``spill_limit`` bytes.

    >>> with serve(password="secret") as server:
    ...     with server.store() as store:
    ...         store.put("x", [1.0])
    ...     Store(server.address).get("x")
    Traceback (most recent call last):
    phalanx.errors.StoreError: the store refused: NOAUTH Authentication required.
    hint: give the store's password
    """
    return Server(bind, unix, memory, password, (persist, durability, spill, spill_limit))
